"""The whole command line over forked gloo ranks: what a study does, without the start of a Ray cluster."""

"""The model under its strategy, and how one step of it is run."""

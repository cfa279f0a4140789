"""The stages of a study, in their order."""

"""A validated study: the models, and how they are loaded, overridden and shown."""

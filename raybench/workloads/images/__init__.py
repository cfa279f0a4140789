"""Image data sets: found, checked, read."""

"""Golden values: what the analysis finds in results directories that are stored."""

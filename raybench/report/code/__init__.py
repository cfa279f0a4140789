"""The recommended setting as code to paste, a module for each framework."""

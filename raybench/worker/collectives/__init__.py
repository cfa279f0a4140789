"""A part of a sweep of collectives."""

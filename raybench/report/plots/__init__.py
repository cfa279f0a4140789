"""Plots: the values that each shows, and how they are drawn."""

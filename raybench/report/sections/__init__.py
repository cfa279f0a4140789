"""The sections of a report: each its tables, plots and sentences."""

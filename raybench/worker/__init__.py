"""What runs on every rank: set up, warm up, measure. Imports neither optuna nor pandas."""

"""From records to conclusions: pure functions, frozen values. Imports neither torch, ray nor pandas."""

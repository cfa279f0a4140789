"""A script of the user's own as a trial: run unchanged, timed at its optimizer's steps."""

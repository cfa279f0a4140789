"""What is asked of a trial, what comes back, and the directory in which it is kept."""

"""One module for each command, the options as they are typed, and what the terminal shows."""

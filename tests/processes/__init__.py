"""A command, a fork, a disk, a signal: what needs a process, a sleep or the clock, and no torch ranks."""

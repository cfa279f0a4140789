"""Hardware and learning with known truths, and a runner that measures them without a process."""

"""A trial of steps on one rank: set up, warm up, rounds of blocks, auxiliary measurements."""

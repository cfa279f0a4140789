"""A training trial on one rank: epochs, evaluation, checkpoints."""

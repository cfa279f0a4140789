"""What tests of several layers share: commands, workloads that fail on purpose, the budget of starts."""

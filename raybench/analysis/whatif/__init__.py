"""What if: step times under settings that were not measured, by simulating DDP's schedule from one trial."""

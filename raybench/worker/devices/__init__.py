"""All that differs between a CPU and a GPU."""

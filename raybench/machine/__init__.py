"""What there is on one node: cores, memory, GPUs, network, versions. Imports neither torch nor Ray."""

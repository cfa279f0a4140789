"""Messages: their times and bandwidths, and the line of latency and bandwidth through them."""

"""A program that works a known share of the time."""

SHARE = 0.3  # of a core
WORKS = f"""
import time
until = time.perf_counter() + 60
while time.perf_counter() < until:
    began = time.process_time()
    while time.process_time() - began < {SHARE / 100}:
        pass
    time.sleep({(1 - SHARE) / 100})
"""

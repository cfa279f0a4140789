"""A program that works a known share of the time, and the time that it was given."""

import time

SHARE = 0.6  # of a core
WORKS = f"""
import time
until = time.perf_counter() + 60
while time.perf_counter() < until:
    began = time.process_time()
    while time.process_time() - began < {SHARE / 10}:
        pass
    time.sleep({(1 - SHARE) / 10})
"""


def scheduled_s(pid: int) -> float:
    """What the kernel's clock of that process shows: the seconds of a core that it was given."""
    return time.clock_gettime((~pid << 3) | 2)  # as clock_getcpuclockid(3) makes it on Linux

"""Whether two workers can talk to each other."""

from __future__ import annotations

import json
import math
import os
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import raybench
from raybench.machine import cores
from raybench.machine.checks.check import Check
from raybench.machine.core_time import busy_core_seconds, own_core_seconds

ALL_REDUCE_TIMEOUT_S = 30.0
BUSY_SHARE = 0.5  # of the cores: where others take more, workers that do not finish show nothing
SELF_TEST = "raybench.worker.selftest"


def all_reduce() -> Iterator[Check]:
    """Two workers that talk to each other."""
    name = "all-reduce"
    environment = dict(os.environ)
    package_root = str(Path(raybench.__file__).parent.parent)
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, [package_root, os.environ.get("PYTHONPATH")]))
    again = f"python -m {SELF_TEST}"
    look = _CoresOfOthers()
    # A session of its own: when its time is over both ranks end with it.
    process = subprocess.Popen(
        [sys.executable, "-m", SELF_TEST],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
        start_new_session=True,
    )
    try:
        out, err = process.communicate(timeout=ALL_REDUCE_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        text, taken = f"two workers did not finish in {ALL_REDUCE_TIMEOUT_S:.0f} s", look.mean()
        if taken is not None and taken > BUSY_SHARE * len(cores.allowed_cores()):
            text += f", while other programs took {taken:.2f} of {len(cores.allowed_cores())} cores"
            yield Check(name, "warning", text, f"once they are idle: {again}")
            return
        yield Check(name, "missing", text, f"TORCH_DISTRIBUTED_DEBUG=DETAIL {again}")
        return
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
    if process.returncode:
        last = next((line for line in reversed(err.splitlines()) if line.strip()), "no message")
        text = f"two workers failed with code {process.returncode}: {last.strip()[:200]}"
        yield Check(name, "missing", text, again)
        return
    result = json.loads(out.splitlines()[-1])
    yield Check(name, "ok", all_reduce_words(result["backend"], result["bytes"], result["times_s"]))


class _CoresOfOthers:
    """How many cores all but this process and its children took, on average since it was made."""

    def __init__(self) -> None:
        self._began, self._before_s = time.monotonic(), self._others_s()

    def mean(self) -> float | None:
        """None where the machine does not tell."""
        now_s = self._others_s()
        if now_s is None or self._before_s is None:
            return None
        return (now_s - self._before_s) / (time.monotonic() - self._began)

    @staticmethod
    def _others_s() -> float | None:
        busy_s = busy_core_seconds()
        return None if busy_s is None else busy_s - own_core_seconds(with_children=True)


def all_reduce_words(backend: str, num_bytes: int, times_s: list[float]) -> str:
    """Median and 95% interval of an all-reduce over two ranks, and its bus bandwidth.

    Bus bandwidth is bytes * 2 (n - 1) / n over time, with n = 2 the bytes over time (nccl-tests).
    """
    low, high = median_interval(times_s)
    median = statistics.median(times_s)
    return (
        f"2 workers, {backend}, {num_bytes / 2**20:.0f} MiB: median {1e3 * median:.2f} ms "
        f"[{1e3 * low:.2f}, {1e3 * high:.2f}], n = {len(times_s)}; "
        f"{num_bytes / median / 1e9:.2f} GB/s of bus bandwidth"
    )


def median_interval(values: list[float], confidence: float = 0.95) -> tuple[float, float]:
    """The narrowest symmetric pair of order statistics that covers the median with ``confidence``.

    The number of values below the median is binomial with p = 1/2, whatever their distribution; with
    fewer than 6 values no pair covers 95%, and the smallest and largest are returned.
    """
    ordered, n = sorted(values), len(values)
    below = 0
    tail = 0.0
    while below < n // 2 and 2 * (tail + math.comb(n, below) / 2**n) <= 1 - confidence:
        tail += math.comb(n, below) / 2**n
        below += 1
    below = max(0, below - 1)
    return ordered[below], ordered[n - 1 - below]

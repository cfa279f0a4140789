"""``python -m tests.ray.seen_first ARGUMENTS``: raybench, whose workers stay until they were looked at.

When everything is measured it writes the file MEASURED, and goes on when there is the file SEEN.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from raybench import study
from raybench.launch.metrics import RayMetrics
from tests.support.planted.faults import until

MEASURED, SEEN = "measured", "seen"  # in the working directory
MOST_S = 120.0


def leave(self: RayMetrics, *error: Any) -> None:
    Path(MEASURED).touch()
    until(Path(SEEN).exists, MOST_S)
    _leave(self, *error)


_leave = RayMetrics.__exit__
RayMetrics.__exit__ = leave  # type: ignore[method-assign]

if __name__ == "__main__":
    study.main()

"""``python -m tests.ray.short_parts ARGUMENTS``: raybench, a sweep's rounds in parts of a few seconds."""

from __future__ import annotations

from raybench import study
from raybench.run import sweep

sweep.PART_SECONDS = 4.0

if __name__ == "__main__":
    study.main()

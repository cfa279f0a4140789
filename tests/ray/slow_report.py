"""``python -m tests.ray.slow_report ARGUMENTS``: raybench, its report longer than Ray's alarm."""

from __future__ import annotations

import time
from typing import Any

from raybench import study
from raybench.report import document

REPORT_S = 3.5  # Ray's core aborts a process 3 s after SIGTERM, unless it is kept from it


def slowly(*arguments: Any) -> Any:
    print("drawing", flush=True)  # into ray.log: the test waits for it
    time.sleep(REPORT_S)
    return _make_sections(*arguments)


_make_sections = document.make_sections
document.make_sections = slowly  # type: ignore[assignment]

if __name__ == "__main__":
    study.main()

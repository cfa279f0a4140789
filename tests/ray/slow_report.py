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
    return _draw_all(*arguments)


_draw_all = document.draw_all  # type: ignore[attr-defined]
document.draw_all = slowly  # type: ignore[attr-defined, assignment]

if __name__ == "__main__":
    study.main()

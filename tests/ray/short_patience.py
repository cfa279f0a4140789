"""``python -m tests.ray.short_patience ARGUMENTS``: raybench, which waits less long for the batch that hangs.

All other trials keep their time: on busy cores a sound one may take long.
"""

from __future__ import annotations

from typing import Any

from raybench import study
from raybench.launch.worker_group import WorkerGroup
from raybench.records.requests import StepsRequest
from tests.support.faulty import HUNG

HUNG_S = 8.0


def post(self: WorkerGroup, request: StepsRequest, *others: Any) -> None:
    if request.config.batch_size == HUNG:
        short = request.measure.model_copy(update={"timeout_seconds": HUNG_S})
        request = request.model_copy(update={"measure": short})
    _post(self, request, *others)


_post = WorkerGroup.post
WorkerGroup.post = post  # type: ignore[assignment, method-assign]

if __name__ == "__main__":
    study.main()

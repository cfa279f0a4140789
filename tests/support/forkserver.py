"""The one process that ranks and commands are forked from: it has imported what they need, and begun nothing.

Each would take seconds of a core to import it itself.
"""

from __future__ import annotations

import multiprocessing

IMPORTED = (
    "torch._dynamo",
    "ray.train",
    "raybench.study",
    "raybench.commands.scaling_run",
    "raybench.commands.communication_run",
    "raybench.report.document",
    "raybench.driver.stages",
    "raybench.worker.serve",
    "raybench.worker.trial",
    "tests.support.ranks_runner",
)
FORKSERVER = multiprocessing.get_context("forkserver")
FORKSERVER.set_forkserver_preload(list(IMPORTED))

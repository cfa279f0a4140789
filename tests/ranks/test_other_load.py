"""What others take of the cores during the rounds: planted, and found again beside the trial's own work."""

from __future__ import annotations

import subprocess
import sys

from raybench.records.measurements import StepsResult
from raybench.records.requests import StepsRequest
from raybench.spec.knobs import Setting
from raybench.spec.study import MeasureSpec
from raybench.spec.workloads import FactorySpec
from raybench.worker.cache import GroupCache
from raybench.worker.communicators import Communicators
from tests.ranks.ranks import run_ranks
from tests.ranks.trials import run_trials
from tests.support.working import SHARE, WORKS
from tests.unit import studies

REQUEST = studies.request(
    role="scaling",
    workload=FactorySpec.model_validate({"factory": "tests.ranks.planted:faulty"}),
    setting=Setting(batch_size=8),
    world_size=2,
    variants=("plain", "synced"),
    measure=MeasureSpec(
        half_width=0.001, steps=3, min_rounds=4, warmup_steps=1, max_seconds=2, timeout_seconds=60
    ),
)


def _measured(request: StepsRequest) -> StepsResult:
    (result,) = run_trials([request], Communicators("gloo"), GroupCache())
    return result.result  # type: ignore[return-value]


def test_a_planted_process_is_found_and_the_ranks_are_not_others() -> None:
    with subprocess.Popen([sys.executable, "-c", WORKS], stdout=subprocess.DEVNULL) as process:
        try:
            result = run_ranks(_measured, 2, REQUEST)[0]
        finally:
            process.kill()
    assert len(result.host_cores) == 2
    assert all(len(each.other_cores) == 2 for each in result.rounds)
    mean = sum(each.other_cores[0] for each in result.rounds) / len(result.rounds)
    # of the machine's cores in all, its ranks' own work left out
    assert 0.3 * SHARE < mean < result.host_cores[0] + 0.1
    assert sum(result.other_programs.values()) > 0.3 * SHARE
    assert len(result.other_programs) <= 5

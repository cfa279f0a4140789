"""What others take of the cores during the rounds: planted, and found again beside the trial's own work."""

from __future__ import annotations

import subprocess
import sys
import time

import pytest
import torch

from raybench.machine.host import busy_core_seconds
from raybench.records.requests import StepsRequest
from raybench.records.results import StepsResult
from raybench.spec.knobs import Setting
from raybench.spec.study import MeasureSpec
from raybench.spec.workloads import MLPSpec
from raybench.worker.communicators import Communicators
from raybench.worker.group_cache import GroupCache
from tests.ranks.agreement import others_took
from tests.ranks.ranks import Ranks
from tests.ranks.trials import run_trials
from tests.support import budget
from tests.support.working import WORKS, scheduled_s
from tests.unit import studies

pytestmark = pytest.mark.alone

NEAR = 0.2  # of a core: half of what is planted would not pass
REQUEST = studies.request(
    role="scaling",
    workload=MLPSpec(name="mlp"),
    setting=Setting(batch_size=64),
    world_size=2,
    variants=("plain", "ddp"),
    measure=MeasureSpec(half_width=0.001, min_rounds=4, max_seconds=2, timeout_seconds=60),
)


def _measured(request: StepsRequest) -> tuple[StepsResult, float, float, float]:
    """On each rank: the trial; and around it seconds, those of the host's cores, and this process's own."""
    torch.set_num_threads(1)
    communicators = Communicators("gloo")
    host_s, own_s, began = busy_core_seconds(), time.process_time(), time.perf_counter()
    (result,) = run_trials([request], communicators, GroupCache())
    seconds, own_s = time.perf_counter() - began, time.process_time() - own_s
    host_s = (busy_core_seconds() or 0.0) - (host_s or 0.0)
    communicators.drop_team()
    return result.result, seconds, host_s, own_s  # type: ignore[return-value]


def test_a_planted_process_is_found_and_the_ranks_are_not_others(pair: Ranks) -> None:
    budget.took(budget.PROCESSES)
    with subprocess.Popen([sys.executable, "-c", WORKS], stdout=subprocess.DEVNULL) as process:
        try:
            time.sleep(0.3)  # until it works
            used_s, began = scheduled_s(process.pid), time.perf_counter()
            (result, seconds, host_s, own_s), (_, _, _, others_own_s) = pair.call(_measured, REQUEST)
            planted = (scheduled_s(process.pid) - used_s) / (time.perf_counter() - began)
        finally:
            process.kill()
    assert len(result.host_cores) == 2
    assert all(len(each.other_cores) == 2 for each in result.rounds)
    others, ranks = (host_s - own_s - others_own_s) / seconds, (own_s + others_own_s) / seconds
    print(f"planted {planted:.2f}, others {others:.2f}, ranks {ranks:.2f}, found {others_took(result):.2f}")
    assert ranks > NEAR  # so that these cores, were they taken for others', would be seen
    assert others_took(result) == pytest.approx(others, abs=NEAR)
    assert others_took(result) > planted - NEAR

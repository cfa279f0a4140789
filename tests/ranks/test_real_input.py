"""Real input whose speed is known: a loader that is slow to start, and one that is too slow throughout."""

from __future__ import annotations

from functools import partial
from statistics import median
from typing import Any

import pytest
import torch

from raybench.analysis.findings.finding import FindingName
from raybench.analysis.stats.rounds import mean_rank_s
from raybench.records.messages import Outcome
from raybench.records.record import TrialRecord
from raybench.records.requests import StepsRequest, Variant
from raybench.records.results import StepsResult
from raybench.report.finding_texts import evidence
from raybench.spec.knobs import Setting
from raybench.spec.study import MeasureSpec, OptimizerSpec
from raybench.spec.workloads import FactorySpec
from raybench.worker.communicators import Communicators
from raybench.worker.group_cache import GroupCache
from tests.ranks.agreement import Lazily, may_name_others, measured_undisturbed
from tests.ranks.ranks import Ranks
from tests.ranks.trials import run_trials
from tests.support.alone import findings
from tests.unit import studies

pytestmark = pytest.mark.alone

VARIANTS: tuple[Variant, ...] = ("plain", "concurrent", "local", "ddp")
BATCH, STEP_S = 8, 0.010


def request(planted: dict[str, Any], **setting: Any) -> StepsRequest:
    spec = {"factory": "tests.ranks.slow_data:slow_data", "input": "real", "step_s": STEP_S} | planted
    return studies.request(
        role="scaling",
        workload=FactorySpec.model_validate(spec),
        optimizer=OptimizerSpec(),
        setting=Setting(batch_size=BATCH, **setting),
        world_size=2,
        variants=VARIANTS,
        measure=MeasureSpec(steps=4, warmup_steps=2, min_rounds=4, max_seconds=40, timeout_seconds=100),
    )


START_S, READ_S, NEARLY_S = 0.4, 0.040, 0.015
REQUESTS = {
    # two processes bring a batch each 20 ms, a little less often than steps could take one
    "too slow": request({"read_s": READ_S, "length": 4096, "step_s": NEARLY_S}, workers=2),
    # four batches in an epoch of each rank: a start in every block, were there any
    "slow to start": request({"start_s": START_S}, workers=1, persistent_workers=False),
}


def rank_measures(requests: dict[str, StepsRequest]) -> dict[str, Outcome]:
    torch.set_num_threads(1)
    communicators = Communicators("gloo")
    found = {name: run_trials([asked], communicators, GroupCache())[0] for name, asked in requests.items()}
    communicators.drop_team()
    return found


@pytest.fixture(scope="module")
def found(pair: Ranks) -> dict[str, Outcome]:
    """What the leader brought."""

    def measure(name: str) -> Outcome:
        found: Outcome = pair.call(rank_measures, {name: REQUESTS[name]})[0][name]
        return found

    return Lazily(lambda name: measured_undisturbed(partial(measure, name), measured))


def measured(result: Outcome) -> StepsResult:
    assert (result.state, result.reason) == ("complete", None)
    assert isinstance(result.result, StepsResult)
    return result.result


def step_s(found: StepsResult, variant: Variant) -> float:
    blocks = [round_.block(variant) for round_ in found.rounds]
    return median(mean_rank_s(block) for block in blocks if block is not None)


def test_steps_are_those_of_the_steady_state_however_slow_a_loader_is_to_start(found):
    for variant in VARIANTS:
        assert STEP_S <= step_s(measured(found["slow to start"]), variant) < STEP_S + START_S / 10, variant


def test_a_loader_that_cannot_keep_up_is_waited_for_whatever_lay_ready(found):
    result, batch_s = measured(found["too slow"]), READ_S / 2
    for variant in VARIANTS:  # after a rank's pause too, in which its loader read ahead
        assert 0.93 * batch_s <= step_s(result, variant) <= 1.5 * batch_s, variant
    for variant in ("plain", "local"):
        blocks = [block.seconds for block in result.phases if block.variant == variant]
        # what is left of a batch's time when the step has computed, which a slow machine does more slowly
        left_s = [batch_s - (sum(seconds.values()) - seconds["data"]) for seconds in blocks]
        waited_s, least_s = median(seconds["data"] for seconds in blocks), median(left_s)
        # a busy machine brings batches later, never earlier: by as much as the step above may be longer
        assert 0.8 * least_s <= waited_s <= least_s + 0.5 * batch_s, variant


def test_a_slow_loader_is_the_first_finding(found):
    asked, result = REQUESTS["too slow"], measured(found["too slow"])
    record = TrialRecord(
        study="planted", trial_id=asked.trial_id, request=asked, state="complete", ranks=(0, 1),
        started_at="", wall_time_s=0.0, result=result,
    )  # fmt: skip
    granted = {FindingName.OTHER_PROCESSES} if may_name_others(result) else set()
    first = next(each for each in findings(record) if each.name not in granted)
    print(evidence(first))
    assert first.name is FindingName.DATA_BOUND
    # the step less what it computes, of a step that waits
    assert first.explains is not None
    assert first.explains.value == pytest.approx(step_s(result, "local") - NEARLY_S, rel=0.5)
    assert first.change == {"workers": 4}

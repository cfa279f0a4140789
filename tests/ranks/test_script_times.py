"""Scripts of people's own, on real gloo ranks: planted times are found again."""

from __future__ import annotations

from functools import partial
from statistics import median
from typing import Any

import pytest

from raybench.analysis.stats.rounds import mean_rank_s, slowest_rank_s
from raybench.records.messages import Outcome
from raybench.records.results import Phase, StepsResult
from raybench.spec.knobs import Setting
from raybench.spec.workloads import FactorySpec, LightningSpec
from tests.ranks.agreement import Lazily, measured_undisturbed
from tests.ranks.own_scripts import request, served_in_turn
from tests.ranks.ranks import Ranks
from tests.ranks.trials import complete

pytestmark = pytest.mark.alone

MOST = 1.5  # over what sleeps: the model, the loader, gloo, and a core that wakes up, as slow as it may be
# Of what was planted, or nothing, between steps that have the same beside it: on shared cores equal trials,
# seconds apart, have differed by 3 ms.
WITHIN_S = 0.005

PLANTED = "--bs {batch_size} --base-ms 60 --slow-ms 40 --send-ms 30 --data-ms 20"
LONGER = "--bs {batch_size} --base-ms 80 --slow-ms 40 --send-ms 60 --data-ms 35"  # by 20, 0, 30 and 15 ms
OWN = "tests.support.own_trainings"
FEW, BRIEF = {"steps": 4}, {"steps": 2, "min_rounds": 5}
# without what is measured beside the rounds of a curve
ALONE_TOO: dict[str, Any] = {"role": "search", "variants": ("plain", "ddp"), "measure": BRIEF}
ASKED = {
    "one": request("planted.py", PLANTED, world_size=1, variants=("plain",), measure=FEW),
    "two": request(
        "planted.py",
        PLANTED,
        setting=Setting(batch_size=4, bucket_cap_mb=3),
        script={"ddp_knobs": ["bucket_cap_mb"]},
        measure=FEW,
    ),
    "one longer": request("planted.py", LONGER, world_size=1, variants=("plain",), measure=FEW),
    "two longer": request("planted.py", LONGER, measure=FEW),
    "by factory": request(
        "", "", workload=FactorySpec.model_validate({"factory": f"{OWN}:WaitingWorkload"}), **ALONE_TOO
    ),
    "by script, one": request("waiting.py", "", world_size=1, variants=("plain",), measure=BRIEF),
    "by script": request("waiting.py", "", variants=("ddp",), measure=BRIEF),
    "by adapter": request(
        "",
        "",
        workload=LightningSpec.model_validate({"lightning": f"{OWN}:build_waiting_lightning"}),
        **ALONE_TOO,
    ),
}


@pytest.fixture(scope="module")
def of_scripts(pair: Ranks) -> dict[str, Outcome]:
    """How each ended."""

    def measure(name: str) -> Outcome:
        return served_in_turn(pair, {name: ASKED[name]})[name]

    return Lazily(lambda name: measured_undisturbed(partial(measure, name), complete))


def _level(found: StepsResult, variant: str) -> float:
    """The step time of the least disturbed block, in s: no sleep is shorter than asked."""
    blocks = (block for each in found.rounds for block in each.blocks)
    return min(slowest_rank_s(block) for block in blocks if block.variant == variant)


def _at_least(found_s: float, planted_s: float) -> bool:
    """No sleep is shorter than asked; what is beside it is bounded, and the same in what sleeps longer."""
    return planted_s - 0.002 < found_s < MOST * planted_s


def test_planted_times_are_found_again(of_scripts: dict[str, Outcome]) -> None:
    one, two = complete(of_scripts["one"]), complete(of_scripts["two"])
    longer, two_longer = complete(of_scripts["one longer"]), complete(of_scripts["two longer"])
    assert _at_least(_level(one, "plain"), 0.080)
    assert _level(longer, "plain") - _level(one, "plain") == pytest.approx(0.035, abs=WITHIN_S)
    assert _level(two, "local") - _level(one, "plain") == pytest.approx(0.040, abs=WITHIN_S)
    sent_s, more_s = (_level(each, "ddp") - _level(each, "local") for each in (two, two_longer))
    assert more_s - sent_s == pytest.approx(0.030, abs=WITHIN_S)
    assert _at_least(sent_s, 0.030)
    local = [block for each in two.rounds for block in each.blocks if block.variant == "local"]
    assert median(max(block.step_time_s) - mean_rank_s(block) for block in local) == pytest.approx(
        0.020, abs=WITHIN_S
    )
    assert _least_phase(two_longer, "data") - _least_phase(two, "data") == pytest.approx(0.015, abs=WITHIN_S)
    assert _least_phase(two_longer, "forward") - _least_phase(two, "forward") == pytest.approx(
        0.020, abs=WITHIN_S
    )
    assert _at_least(_least_phase(two, "data"), 0.020)
    assert _at_least(_least_phase(two, "forward"), 0.080)  # the mean of the ranks
    assert _level(one, "plain") / _level(two, "ddp") == pytest.approx(80 / 150, abs=0.03)


def _least_phase(found: StepsResult, phase: Phase) -> float:
    """Of the blocks of ``ddp``, in s."""
    return min(each.seconds[phase] for each in found.phases if each.variant == "ddp")


@pytest.mark.parametrize(
    ("alone", "door"),
    [("by factory", "by factory"), ("by adapter", "by adapter"), ("by script, one", "by script")],
)
def test_one_model_scales_alike_by_factory_adapter_and_script(
    alone: str, door: str, of_scripts: dict[str, Outcome]
) -> None:
    """100 ms a step alone, 150 ms on two, by every door; ``test_plain_loop`` has a factory's step."""
    one_s, two_s = _level(complete(of_scripts[alone]), "plain"), _level(complete(of_scripts[door]), "ddp")
    assert one_s / two_s == pytest.approx(100 / 150, abs=0.03)
    by_factory = complete(of_scripts["by factory"])
    assert one_s == pytest.approx(_level(by_factory, "plain"), abs=WITHIN_S)
    assert two_s == pytest.approx(_level(by_factory, "ddp"), abs=WITHIN_S)

"""The anchor in real trials: beside the measured setting where it can be had, and never at its cost."""

from __future__ import annotations

from typing import Any

import pytest

from raybench.records.messages import Outcome
from raybench.records.requests import StepsRequest
from raybench.spec.knobs import Setting
from raybench.spec.study import MeasureSpec
from raybench.worker.communicators import Communicators
from raybench.worker.group_cache import GroupCache
from tests.ranks.hungry import MIB
from tests.ranks.ranks import Ranks
from tests.ranks.trials import BOTH, complete, serve_trial
from tests.unit import studies

MEASURE = MeasureSpec(
    half_width=0.5, steps=3, min_rounds=3, warmup_steps=1, max_seconds=5, timeout_seconds=60
)
APPETITE_MIB = 4


def _request(anchor: Setting | None, **workload: Any) -> StepsRequest:
    return studies.request(
        role="search",
        workload={"factory": "tests.ranks.hungry:build"} | workload,
        setting=Setting(batch_size=4),
        variants=("plain", "ddp") if anchor is None else ("plain", "ddp", "anchor"),
        anchor=anchor,
        measure=MEASURE,
    )


LARGE = Setting(batch_size=8, gradient_accumulation=2)
REQUESTS = {
    "without": _request(None, mib=APPETITE_MIB),
    "with": _request(LARGE, mib=APPETITE_MIB),
    "hungry": _request(Setting(batch_size=128), mib=APPETITE_MIB),
    "one rank": _request(Setting(batch_size=8), most=6, ranks=[1]),
    "all ranks": _request(Setting(batch_size=8), most=6, ranks=[0, 1]),
    "strategy": _request(Setting(batch_size=8, strategy="dp")),
    "after": _request(LARGE),
}


def _served() -> dict[str, Outcome]:
    """On each rank: the trials one after the other; rank 0 brings their outcomes."""
    communicators, cache = Communicators("gloo"), GroupCache()
    found = {
        name: each
        for name, request in REQUESTS.items()
        for each in serve_trial(request, BOTH, communicators, cache)
    }
    communicators.drop_team()
    return found


@pytest.fixture(scope="module")
def outcomes(pair: Ranks) -> dict[str, Outcome]:
    return pair.call(_served)[0]


@pytest.mark.parametrize("name", ["with", "hungry", "after"])
def test_it_is_in_every_round(outcomes: dict[str, Outcome], name: str) -> None:
    found = complete(outcomes[name])
    assert found.missing == {}
    for each in found.rounds:
        block = each.block("anchor")
        assert block is not None
        assert block.ranks == BOTH
    assert found.samples_per_step == 8


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("one rank", "planted above 6"),
        ("all ranks", "planted above 6"),
        ("strategy", "strategy dp exists on GPUs only"),
    ],
)
def test_where_it_cannot_be_had_it_is_left_out(outcomes: dict[str, Outcome], name: str, reason: str) -> None:
    found = complete(outcomes[name])
    assert reason in found.missing["anchor"]
    assert all({block.variant for block in each.blocks} == {"plain", "ddp"} for each in found.rounds)


def test_the_peak_of_memory_is_that_of_the_measured_setting(outcomes: dict[str, Outcome]) -> None:
    """The anchor takes 512 MiB for its samples, the setting 16."""
    peaks = {name: complete(outcomes[name]).device_memory_bytes for name in ("without", "hungry")}
    if peaks["without"] is None or peaks["hungry"] is None:
        pytest.skip("this kernel does not forget a process's peak")
    for without, hungry in zip(peaks["without"], peaks["hungry"], strict=True):
        assert abs(hungry - without) < 128 * APPETITE_MIB * MIB / 2

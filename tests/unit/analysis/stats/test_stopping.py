"""The stopping rule: every reason to stop, every reason to go on, and what its interval is asked of."""

from __future__ import annotations

import math

import pytest

from raybench.analysis.stats.statistics import geometric, trimmed_mean
from raybench.analysis.stats.stopping import (
    DEFAULT_HALF_WIDTH,
    LEAST_MEASURED,
    PATIENCE,
    REFERENCES,
    asked_half_width,
    decide,
    reached_half_width,
)
from raybench.records.requests import Variant
from raybench.records.results import Block, Round
from raybench.spec.study import MeasureSpec

WIDE = [1.0, 1.5, 0.7, 1.4, 0.8]  # ratios far apart, repeated: a half-width of more than 10%
ASKED = MeasureSpec(half_width=0.05, min_rounds=10, max_seconds=20)


def block(variant: Variant, step_time_s: float, *ranks: int) -> Block:
    """A block whose slowest rank takes ``step_time_s``; the others half of it."""
    ranks = ranks or (0,)
    times = (step_time_s / 2,) * (len(ranks) - 1) + (step_time_s,)
    return Block(variant=variant, ranks=ranks, step_time_s=times, slowest_s=step_time_s, num_steps=5)


def rounds_of(*ratios: float) -> list[Round]:
    """Rounds in which one device, in turn, takes ``ratios`` times as long as two devices."""
    return [
        Round(blocks=(block("ddp", 0.01, 0, 1), block("plain", 0.01 * ratio, number % 2)), at_s=0.0)
        for number, ratio in enumerate(ratios)
    ]


def wide(number: int) -> list[Round]:
    return rounds_of(*(WIDE * number)[:number])


def steady(number: int) -> list[Round]:
    return rounds_of(*[0.8] * number)


def watched(*variants: tuple[Variant, float, tuple[int, ...]]) -> float | None:
    """The half-width over rounds of these blocks, the step times of which grow by 1% a round."""
    rounds = [
        Round(
            blocks=tuple(
                block(variant, step_s * (1.01**number if place == 0 else 1.0), *ranks)
                for place, (variant, step_s, ranks) in enumerate(variants)
            ),
            at_s=0.0,
        )
        for number in range(6)
    ]
    return reached_half_width(rounds)


def test_it_stops_when_the_interval_is_narrow_enough_and_not_before_the_least_rounds() -> None:
    assert decide(steady(9), ASKED, "cpu", 1.0).stop is None
    decision = decide(steady(10), ASKED, "cpu", 1.0)
    assert decision.stop == "half_width"
    assert decision.half_width == pytest.approx(0.0)


def test_the_half_width_may_just_be_reached() -> None:
    rounds = wide(10)
    reached = reached_half_width(rounds)
    assert reached is not None
    asked = ASKED.model_copy(update={"half_width": reached})
    assert decide(rounds, asked, "cpu", 1.0).stop == "half_width"
    narrower = ASKED.model_copy(update={"half_width": math.nextafter(reached, 0)})
    assert decide(rounds, narrower, "cpu", 1.0).stop is None


def test_it_stops_when_the_time_is_spent() -> None:
    assert decide(wide(10), ASKED, "cpu", 19.99).stop is None
    assert decide(wide(10), ASKED, "cpu", 20.0).stop == "max_seconds"


def test_an_interval_that_is_reached_as_the_time_is_spent_is_the_reason() -> None:
    assert decide(steady(10), ASKED, "cpu", 20.0).stop == "half_width"


def test_patience_ends_a_trial_with_too_few_rounds_but_enough_for_an_interval() -> None:
    assert decide(wide(9), ASKED, "cpu", 39.99).stop is None
    assert decide(wide(9), ASKED, "cpu", PATIENCE * 20).stop == "max_seconds"
    assert decide(wide(LEAST_MEASURED), ASKED, "cpu", 1e6).stop == "max_seconds"
    assert decide(wide(LEAST_MEASURED - 1), ASKED, "cpu", 1e6).stop is None


def test_patience_comes_before_the_interval() -> None:
    """As the worker has it: a trial of twice its time has spent it, however narrow the interval."""
    assert decide(steady(10), ASKED, "cpu", PATIENCE * 20).stop == "max_seconds"


@pytest.mark.parametrize("elapsed_s", [0.0, 1e6])
def test_fixed_steps_ask_neither_the_interval_nor_the_clock(elapsed_s: float) -> None:
    fixed = ASKED.model_copy(update={"steps": 20})
    assert decide(steady(9), fixed, "cpu", elapsed_s).stop is None
    assert decide(wide(10), fixed, "cpu", elapsed_s).stop == "steps"
    assert decide(wide(10), fixed, "cpu", elapsed_s).half_width is not None


def test_fewer_than_three_rounds_have_no_half_width() -> None:
    assert decide(steady(2), ASKED, "cpu", 1.0).half_width is None
    assert decide(steady(3), ASKED, "cpu", 1.0).half_width is not None


def half_width_of(ratios: list[float]) -> float:
    return trimmed_mean([math.log(ratio) for ratio in ratios]).half_width


def test_the_half_width_is_that_of_the_estimator_with_the_devices_taken_out() -> None:
    ratios = [0.80, 1.05, 0.81, 1.04, 0.79, 1.06, 0.80, 1.05, 0.805, 1.045]  # the second device is slow
    alone = rounds_of(*ratios)
    assert reached_half_width(alone) == pytest.approx(half_width_of(ratios))
    all_at_once = block("concurrent", 0.0131, 0, 1).model_copy(update={"step_time_s": (0.01, 0.0131)})
    reached = reached_half_width(
        [each.model_copy(update={"blocks": (*each.blocks, all_at_once)}) for each in alone]
    )
    assert reached is not None
    assert reached < geometric(ratios).relative_half_width / 3


def test_the_default_half_width_is_of_the_device_and_a_study_may_ask_for_another() -> None:
    assert DEFAULT_HALF_WIDTH == {"cpu": 0.05, "cuda": 0.02}
    unasked = MeasureSpec()
    assert [asked_half_width(unasked, device) for device in ("cpu", "cuda")] == [0.05, 0.02]
    assert asked_half_width(MeasureSpec(half_width=0.03), "cuda") == 0.03
    ratios = [1.0, 1.05, 0.95, 1.04, 0.96] * 2  # a half-width between 2% and 5%
    rounds = rounds_of(*ratios)
    assert decide(rounds, unasked, "cpu", 1.0).stop == "half_width"
    assert decide(rounds, unasked, "cuda", 1.0).stop is None


def test_the_references_are_base_then_plain_then_anchor() -> None:
    assert REFERENCES == ("base", "plain", "anchor")
    flat = ("ddp", 0.01, (0, 1))
    growing = pytest.approx(half_width_of([1.01**number for number in range(6)]))
    assert watched(("base", 0.02, (0,)), flat, ("plain", 0.01, (0,)), ("anchor", 0.01, (0, 1))) == growing
    assert watched(("plain", 0.01, (0,)), flat, ("anchor", 0.01, (0, 1))) == growing
    assert watched(("anchor", 0.01, (0, 1)), flat) == growing
    # what is no reference changes nothing
    for variant in ("concurrent", "local", "replay"):
        assert watched((variant, 0.01, (0, 1)), flat, ("plain", 0.01, (0,))) == pytest.approx(0.0)
    assert watched(("plain", 0.01, (0,)), flat, ("base", 0.02, (0,))) == pytest.approx(0.0)


def test_one_device_is_asked_for_its_step_time() -> None:
    assert watched(("plain", 0.01, (0,))) == pytest.approx(
        half_width_of([1.01**number for number in range(6)])
    )


def test_without_a_reference_the_step_time_of_the_slowest_rank_is_asked_for() -> None:
    """As where one device has no memory for the batch."""
    expected = pytest.approx(half_width_of([1.01**number for number in range(6)]))
    assert watched(("ddp", 0.01, (0, 1)), ("concurrent", 0.01, (0, 1))) == expected


def test_the_studys_description_names_the_half_widths_that_are_asked() -> None:
    described = MeasureSpec.model_fields["half_width"].description
    assert described is not None
    assert described.endswith(
        f"unset: {DEFAULT_HALF_WIDTH['cpu']:g} on CPUs, {DEFAULT_HALF_WIDTH['cuda']:g} on GPUs"
    )

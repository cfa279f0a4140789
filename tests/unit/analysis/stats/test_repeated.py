"""Trials of several starts become one: which speaks for them, and what their estimates are over."""

from __future__ import annotations

import numpy as np
import pytest
from raybench.analysis.stats.repeated import (
    one_of_starts,
    scaling_over_starts,
    starts_of,
    waterfall_over_starts,
)

from raybench.analysis.scaling import scaling, waterfall
from raybench.analysis.summary import summarize
from raybench.records.record import TrialRecord
from tests.support.planted import FakeRunner, Noise, StepCosts, run_all
from tests.unit.studies import failed, request

COSTS = StepCosts(plain_s=0.010, contention_s=0.001, wrapper_s=0.0005, exposed_s=0.002)


def repeated(starts: int, slower: tuple[float, ...] = (), size: int = 2) -> list[TrialRecord]:
    """One trial in so many starts, all of whose step is slower by a factor of the start."""
    records = []
    for start in range(starts):
        factor = slower[start] if slower else 1.0
        costs = StepCosts(**{**vars(COSTS), "exposed_s": 0.0135 * factor - 0.0115})
        runner = FakeRunner(lambda config, setting, costs=costs: costs, Noise(block=0.01), seed=start)
        records += run_all(runner, [request(world_size=size, start=start)])[0]
    return records


def test_the_first_complete_start_speaks_for_all() -> None:
    first, second, third = repeated(3)
    lost = failed(request())
    assert one_of_starts([first, second, third]) == [first]
    assert one_of_starts([lost, second, third]) == [second]
    assert one_of_starts([lost, failed(request(start=1))]) == [lost]
    assert starts_of(second, [lost, second, third]) == (second, third)


def test_other_trials_are_not_starts_of_one() -> None:
    one, two = repeated(2)
    searched = run_all(FakeRunner(seed=1), [request(role="search", variants=("plain", "ddp"))])[0][0]
    smaller = repeated(2, size=1)
    assert one_of_starts([one, searched, *smaller, two]) == [one, searched, smaller[0]]
    assert starts_of(searched, [one, two]) == (searched,)


def test_estimates_are_the_mean_over_starts() -> None:
    records = repeated(3, (1.0, 1.05, 1.12))
    own = [scaling(record) for record in records]
    found = scaling_over_starts(records[0], records)
    assert found.step_time_s.value == pytest.approx(
        np.exp(np.mean([np.log(each.step_time_s.value) for each in own]))
    )
    assert found.step_time_s.relative_half_width > 0.1  # t of two degrees of freedom on 5.7%
    assert found.efficiency is not None
    assert found.baseline is not None
    assert found.efficiency.starts == found.baseline.step_time_s.starts == 3
    assert found.efficiency.low < 10 / (13.5 * 1.05) < found.efficiency.high
    assert scaling_over_starts(records[0]) == own[0]


def test_a_first_start_without_a_baseline_does_not_hide_the_others() -> None:
    first, *further = repeated(3)
    bare = without_plain(first)
    found = scaling_over_starts(bare, [bare, *further])
    assert scaling(bare).speedup is None
    assert found.baseline is not None
    assert found.efficiency is not None
    assert (found.step_time_s.starts, found.efficiency.starts) == (3, 2)
    assert found.efficiency.value == pytest.approx(10 / 13.5, rel=0.02)


def without_plain(record: TrialRecord) -> TrialRecord:
    """The record of a trial in which one device alone could not be measured."""
    assert record.steps is not None
    rounds = tuple(
        each.model_copy(update={"blocks": tuple(b for b in each.blocks if b.variant != "plain")})
        for each in record.steps.rounds
    )
    return record.model_copy(update={"result": record.steps.model_copy(update={"rounds": rounds})})


def test_parts_still_add_up_to_the_step() -> None:
    records = repeated(3, (1.0, 1.05, 1.12))
    found = waterfall_over_starts(records[0], records)
    assert found is not None
    step_s = scaling_over_starts(records[0], records).step_time_s
    assert found.step_time_s == step_s
    parts = found.parts.present()
    assert list(parts) == ["ideal", "contention", "wrapper", "skew", "exposed_communication"]
    assert sum(part.value for part in parts.values()) == pytest.approx(step_s.value)
    exposed = parts["exposed_communication"]
    assert exposed.starts == 3
    assert exposed.low < 0.0027 < exposed.high  # 2 to 3.6 ms, planted
    alone = waterfall(records[0])
    assert alone is not None
    assert alone.parts.exposed_communication is not None
    assert exposed.half_width > 3 * alone.parts.exposed_communication.half_width


def test_a_start_without_its_baseline_leaves_the_others_theirs() -> None:
    records = repeated(2)
    bare = run_all(FakeRunner(lambda config, setting: COSTS, seed=5), [request(start=2, variants=("ddp",))])[
        0
    ][0]
    asked = bare.request.model_copy(update={"variants": records[0].request.variants})  # type: ignore[union-attr]
    missing = bare.model_copy(update={"request": asked, "trial_id": asked.trial_id})
    found = scaling_over_starts(records[0], [*records, missing])
    assert found.step_time_s.starts == 3
    assert found.efficiency is not None
    assert found.efficiency.starts == 2


def test_a_row_of_the_summary_for_all_complete_starts_and_one_for_each_that_failed() -> None:
    first, second, _ = repeated(3)
    rows = summarize([first, second, failed(request(start=2))])
    assert [(row.trial_id, row.state, row.starts) for row in rows] == [
        (first.trial_id, "complete", 2),
        (request(start=2).trial_id, "oom", None),
    ]
    assert rows[0].wall_time_s == pytest.approx(first.wall_time_s + second.wall_time_s)

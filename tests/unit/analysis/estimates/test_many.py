"""Estimates of many trials at once are those of each trial alone."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np
import pytest

from raybench.analysis.estimates.efficiency import scaling
from raybench.analysis.estimates.many import geometrics, trimmed_means
from raybench.analysis.estimates.repeated import estimates_of_many
from raybench.analysis.estimates.statistics import device_factors, geometric, trimmed_mean
from raybench.analysis.estimates.waterfall import waterfall
from raybench.analysis.same_setting import Related
from raybench.records.record import TrialRecord
from raybench.spec import MeasureSpec, Setting
from tests.support.planted import FakeRunner, Noise, run_all
from tests.unit.studies import asked, study

SPEC = study(knobs={"batch_size": list(range(8, 128))}, scaling={"world_sizes": [1, 2, 4]})


def close(one: Any, other: Any) -> bool:
    """Whether two estimates, or what is made of them, are the same but for rounding."""
    if dataclasses.is_dataclass(one):
        names = [each.name for each in dataclasses.fields(one)]
        return type(one) is type(other) and all(close(getattr(one, n), getattr(other, n)) for n in names)
    if isinstance(one, float):
        return math.isclose(one, other, rel_tol=1e-9, abs_tol=1e-12)
    return bool(one == other)


def without(record: TrialRecord, variant: str, first: int) -> TrialRecord:
    """The record without blocks of a variant from its round ``first`` on."""
    assert record.steps is not None
    rounds = tuple(
        each
        if place < first
        else each.model_copy(update={"blocks": tuple(b for b in each.blocks if b.variant != variant)})
        for place, each in enumerate(record.steps.rounds)
    )
    return record.model_copy(update={"result": record.steps.model_copy(update={"rounds": rounds})})


def trials() -> list[TrialRecord]:
    """Trials of one, two and four devices, with few and with all variants, some with rounds cut short."""
    full = ("plain", "crowd", "local", "synced", "replay")
    kinds = [("search", 2, ("plain", "synced")), ("scaling", 4, full), ("scaling", 1, ("plain",))]
    requests = [
        asked(SPEC, role, Setting(batch_size=batch), size).model_copy(
            update={"variants": variants, "measure": MeasureSpec(min_rounds=10 + batch % 3, steps=3)}
        )
        for role, size, variants in kinds
        for batch in range(8, 28)
    ]
    records, _ = run_all(FakeRunner(noise=Noise(preemption=0.1), seed=4), requests, SPEC.name)
    for place, (variant, first) in enumerate((("plain", 5), ("plain", 1), ("crowd", 4), ("local", 0))):
        records[18 + place] = without(records[18 + place], variant, first)
    return records


def test_many_trials_are_estimated_as_each_alone() -> None:
    records = trials()
    scalings, waterfalls = estimates_of_many(records, Related(records))
    assert list(scalings) == [record.trial_id for record in records]
    assert len({each.efficiency.value for each in scalings.values() if each.efficiency}) > 40
    for record in records:
        assert close(scalings[record.trial_id], scaling(record, records)), record.trial_id
        assert close(waterfalls[record.trial_id], waterfall(record)), record.trial_id


@pytest.mark.parametrize("rounds", [2, 3, 4, 10, 41])
def test_rows_are_estimated_as_series(rounds: int) -> None:
    rows = np.random.default_rng(rounds).lognormal(0.0, 0.2, (50, rounds))
    rows[3] = 1.1  # without any noise: no interval
    for many, one in ((trimmed_means, trimmed_mean), (geometrics, geometric)):
        for row, found in zip(rows, many(rows).each(), strict=True):
            assert close(found, one(row))
    assert trimmed_means(rows).half_width[3] == 0


def test_devices_are_told_apart_in_each_row_alone() -> None:
    devices = [0, 1, 2] * 6
    rows = np.random.default_rng(1).lognormal(0.0, 0.01, (30, len(devices)))
    rows[::2, 1::3] *= 1.3
    factors = device_factors(rows, devices)
    assert factors.shape == rows.shape
    taken_out = (factors != 1).any(axis=1)
    assert taken_out[::2].all()
    assert taken_out[1::2].sum() <= 2  # alike: told apart in 3% of trials
    for row, found in zip(rows, factors, strict=True):
        assert found == pytest.approx(device_factors(row, devices))

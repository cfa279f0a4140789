"""What transfers and computing take from each other: planted, found again, and what follows of it."""

from __future__ import annotations

import pytest

from raybench.analysis.simulate.timeline import (
    BucketCap,
    Compute,
    Wire,
    assign,
    shared_cores,
    simulate,
)
from raybench.analysis.simulate.what_if import Change, Predicted, WhatIf, what_if
from raybench.records.measurements import Contention, ContentionTurn
from raybench.records.record import TrialRecord
from tests.unit.analysis.simulate.planted import (
    AFTER_S,
    BEFORE_S,
    BYTES,
    READY_S,
    S_PER_BYTE,
    exposed_s,
    trial,
)

TAKEN, HELD_BACK = 0.4, 0.2
LOCAL_S, REPLAY_S = BEFORE_S + READY_S[-1] + AFTER_S, S_PER_BYTE * sum(BYTES)


def side_by_side(
    computing: float = TAKEN, transfers: float = HELD_BACK, step_s: float = LOCAL_S
) -> Contention:
    """One step and one replay, begun at once: the shorter is slowed to its end, the longer as long."""
    slow_step_s, slow_replay_s = step_s / (1 - computing), REPLAY_S / (1 - transfers)
    if slow_step_s < slow_replay_s:
        slow_replay_s = REPLAY_S + transfers * slow_step_s
    else:
        slow_step_s = step_s + computing * slow_replay_s
    turn = ContentionTurn(
        step_s=step_s, replay_s=REPLAY_S, step_beside_s=slow_step_s, replay_beside_s=slow_replay_s
    )
    return Contention(turns=(turn,) * 4, steps_per_turn=1, replays_per_turn=1)


def crowded_step_s(cap: BucketCap) -> float:
    """The planted step: what a replay and steps side by side have shown, in DDP's schedule."""
    buckets = assign(BYTES, cap)
    compute = Compute(BEFORE_S, READY_S, 0.0, AFTER_S)
    wire = Wire(0.0, S_PER_BYTE, at_once=2, slowdown=TAKEN, held_back=HELD_BACK)
    return simulate(compute, buckets, [sum(BYTES[i] for i in each) for each in buckets], wire).step_s


def crowded(cap: BucketCap, contention: Contention | None) -> TrialRecord:
    record = trial(cap, extra_s=crowded_step_s(cap) - LOCAL_S - exposed_s(cap))
    return with_contention(record, contention)


def with_contention(record: TrialRecord, contention: Contention | None) -> TrialRecord:
    assert record.steps is not None
    assert record.steps.gradient_timeline is not None
    timeline = record.steps.gradient_timeline.model_copy(update={"contention": contention})
    result = record.steps.model_copy(update={"gradient_timeline": timeline})
    return record.model_copy(update={"result": result})


def asked(record: TrialRecord, cap: BucketCap) -> tuple[WhatIf, Predicted]:
    found = what_if(record, [Change(bucket_cap_mb=cap)])
    assert found is not None
    return found, found.points[0]


@pytest.mark.parametrize("step_s", [0.3 * REPLAY_S, 3 * REPLAY_S])
def test_the_planted_shares_are_found_again(step_s: float) -> None:
    found = shared_cores(side_by_side(step_s=step_s))
    assert found is not None
    assert found.computing.value == pytest.approx(TAKEN, abs=1e-9)
    assert found.transfers.value == pytest.approx(HELD_BACK, abs=1e-9)


def test_one_turn_says_nothing_and_a_gain_is_none() -> None:
    turns = side_by_side()
    assert shared_cores(turns.model_copy(update={"turns": turns.turns[:1]})) is None
    faster = shared_cores(side_by_side(computing=-0.1, transfers=-0.2))
    assert faster is not None
    assert (faster.computing.value, faster.transfers.high) == (0.0, 0.0)


@pytest.mark.parametrize("cap", [2.0, 4.0, 25.0])
def test_other_buckets_where_transfers_and_computing_share_cores(cap: BucketCap) -> None:
    truth_s = crowded_step_s(cap)
    assert truth_s > LOCAL_S + exposed_s(cap) or cap == 25.0  # one bucket has nothing beside it
    found, point = asked(crowded(1.0, side_by_side()), cap)
    assert point.step_time_s.value == pytest.approx(truth_s, rel=0.02)
    assert point.step_time_s.low <= truth_s <= point.step_time_s.high
    assert found.simulated_s == pytest.approx(crowded_step_s(1.0), rel=0.02)
    assert any("share cores" in note and "40%" in note and "20%" in note for note in found.notes)
    # without the measurement it has to be guessed from the one step, and any bucket is less sure
    guessed, blind = asked(crowded(1.0, None), cap)
    assert blind.gain.half_width > 1.2 * point.gain.half_width
    assert not any("share cores" in note for note in guessed.notes)


def test_what_the_simulation_misses_may_be_of_this_trial_alone() -> None:
    exact, off = (with_contention(trial(extra_s=extra_s), side_by_side(0.0, 0.0)) for extra_s in (0.0, 0.008))
    (_, narrow), (_, wide) = asked(exact, 1.0), asked(off, 1.0)
    without_s = LOCAL_S + exposed_s(1.0)
    assert narrow.step_time_s.low < without_s < narrow.step_time_s.high
    assert wide.step_time_s.value == pytest.approx(without_s + 0.008, rel=0.02)
    assert wide.step_time_s.low < without_s

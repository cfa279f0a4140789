"""What one planted trial says of the others."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from raybench.analysis.collectives import links, messages
from raybench.analysis.resolve import resolve
from raybench.analysis.scaling import Fit
from raybench.analysis.simulate.network import KNOWN_WITHIN, replay_s, wire_of
from raybench.analysis.simulate.timeline import best_caps
from raybench.analysis.simulate.what_if import Change, Predicted, WhatIf, can_be_asked, study_what_if, what_if
from raybench.errors import RequestError
from raybench.records.record import TrialRecord
from raybench.spec.knobs import Setting
from raybench.spec.study import Study
from tests.support.planted import QUIET, FakeLink, StepCosts
from tests.unit.analysis.simulate.planted import (
    AFTER_S,
    BEFORE_S,
    BURSTS,
    BYTES,
    READY_S,
    S_PER_BYTE,
    exposed_s,
    trial,
    trial_in_bursts,
)
from tests.unit.studies import measured, study
from tests.unit.sweeps import swept

LOCAL_S = BEFORE_S + READY_S[-1] + AFTER_S


def predicted(record: TrialRecord, *changes: Change, others: tuple[TrialRecord, ...] = ()) -> list[Predicted]:
    found = what_if(record, changes, Fit([record, *others]))
    assert found is not None
    return list(found.points)


def chosen_by(spec: Study, *records: TrialRecord) -> WhatIf | None:
    return study_what_if(resolve(spec, records))


@pytest.mark.promise("what if")
@pytest.mark.parametrize("cap", [1.0, 2.0, 4.0, 25.0, "default"])
@pytest.mark.parametrize("timeline_factor", [1.0, 1.3])
def test_other_buckets_on_a_link_without_latency(cap: float | str, timeline_factor: float) -> None:
    record = trial(timeline_factor=timeline_factor)
    (point,) = predicted(record, Change(bucket_cap_mb=cap))
    truth_s = LOCAL_S + exposed_s(cap)
    # the latency is assumed, as one replay does not tell it
    assert point.step_time_s.value == pytest.approx(truth_s, rel=0.02)
    assert point.step_time_s.low <= truth_s <= point.step_time_s.high


def test_the_trial_itself_is_what_was_measured() -> None:
    record = trial(2.0, extra_s=0.007)
    (point,) = predicted(record, Change(bucket_cap_mb=2.0))
    assert point.step_time_s.value == pytest.approx(LOCAL_S + exposed_s(2.0) + 0.007, rel=1e-3)
    assert point.error == pytest.approx(0.0, abs=1e-3)
    assert point.gain.value == pytest.approx(0.0, abs=1e-3)


def test_a_cap_that_no_bucket_reaches_changes_nothing() -> None:
    record = trial(25.0)
    same, other = predicted(record, Change(bucket_cap_mb=100.0), Change(bucket_cap_mb=1.0))
    assert (same.gain.low, same.gain.high) == pytest.approx((0.0, 0.0), abs=1e-3)
    assert other.gain.half_width > 0.01


def test_what_does_not_change_has_the_interval_of_two_trials() -> None:
    """However much the steps with marks differ from those of the rounds."""
    record = trial(25.0, timeline_factor=0.5)
    (same,) = predicted(record, Change(bucket_cap_mb=100.0))
    of_one = Fit([record]).scaling(record).step_time_s.log_half_width
    assert same.step_time_s.log_half_width == pytest.approx(math.sqrt(2) * of_one)


def test_what_the_simulation_misses_is_carried_along_and_widens_the_interval() -> None:
    exact, off = (trial(extra_s=extra_s) for extra_s in (0.0, 0.008))
    widths = []
    for record, missed_s in ((exact, 0.0), (off, 0.008)):
        (point,) = predicted(record, Change(bucket_cap_mb=1.0))
        assert point.step_time_s.low <= LOCAL_S + exposed_s(1.0) + missed_s <= point.step_time_s.high
        widths.append(point.gain.half_width)
    assert widths[1] > 1.2 * widths[0]


def test_a_link_of_another_rate_and_half_the_bytes() -> None:
    payload = 1448 / 1514
    bits_per_s = 8 / (S_PER_BYTE / 2) / payload  # twice the planted rate: two devices send each byte once
    point, halved = predicted(
        trial(), Change(link_bits_per_s=bits_per_s), Change(gradient_compression="fp16")
    )
    truth_s = LOCAL_S + exposed_s("default", S_PER_BYTE / 2)
    assert point.step_time_s.value == pytest.approx(truth_s, rel=0.02)
    assert point.measured_s is None
    assert halved.step_time_s.value == pytest.approx(truth_s, rel=0.02)  # without copies to pay for


def test_the_interval_of_another_link_holds_its_rate_and_a_faster_one_the_measured() -> None:
    payload = 1448 / 1514
    faster, slower = (
        predicted(trial(), Change(link_bits_per_s=factor * 8 / S_PER_BYTE / payload))[0]
        for factor in (10.0, 0.25)
    )
    as_it_is = LOCAL_S + exposed_s("default")
    assert faster.step_time_s.low < faster.step_time_s.value < as_it_is * 0.9
    assert faster.step_time_s.high > as_it_is * 0.99  # where something else than the link is the limit
    ends = [LOCAL_S + exposed_s("default", 4 * S_PER_BYTE * factor) for factor in (0.95, 1.05)]
    assert slower.step_time_s.low < ends[0] < slower.step_time_s.value < ends[1] < slower.step_time_s.high


@pytest.mark.parametrize(("element_bytes", "share"), [(2, 1.0), (4, 0.5), (8, 0.25)])
def test_compression_saves_what_the_gradients_type_leaves(element_bytes: int, share: float) -> None:
    record = trial()
    assert record.steps is not None
    assert record.steps.gradient_timeline is not None
    timeline = record.steps.gradient_timeline.model_copy(update={"element_bytes": element_bytes})
    result = record.steps.model_copy(update={"gradient_timeline": timeline})
    (point,) = predicted(record.model_copy(update={"result": result}), Change(gradient_compression="bf16"))
    truth_s = LOCAL_S + exposed_s("default", S_PER_BYTE * share)
    assert point.step_time_s.value == pytest.approx(truth_s, rel=0.02)


def test_gradients_that_are_not_compressed_any_more_come_back_all_the_same() -> None:
    """The timeline is of steps without transfers, where nothing is cast."""
    tail_s, record = 0.008, trial(gradient_compression="fp16", extra_s=0.008)
    assert record.steps is not None
    assert record.steps.gradient_timeline is not None
    timeline = record.steps.gradient_timeline.model_copy(update={"backward_s": READY_S[-1] + tail_s})
    result = record.steps.model_copy(update={"gradient_timeline": timeline})
    changed = record.model_copy(update={"result": result})
    (point,) = predicted(changed, Change(gradient_compression="none"))
    # never less than the step without transfers, at the level of its rounds
    assert point.step_time_s.value - point.exposed_s == pytest.approx(LOCAL_S, rel=0.01)


def strong(record: TrialRecord) -> TrialRecord:
    """The same trial, its batch that of both devices."""
    config = record.config.model_copy(
        update={"scaling": "strong", "setting": record.config.setting.model_copy(update={"batch_size": 64})}
    )
    return record.model_copy(update={"request": record.request.model_copy(update={"config": config})})


@pytest.mark.parametrize(
    "change", [Change(batch_size=1), Change(batch_size=7), Change(gradient_accumulation=3)]
)
def test_a_global_batch_that_devices_do_not_divide_is_refused(change: Change) -> None:
    with pytest.raises(RequestError, match=r"a multiple of 2 devices.* \(received"):
        predicted(strong(trial(batch_size=32)), change)
    (point,) = predicted(strong(trial(batch_size=32)), Change(batch_size=128))
    assert point.throughput_samples_per_s.value == pytest.approx(128 / point.step_time_s.value)


def test_batch_in_proportion_or_by_a_second_batch() -> None:
    record = trial(batch_size=32)
    (point,) = predicted(record, Change(batch_size=64))
    ready_s = [2 * each for each in READY_S]
    truth_s = 2 * BEFORE_S + ready_s[-1] + AFTER_S + exposed_s("default", ready_s=ready_s)
    assert point.step_time_s.value == pytest.approx(truth_s, rel=0.02)
    assert point.gain.half_width > 0.1
    # one device took half as long again, not twice: 0.048 s of passes become 0.072 s, and so 0.096 s at 96
    alone = {size: 0.046 * (1 + (size - 32) / 64) + AFTER_S for size in (32, 64)}
    other = measured(StepCosts(plain_s=alone[64]), QUIET, setting=Setting(batch_size=64))
    for batch in (64, 96):
        (known,) = predicted(record, Change(batch_size=batch), others=(other,))
        factor = 1 + (batch - 32) / 64
        ready_s = [factor * each for each in READY_S]
        truth_s = factor * BEFORE_S + ready_s[-1] + AFTER_S + exposed_s("default", ready_s=ready_s)
        assert known.step_time_s.value == pytest.approx(truth_s, rel=0.02)
        assert known.throughput_samples_per_s.value == pytest.approx(2 * batch / truth_s, rel=0.02)


def test_micro_batches_synchronise_once() -> None:
    (point,) = predicted(trial(), Change(gradient_accumulation=4))
    truth_s = LOCAL_S + exposed_s("default") + 3 * (BEFORE_S + READY_S[-1])
    assert point.step_time_s.value == pytest.approx(truth_s, rel=0.01)
    assert point.throughput_samples_per_s.value == pytest.approx(4 * 2 * 32 / truth_s, rel=0.01)


def test_latency_from_replays_of_different_buckets() -> None:
    latency_s = 0.003

    def replayed(cap: float) -> TrialRecord:
        record = trial(cap)
        assert record.steps is not None
        count = len(record.steps.bucket_bytes)
        costs = StepCosts(plain_s=0.1, replay_s=latency_s * count / 2 + S_PER_BYTE * sum(BYTES))
        rounds = measured(costs, QUIET).steps
        assert rounds is not None
        result = record.steps.model_copy(update={"rounds": rounds.rounds})
        return record.model_copy(update={"result": result, "ranks": (0, 1)})

    one, other = replayed(1.0), replayed(25.0)
    found = wire_of(one, [other])
    assert found is not None
    # many small buckets take turns two by two: the latency is within a fifth of the planted one
    assert found.wire.latency_s == pytest.approx(latency_s, rel=0.2)
    assert found.wire.s_per_byte == pytest.approx(S_PER_BYTE, rel=0.1)
    alone = wire_of(one)
    assert alone is not None
    assert alone.latency_half > found.latency_half
    # either way the trial's own replay comes out again
    sizes = one.steps.bucket_bytes if one.steps else ()
    for wire in (found.wire, alone.wire):
        truth_s = latency_s * len(sizes) / 2 + S_PER_BYTE * sum(BYTES)
        assert replay_s(sizes, wire) == pytest.approx(truth_s, rel=1e-3)


def test_latency_from_a_sweep() -> None:
    planted = FakeLink(latency_s=0.0004, bandwidth_bytes_per_s=1 / S_PER_BYTE)
    records, _ = swept(planted)
    record = trial().model_copy(update={"nodes": records[0].nodes})
    lines = links(messages(records))
    found = wire_of(record, links=lines)
    assert found is not None
    # of two placements with equally many nodes the first counts
    spread = [replace(each, line=(1.0, 1.0), latency_s=None) for each in lines]
    assert wire_of(record, links=[*lines, *spread]) == found
    assert found.latency_half < KNOWN_WITHIN
    ratio = found.wire.latency_s / found.wire.s_per_byte
    assert ratio == pytest.approx(0.0004 / S_PER_BYTE, rel=0.5)


def test_the_buckets_that_a_study_would_choose_by_its_first_trial() -> None:
    spec = study(knobs={"bucket_cap_mb": ["default", 1, 2, 25]})
    chosen = chosen_by(spec, trial())
    assert chosen is not None
    best = min((exposed_s(cap), str(cap)) for cap in ("default", 1.0, 2.0, 25.0))
    first = min(chosen.points, key=lambda each: each.step_time_s.value)
    assert str(first.setting.bucket_cap_mb) == best[1]
    assert chosen_by(spec, trial(1.0)) is None  # no trial of the default


def test_an_oversubscribed_trial_is_not_asked() -> None:
    record = trial()
    config = record.config.model_copy(update={"oversubscribed": True})
    crowded = record.model_copy(update={"request": record.request.model_copy(update={"config": config})})
    assert not can_be_asked(crowded)
    assert can_be_asked(record)


def test_a_trial_that_was_not_taken_apart_says_nothing() -> None:
    plain = measured(StepCosts(plain_s=0.01), QUIET)
    assert what_if(plain, [Change(bucket_cap_mb=1.0)], Fit([plain])) is None
    assert chosen_by(study(), plain) is None


GPUS = study(resources={"device": "cuda"}, scaling={"world_sizes": [2]})


def test_a_list_of_sizes_is_proposed_where_it_is_certainly_faster_than_any_single_one() -> None:
    records = [trial_in_bursts(), trial_in_bursts(1.0)]  # two replays, which tell the latency
    found = chosen_by(GPUS, *records)
    assert found is not None
    assert found.listed is not None
    single, best = best_caps(BURSTS)
    assert found.listed.is_proposed
    assert (found.listed.single, found.listed.point.setting.bucket_cap_mb) == (single, best)
    truth = BURSTS.simulated_s(single) / BURSTS.simulated_s(best) - 1
    assert found.listed.gain.value == pytest.approx(truth, abs=0.01)
    row = found.points[-1]
    assert row.setting.bucket_cap_mb == best
    assert row.step_time_s.low < BURSTS.simulated_s(best) < row.step_time_s.high
    assert min(each.step_time_s.value for each in found.points) == row.step_time_s.value
    assert row.gain.low > 0
    assert row.measured_s is None


def test_a_list_that_was_tested_is_the_one_in_the_table() -> None:
    records = [trial_in_bursts(), trial_in_bursts(1.0), trial_in_bursts("1/5/15", role="verification")]
    found = chosen_by(GPUS, *records)
    assert found is not None
    row = found.points[-1]
    assert row.setting.bucket_cap_mb == "1/5/15"
    assert row.error == pytest.approx(0.0, abs=0.02)


def test_without_the_latency_no_list_is_certainly_faster() -> None:
    record = trial_in_bursts()
    found = chosen_by(GPUS, record)
    assert found is not None
    assert found.listed is not None
    assert not found.listed.is_proposed
    assert all(not each.setting.has_bucket_list for each in found.points)


@pytest.mark.parametrize("knob", ["find_unused_parameters", "static_graph", "compile"])
def test_no_list_where_ddp_does_not_fill_it_in_the_order_of_the_gradients(knob: str) -> None:
    record = trial(**{knob: True})
    found = what_if(record, [Change(bucket_cap_mb=1.0)], Fit([record]), with_list=True)
    assert found is not None
    assert found.listed is None

"""A larger batch, predicted from what was measured: the truth lies between the bounds."""

from __future__ import annotations

from dataclasses import replace

import pytest

from raybench.analysis.findings.batch import LargerBatch, larger_batch
from raybench.analysis.findings.case import Case
from raybench.analysis.scaling import scaling
from raybench.records.record import TrialRecord
from raybench.records.requests import Configuration
from raybench.spec import Setting
from tests.support.alone import waterfall
from tests.support.planted import FakeHardware, FakeRunner, Noise, StepCosts, truth
from tests.unit.studies import config, grid, peers, study

HARDWARE = [
    FakeHardware(fixed_s=0.001, sample_s=0.0002, gradient_bytes=8 << 20, latency_s=0.001),
    FakeHardware(fixed_s=0.004, sample_s=0.0001, contention=0.1, bandwidth_bytes_per_s=1e9),
    FakeHardware(fixed_s=0.0005, sample_s=0.0004, wrapper_s=0.004, gradient_bytes=64 << 20),
]
STEADY = Noise(block=0.005, step=0.0)


def predicted(hardware: FakeHardware, batches: list[int], peak: bool = False) -> LargerBatch | None:
    """What is proposed for the smallest batch, by trials of ``batches`` on four devices."""
    spec = study(knobs={"batch_size": batches}, measure={"half_width": 0.02})
    records = grid(spec, [4], FakeRunner(hardware.costs, STEADY, seed=3))[0]
    records = [_with_peak(record, hardware) if peak else record for record in records]
    first = records[0]
    assert first.steps is not None
    return larger_batch(Case(first, first.steps, scaling(first), waterfall(first), peers(records)))


def _with_peak(record: TrialRecord, hardware: FakeHardware) -> TrialRecord:
    """What a sample's arithmetic takes at the peak is four fifths of what it takes."""
    assert record.steps is not None
    told = {
        "flops_per_step": 0.8 * hardware.sample_s * record.config.batch_size * 1e12,
        "matrix_peak_flops_per_s": 1e12,
    }
    return record.model_copy(update={"result": record.steps.model_copy(update=told)})


def rate(hardware: FakeHardware, batch: int) -> float:
    """The truth: samples/s of a device."""
    asked = config(world_size=4, setting=Setting(batch_size=batch))
    return batch / truth(hardware.costs(asked, asked.setting), asked)["step_time_s"]


def alone_s(hardware: FakeHardware, batch: int) -> float:
    """The truth: the step of one device."""
    asked = config(world_size=4, setting=Setting(batch_size=batch))
    return hardware.costs(asked, asked.setting).plain_s


@pytest.mark.parametrize("hardware", HARDWARE, ids=["latency", "bandwidth", "wrapper"])
@pytest.mark.parametrize(("batches", "peak"), [([16], False), ([16], True), ([16, 32], False)])
def test_the_truth_lies_between_the_bounds(hardware: FakeHardware, batches: list[int], peak: bool) -> None:
    found = predicted(hardware, batches, peak)
    assert found is not None
    gain = rate(hardware, found.batch_size) / rate(hardware, 16)
    # the half-width of the measurement on both sides
    assert found.throughput_ratio.low * 0.98 <= gain <= found.throughput_ratio.high * 1.02
    efficiency = rate(hardware, found.batch_size) / found.batch_size * alone_s(hardware, found.batch_size)
    assert found.efficiency.low * 0.98 <= efficiency <= found.efficiency.high * 1.02


def test_more_that_is_known_makes_the_bounds_narrower() -> None:
    widths = []
    for batches, peak in (([16], False), ([16], True), ([16, 32], False)):
        found = predicted(HARDWARE[0], batches, peak)
        assert found is not None
        widths.append(found.efficiency.high / found.efficiency.low)
    assert widths[0] > widths[1] > widths[2]


def test_no_larger_batch_is_proposed_where_it_would_not_help() -> None:
    contended = replace(
        HARDWARE[0], contention=0.3, latency_s=1e-6, fixed_s=1e-5, wrapper_s=1e-5, gradient_bytes=1024
    )
    assert predicted(contended, [64]) is None


@pytest.mark.parametrize("low", [0.0, -0.2])
def test_an_efficiency_that_may_be_nothing_bounds_nothing(low: float) -> None:
    spec = study(knobs={"batch_size": [16, 32]}, measure={"half_width": 0.02})
    records = grid(spec, [4], FakeRunner(HARDWARE[0].costs, STEADY, seed=3))[0]
    first, found = records[0], scaling(records[0])
    assert first.steps is not None
    assert found.efficiency is not None
    unsure = replace(found, efficiency=replace(found.efficiency, low=low))
    case = Case(first, first.steps, unsure, waterfall(first), peers(records))
    assert larger_batch(case) is None


@pytest.mark.parametrize("hardware", HARDWARE, ids=["latency", "bandwidth", "wrapper"])
def test_nothing_is_predicted_between_measured_batches(hardware: FakeHardware) -> None:
    alone = predicted(hardware, [8])
    assert alone is not None
    between = predicted(hardware, [8, 2 * alone.batch_size])
    assert between is None or between.batch_size > 2 * alone.batch_size
    beyond = predicted(hardware, [8, 16])
    assert beyond is not None
    assert beyond.batch_size > 16


def test_a_measured_larger_batch_that_brings_nothing_contradicts_the_prediction() -> None:
    """What is predicted of batch 16 alone is not advised where batch 64 was measured, no more efficient."""
    spec = study(knobs={"batch_size": [16, 64]}, measure={"half_width": 0.02})

    def costs(config: Configuration, setting: Setting) -> StepCosts:
        plain_s = 0.0005 * setting.batch_size
        return StepCosts(plain_s=plain_s, exposed_s=0.5 * plain_s)  # grows with the batch, as nobody predicts

    small, large = grid(spec, [4], FakeRunner(costs, STEADY, seed=3))[0]
    assert small.steps is not None
    alone = Case(small, small.steps, scaling(small), waterfall(small), peers([small]))
    assert larger_batch(alone) is not None
    together = replace(alone, peers=peers([small, large]))
    assert larger_batch(together) is None


def test_a_measured_larger_batch_that_is_no_faster_contradicts_it_too() -> None:
    """Batch 64 is more efficient and has fewer samples/s: a sample takes longer on one device too."""
    spec = study(knobs={"batch_size": [16, 64]}, measure={"half_width": 0.02})

    def costs(config: Configuration, setting: Setting) -> StepCosts:
        plain_s = 0.004 if setting.batch_size == 16 else 0.032
        return StepCosts(plain_s=plain_s, exposed_s=0.002)

    small, large = grid(spec, [4], FakeRunner(costs, STEADY, seed=3))[0]
    assert small.steps is not None
    case = Case(small, small.steps, scaling(small), waterfall(small), peers([small]))
    assert larger_batch(case) is not None
    assert larger_batch(replace(case, peers=peers([small, large]))) is None

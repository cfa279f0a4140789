"""Trials on devices of another kind than the headline's are named."""

from __future__ import annotations

from raybench.analysis import analyse
from raybench.analysis.findings.finding import FindingName, Severity
from raybench.report.finding_texts import evidence
from tests.support.planted import FakeRunner, Noise
from tests.unit.studies import grid, study

STEADY = Noise(block=0.005, step=0.002)


def test_trials_on_another_kind_of_device_are_named() -> None:
    """As on a cluster of two: what the settings differ by may be the devices."""
    spec = study(knobs={"batch_size": [64, 128]})
    records = [
        each.model_copy(update={"device_name": "NVIDIA H200"})
        for each in grid(spec, (1, 2), FakeRunner(noise=STEADY))[0]
    ]
    assert FindingName.SEVERAL_DEVICES not in {each.name for each in analyse(spec, records).diagnosis}
    *same, other, unknown = records
    moved = [
        *same,
        other.model_copy(update={"device_name": "NVIDIA A100"}),
        unknown.model_copy(update={"device_name": None}),
    ]
    (told,) = [e for e in analyse(spec, moved).diagnosis if e.name is FindingName.SEVERAL_DEVICES]
    assert told.severity is Severity.WARNING
    assert told.trial_id == other.trial_id
    assert told.values == {"trials": 1}
    assert evidence(told) == "1 trial ran on NVIDIA A100, and the default on NVIDIA H200"

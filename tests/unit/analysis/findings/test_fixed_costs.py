"""Busy devices that compute little, and idle ones."""

from __future__ import annotations

from typing import Any

import pytest

from raybench.analysis.findings.diagnose import findings
from raybench.analysis.findings.finding import Finding, FindingName, Severity
from raybench.report.finding_texts import evidence
from raybench.spec import Setting
from tests.support.planted import QUIET, StepCosts
from tests.unit.studies import measured

PEAK = 100e12  # FLOP/s


def on_gpus(busy: float, flops_share: float, **fields: Any) -> dict[FindingName, Finding]:
    """Of two GPUs that are so busy in a step of 10 ms, with so much of the matrix peak."""
    costs = StepCosts(plain_s=0.010, utilization=busy)
    record = measured(costs, QUIET, device="cuda", **fields)
    assert record.steps is not None
    told = {"flops_per_step": flops_share * PEAK * 0.010, "matrix_peak_flops_per_s": PEAK}
    found = findings(record.model_copy(update={"result": record.steps.model_copy(update=told)}))
    return {each.name: each for each in found}


def test_gpus_that_are_busy_with_little_arithmetic_are_memory_bound() -> None:
    finding = on_gpus(0.97, 0.12)[FindingName.MEMORY_BOUND]
    assert finding.severity is Severity.NOTE
    assert finding.values["flops_share"] == pytest.approx(0.12, rel=0.02)
    assert "busy for 97% of the time at 12" in evidence(finding)
    assert "matrix peak of 100.0 TFLOP/s" in evidence(finding)
    assert finding.change == {"compile": True}
    compiled = on_gpus(0.97, 0.12, setting=Setting(compile=True))
    assert compiled[FindingName.MEMORY_BOUND].change is None


@pytest.mark.parametrize(("busy", "flops_share"), [(0.97, 0.40), (0.80, 0.12)])
def test_gpus_that_compute_or_wait_are_not(busy: float, flops_share: float) -> None:
    assert FindingName.MEMORY_BOUND not in on_gpus(busy, flops_share)


def test_gpus_that_wait_are_launch_bound_whatever_they_compute() -> None:
    found = on_gpus(0.55, 0.12)
    assert FindingName.MEMORY_BOUND not in found
    finding = found[FindingName.LAUNCH_BOUND]
    assert finding.explains is not None
    assert finding.explains.value == pytest.approx(0.45 * 0.010, rel=0.02)
    assert finding.predicted is not None
    assert finding.predicted.high == pytest.approx(1 / 0.55, rel=0.02)

"""Strategies compared, and whether their losses agree with one device's."""

from __future__ import annotations

import pytest

from raybench.analysis.findings.finding import FindingName, Severity
from raybench.analysis.parity import parity_verdict
from raybench.records.record import TrialRecord
from tests.support.alone import findings, waterfall
from tests.unit.strategies import strategy_record


def test_the_waterfall_of_fsdp_has_no_parts_that_it_does_not_have():
    found = waterfall(strategy_record("fsdp", 2))
    assert found is not None
    assert list(found.parts.present()) == ["ideal", "small_batch", "undivided"]
    assert sum(part.value for part in found.parts.present().values()) == pytest.approx(
        found.step_time_s.value
    )


@pytest.mark.parametrize(
    ("knobs", "off", "agrees"),
    [
        ({}, 0.001, True),
        ({}, 0.002, False),
        ({"precision": "bf16"}, 0.02, True),
        ({"precision": "bf16"}, 0.04, False),
        ({"gradient_compression": "fp16"}, 0.02, True),
        ({}, None, False),  # it was not finite
    ],
)
def test_losses_agree_within_the_tolerance_of_the_coarsest_type(knobs, off, agrees):
    verdict = parity_verdict(strategy_record("ddp", 2, off=off, **knobs))
    assert verdict is not None
    assert verdict.agrees is agrees


def test_a_difference_of_losses_or_of_the_first_gradient_is_found():
    def found(each: TrialRecord) -> list[Severity]:
        return [f.severity for f in findings(each) if f.name is FindingName.LOSSES_DISAGREE]

    assert found(strategy_record("fsdp", 2)) == []
    assert found(strategy_record("fsdp", 2, off=0.5)) == [Severity.PROBLEM]
    assert found(strategy_record("fsdp", 2, gradient=1e-6)) == []
    assert found(strategy_record("fsdp", 2, gradient=0.7)) == [Severity.PROBLEM]

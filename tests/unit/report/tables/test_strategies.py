"""Strategies side by side: rows, parity, findings, and the waterfall of those without a wrapper."""

from __future__ import annotations

import pytest

from raybench.analysis import FindingName, Severity, analyse, loss_parity
from raybench.analysis.diagnosis.stability import findings
from raybench.analysis.estimates.waterfall import waterfall
from raybench.records.measurements import LossParity
from raybench.records.record import TrialRecord
from raybench.report.answer import answer_of
from raybench.report.tables.tables import compression_table, strategies_table
from raybench.spec import Setting
from raybench.testing import StepCosts
from tests.unit.studies import measured, study

COSTS = StepCosts(plain_s=0.010, base_s=0.020, exposed_s=0.002)


def record(
    strategy: str,
    size: int,
    *,
    off: float | None = 0.0,
    gradient: float | None = None,
    why: tuple[str, ...] = (),
    **knobs: object,
) -> TrialRecord:
    variants = ("plain",) if size == 1 else ("base", "plain", "synced")
    setting = Setting.model_validate({"strategy": strategy, "batch_size": 64} | knobs)
    made = measured(COSTS, setting=setting, world_size=size, scaling="strong", variants=variants)
    assert made.steps is not None
    parity = None
    if size > 1:
        parity = LossParity(
            samples_per_step=64,
            losses=(2.0, None if off is None else 1.5 + off, 1.0),
            reference_losses=(2.0, 1.5, 1.0),
            gradient_difference=gradient,
            may_differ=why,
        )
    measurement = made.steps.model_copy(
        update={"parity": parity, "compression_error": 0.002 if "gradient_compression" in knobs else None}
    )
    return made.model_copy(update={"measurement": measurement})


STUDY = study(knobs={"strategy": ["single", "ddp", "fsdp"], "batch_size": 64}, scaling={"mode": "strong"})


def test_a_study_of_several_strategies_has_a_row_for_each():
    results = analyse(
        STUDY, [record("single", 1), record("ddp", 2), record("fsdp", 2, off=0.5, gradient=0.1)]
    )
    assert [(r.record.config.world_size, r.record.config.setting.strategy) for r in results.strategies] == [
        (1, "single"),
        (2, "ddp"),
        (2, "fsdp"),
    ]
    one, ddp, fsdp = strategies_table(results).rows
    assert (one[1], one[7]) == ("single", "")
    assert ddp[7] == "agrees: 0 of 0.001 in 3 steps"
    assert fsdp[7] == "differs: 0.3 of 0.001 in 3 steps, gradient 0.1 of 0.001"
    assert all(row[2] == "64" and row[6] == "1,024" for row in (one, ddp, fsdp))
    assert not compression_table(results).rows
    assert "not taken apart" in answer_of(results) or "nothing lost" in answer_of(results)


def test_a_study_of_one_strategy_has_no_such_table():
    results = analyse(study(knobs={"batch_size": 64}, scaling={"mode": "strong"}), [record("ddp", 2)])
    assert results.strategies == ()
    assert strategies_table(results).rows == ()


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
    verdict = loss_parity(record("ddp", 2, off=off, **knobs))
    assert verdict is not None
    assert verdict.agrees is agrees


def test_a_difference_is_a_problem_unless_the_model_explains_it():
    def found(each: TrialRecord) -> list[Severity]:
        return [f.severity for f in findings(each) if f.name is FindingName.LOSSES_DISAGREE]

    assert found(record("fsdp", 2)) == []
    assert found(record("fsdp", 2, off=0.5)) == [Severity.PROBLEM]
    assert found(record("fsdp", 2, gradient=1e-6)) == []
    assert found(record("fsdp", 2, gradient=0.7)) == [Severity.PROBLEM]
    assert found(record("ddp", 2, off=0.5, why=("compiled code draws dropout's masks anew",))) == [
        Severity.NOTE
    ]


def test_the_waterfall_of_fsdp_has_no_parts_that_it_does_not_have():
    found = waterfall(record("fsdp", 2))
    assert found is not None
    assert list(found.parts.present()) == ["ideal", "small_batch", "undivided"]
    assert found.notes == ("fsdp has no DDP wrapper and no buckets: what is lost is not taken apart",)
    assert sum(part.value for part in found.parts.present().values()) == pytest.approx(
        found.step_time_s.value
    )


def test_compression_is_told_with_its_error():
    spec = study(knobs={"gradient_compression": ["none", "fp16"]}, scaling={"mode": "strong"})
    (row,) = compression_table(analyse(spec, [record("ddp", 2, gradient_compression="fp16")])).rows
    assert row[2:] == ("fp16", "0.002")

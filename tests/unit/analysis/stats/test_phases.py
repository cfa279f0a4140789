"""Phases of a step on one device and on several, against numbers worked out by hand."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from raybench.analysis.phases import SYNCHRONIZATION, PhaseTable, phase_table
from raybench.analysis.scaling import Fit
from raybench.machine.environment import Spreads
from raybench.records.record import TrialRecord
from raybench.spec.knobs import Setting
from raybench.spec.workloads import ScriptSpec
from tests.support.planted import QUIET, StepCosts
from tests.unit.studies import SIXTEEN_TENTHS, exactly, measured


def table(record: TrialRecord, others: Sequence[TrialRecord] = ()) -> PhaseTable | None:
    fit = Fit([record, *others])
    return phase_table(record, fit.scaling(record), fit.waterfall(record), others)


def test_phases_of_one_and_two_devices_share_the_gain() -> None:
    found = table(measured(SIXTEEN_TENTHS, QUIET))
    assert found is not None
    rows = {row.name: row for row in found.rows}
    assert found.samples == 64
    forward, sync = rows["forward"], rows[SYNCHRONIZATION]
    assert forward.one_s is not None
    assert forward.many_s is not None
    assert forward.speedup is not None
    assert (forward.one_s.value, forward.many_s.value) == pytest.approx((0.003, 0.00345))
    assert forward.speedup.value == pytest.approx(6 / 3.45)
    assert sync.many_s is not None
    assert sync.many_s.value == pytest.approx(0.001)
    assert sync.one_s is sync.speedup is None
    shares = {name: row.share_of_gain.value for name, row in rows.items() if row.share_of_gain}
    assert shares["forward"] == pytest.approx((6 - 3.45) / 7.5)
    assert shares["backward"] == pytest.approx((12 - 6.9) / 7.5)
    assert shares[SYNCHRONIZATION] == pytest.approx(-1 / 7.5)
    assert sum(shares.values()) == pytest.approx(1)
    assert found.total.speedup is not None
    assert found.total.speedup.value == pytest.approx(1.6)
    together = found.backward_with_synchronization.many_s
    assert together is not None
    assert together.value == pytest.approx(0.0079)
    assert sum(row.many_s.value for row in found.rows if row.many_s) == pytest.approx(0.0125)


def test_phases_of_a_noisy_trial_still_add_up() -> None:
    found = table(measured(SIXTEEN_TENTHS))
    assert found is not None
    assert found.total.many_s is not None
    assert sum(row.many_s.value for row in found.rows if row.many_s) == pytest.approx(
        found.total.many_s.value
    )
    shares = [row.share_of_gain.value for row in found.rows if row.share_of_gain]
    assert sum(shares) == pytest.approx(1)
    forward = found.rows[1].many_s
    assert forward is not None
    assert forward.low < 0.00345 < forward.high


def test_phases_in_strong_scaling_take_the_one_device_trial() -> None:
    costs = StepCosts(plain_s=0.010, base_s=0.018, exposed_s=0.002)
    fields: dict[str, Any] = {"scaling": "strong", "setting": Setting(batch_size=64)}
    two = measured(costs, QUIET, **fields)
    alone = StepCosts(plain_s=0.018, base_s=0.018)
    one = measured(
        alone, QUIET, **{**fields, "world_size": 1, "setting": Setting(batch_size=64, strategy="single")}
    )
    assert table(two) is None  # nobody has timed the phases of the global batch
    found = table(two, [one])
    assert found is not None
    assert found.rows[1].one_s is not None
    assert found.rows[1].one_s.value == pytest.approx(0.3 * 0.009)
    assert found.total.one_s is not None
    assert found.total.one_s.value == pytest.approx(0.009)


def shown(record: TrialRecord, variants: Sequence[str], *phases: str) -> TrialRecord:
    """The record with the blocks of phases of ``variants``, without ``phases``."""
    assert record.steps is not None
    blocks = tuple(
        block.model_copy(
            update={"seconds": {name: s for name, s in block.seconds.items() if name not in phases}}
        )
        for block in record.steps.phases
        if block.variant in variants
    )
    return record.model_copy(update={"result": record.steps.model_copy(update={"phases": blocks})})


def test_phases_of_a_script_on_one_device_are_in_a_trial_of_their_own() -> None:
    costs = StepCosts(plain_s=0.010, exposed_s=0.002)
    fields: dict[str, Any] = {"workload": ScriptSpec(script="train.py", args="--bs {batch_size}")}
    two = shown(measured(costs, QUIET, **fields, variants=("local", "ddp")), ["local"])
    one = measured(costs, QUIET, **fields, world_size=1, variants=("plain",))
    assert table(two) is None
    found = table(two, [one])
    assert found is not None
    assert found.rows[1].one_s is not None
    assert found.rows[1].one_s.value == pytest.approx(0.3 * 0.010)
    # without DDP on one device forward and backward are in its "other"
    assert table(two, [shown(one, ["plain"], "forward", "backward")]) is None


@pytest.mark.parametrize("scaling", ["weak", "strong"])
def test_phases_and_waterfall_have_one_base(scaling: str) -> None:
    """Transfers were 13% of the step in one table, and 45% of a loss over n steps in the other."""
    fields: dict[str, Any] = {"scaling": scaling, "setting": Setting(batch_size=64)}
    costs = StepCosts(plain_s=0.010, base_s=0.018, contention_s=0.001, exposed_s=0.002)
    record = measured(costs, QUIET, **fields)
    one = measured(costs, QUIET, **{**fields, "world_size": 1})
    fit = Fit([record, one])
    divided = fit.waterfall(record)
    found = phase_table(record, fit.scaling(record), divided, [one])
    assert found is not None
    assert divided is not None
    assert found.total.one_s == divided.parts.ideal
    assert found.total.many_s == divided.step_time_s
    rows = {row.name: row for row in found.rows}
    assert rows[SYNCHRONIZATION].many_s == divided.parts.exposed_communication
    assert divided.communication_fraction is not None
    assert rows[SYNCHRONIZATION].share_of_step == pytest.approx(divided.communication_fraction.value)
    assert sum(row.share_of_step or 0.0 for row in found.rows) == pytest.approx(1)
    one_s = sum(row.one_s.value for row in found.rows if row.one_s)
    many_s = sum(row.many_s.value for row in found.rows if row.many_s)
    assert divided.t_comm_s is not None
    assert many_s - one_s == pytest.approx(divided.t_comm_s.value)


def test_without_a_gain_there_are_no_shares() -> None:
    found = table(measured(exactly(0.5)))
    assert found is not None
    assert found.total.share_of_gain is None
    assert all(row.share_of_gain is None for row in found.rows)


@pytest.mark.parametrize(
    ("step_s", "is_gain"), [(0.0208, False), (0.0192, False), (0.0300, False), (0.0120, True)]
)
def test_of_a_small_difference_no_phase_has_a_multiple(step_s: float, is_gain: bool) -> None:
    """One device takes 20 ms for the samples: of 0.8 ms synchronization alone would be 1,000% and more."""
    costs = StepCosts(plain_s=0.010, exposed_s=step_s - 0.010)
    record = measured(costs, QUIET)
    fit = Fit([record], known=Spreads(1e-6, 1e-6, 1e-6, 1e-6), is_certain=True)
    found = phase_table(record, fit.scaling(record), fit.waterfall(record))
    assert found is not None
    assert found.total.speedup is not None
    assert found.total.speedup.excludes(1.0)
    shares = [row.share_of_gain for row in found.rows]
    assert any(shares) is is_gain

"""Phases, hiding, cost, attribution and advice on planted costs, against numbers worked out by hand."""

from __future__ import annotations

from typing import Any

import pytest

from raybench.analysis import analyse
from raybench.analysis.attribution import attribution, between
from raybench.analysis.batch_lines import amdahl_speedup, batch_lines
from raybench.analysis.cost import costs, when_to_use, works
from raybench.analysis.diagnosis.configurations import configurations
from raybench.analysis.estimates.efficiency import Status
from raybench.analysis.estimates.phases import SYNCHRONIZATION, phase_table
from raybench.analysis.hiding import hiding, passage
from raybench.analysis.results import StudyResults
from raybench.machine.resources import Resources
from raybench.plan.resolve import make_plan
from raybench.records.requests import Configuration
from raybench.report.diagnosis import diagnosis_markdown
from raybench.report.tables.study import (
    attribution_table,
    cost_table,
    hiding_table,
    hiding_words,
    overheads_table,
    phases_table,
)
from raybench.spec import Setting
from raybench.testing import QUIET, FakeRunner, StepCosts, run_all
from tests.unit.studies import grid, measured, study

# Two devices: 10 ms alone, 11.5 ms without transfers, 12.5 ms in all: a speed-up of 1.6.
PLAIN = StepCosts(plain_s=0.010, contention_s=0.001, wrapper_s=0.0005, exposed_s=0.001)


def exactly(efficiency: float, plain_s: float = 0.01) -> StepCosts:
    """Costs of this efficiency in weak scaling, all of the loss in transfers."""
    return StepCosts(plain_s=plain_s, exposed_s=plain_s * (1 / efficiency - 1))


def results(costs: dict[tuple[Any, ...], StepCosts], *knobs: str, **fields: Any) -> StudyResults:
    """A grid on one and two devices; ``costs`` by the values of ``knobs``, the default's first."""
    values = [list(dict.fromkeys(key[place] for key in costs)) for place in range(len(knobs))]
    spec = study(knobs=dict(zip(knobs, values, strict=True)), **fields)

    def model(config: Configuration, setting: Setting) -> StepCosts:
        key = tuple(getattr(setting, name) for name in knobs)
        return next(iter(costs.values())) if config.world_size == 1 and key not in costs else costs[key]

    return analyse(spec, grid(spec, (1, 2), FakeRunner(model, QUIET))[0])


def test_phases_of_one_and_two_devices_share_the_gain() -> None:
    found = phase_table(measured(PLAIN, QUIET))
    assert found is not None
    rows = {row.name: row for row in found.rows}
    assert found.samples == 64
    forward, sync = rows["forward"], rows[SYNCHRONIZATION]
    assert forward.one_s is not None
    assert forward.many_s is not None
    assert forward.speedup is not None
    assert (forward.one_s.value, forward.many_s.value) == pytest.approx((0.006, 0.00345))
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
    found = phase_table(measured(PLAIN))
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
    planted = StepCosts(plain_s=0.010, base_s=0.018, exposed_s=0.002)
    fields: dict[str, Any] = {"scaling": "strong", "setting": Setting(batch_size=64)}
    two = measured(planted, QUIET, **fields)
    alone = StepCosts(plain_s=0.018, base_s=0.018)
    one = measured(
        alone, QUIET, **{**fields, "world_size": 1, "setting": Setting(batch_size=64, strategy="single")}
    )
    assert phase_table(two) is None  # nobody has timed the phases of the global batch
    found = phase_table(two, [one])
    assert found is not None
    assert found.rows[1].one_s is not None
    assert found.rows[1].one_s.value == pytest.approx(0.3 * 0.018)
    assert found.total.one_s is not None
    assert found.total.one_s.value == pytest.approx(0.018)


def test_without_a_gain_there_are_no_shares() -> None:
    found = phase_table(measured(exactly(0.5)))
    assert found is not None
    assert found.is_gain is None
    assert all(row.share_of_gain is None for row in found.rows)


def test_compute_that_hides_communication_is_interpolated() -> None:
    # exposed: 10% of the step at 10 ms of compute, 2% at 40 ms
    found = results({(32,): exactly(0.9), (128,): exactly(0.98, 0.04)}, "batch_size")
    (each,) = hiding(found)
    assert each.measure == "exposed communication"
    assert each.compute_s == pytest.approx(0.010 * 4**0.625)
    assert (each.below and each.below.batch_size, each.above and each.above.batch_size) == (32, 128)
    assert "hidden from about 23.8 ms" in hiding_table(found).caption
    assert "between 10.0 ms and 40.0 ms (batch 32 and 128)" in hiding_table(found).caption


def test_hiding_that_is_not_reached_or_always_there_says_so() -> None:
    (never,) = hiding(results({(32,): exactly(0.5), (128,): exactly(0.8, 0.04)}, "batch_size"))
    assert never.compute_s is None
    assert hiding_words(never) == "not reached up to 40.0 ms of compute in a step."
    (always,) = hiding(results({(32,): exactly(0.97), (128,): exactly(0.99, 0.04)}, "batch_size"))
    assert hiding_words(always) == "hidden at every batch measured, from 10.0 ms of compute on."
    assert passage([(1, 0.04), (2, 0.06), (4, 0.02)]) == (pytest.approx(2 * 2**0.25), 1)
    assert passage([(1, 0.02), (2, 0.06)]) is None


def test_costs_of_one_and_two_devices() -> None:
    found = results({(32,): PLAIN}, "batch_size", cost={"price_per_device_hour": 1.5, "runs": 4})
    one, two = costs(found, works(50_000, 10))
    million, epoch, run = two.costs
    assert million.device_s.value == pytest.approx(2 * 1e6 / 5120)
    assert one.costs[0].device_s.value == pytest.approx(1e6 / 3200)
    assert million.money is not None
    assert million.money.value == pytest.approx(2 * 1e6 / 5120 / 3600 * 1.5)
    assert epoch.time_s.value == pytest.approx(50_000 / 5120)
    assert run.time_s.value == pytest.approx(500_000 / 5120)
    assert two.cost_ratio is not None
    assert two.cost_ratio.value == pytest.approx(1.25)
    assert two.saved_s is not None
    assert two.saved_s.value == pytest.approx(4 * (500_000 / 3200 - 500_000 / 5120))
    assert two.saved_money is not None
    assert two.saved_money.value == pytest.approx(4 * 1.5 / 3600 * (500_000 / 3200 - 2 * 500_000 / 5120))
    assert one.cost_ratio is one.saved_s is None
    assert "1.60x [1.60, 1.60] as fast, at +25% [25, 25] device time" in when_to_use(found)
    assert [column.heading for column in cost_table(found, ()).columns][-1] == "4 runs save"


def test_energy_is_shown_where_it_was_measured() -> None:
    found = results({(32,): PLAIN}, "batch_size")
    metered = [
        record.model_copy(update={"measurement": record.steps.model_copy(update={"energy_joules": 6.4})})
        for record in found.records
        if record.steps is not None
    ]
    again = analyse(found.study, metered)
    energies = [point.costs[0].energy_joules for point in costs(again, works())]
    assert energies == [pytest.approx(6.4 * 1e6 / 32), pytest.approx(6.4 * 1e6 / 64)]
    assert "energy, kJ" in [column.heading for column in cost_table(again, ()).columns]
    assert "energy, kJ" not in [column.heading for column in cost_table(found, ()).columns]


def test_which_to_use_below_the_crossover() -> None:
    found = results({(128,): exactly(0.8, 0.04), (8,): exactly(0.3)}, "batch_size")
    assert "Below about batch" in when_to_use(found)
    assert "one device is both faster and cheaper" in when_to_use(found)
    slow = results({(8,): exactly(0.3)}, "batch_size")
    assert when_to_use(slow).startswith("Use one device: 2 devices (batch 8, fp32) are slower, 0.60x")


def test_knobs_one_at_a_time_and_together() -> None:
    planted = {
        (8, 1): exactly(0.4),
        (8, 4): exactly(0.5),
        (128, 1): exactly(0.6),
        (128, 4): exactly(0.9),
    }
    found = attribution(results(planted, "batch_size", "gradient_accumulation"))
    assert found is not None
    assert found.default_efficiency.value == pytest.approx(0.4)
    assert [(e.label, e.efficiency_ratio.value) for e in found.singles] == [
        ("batch 128", pytest.approx(1.5)),
        ("accumulation 4", pytest.approx(1.25)),
    ]
    (both,) = found.together
    assert both.efficiency_ratio.value == pytest.approx(2.25)
    assert both.interaction is not None
    assert both.interaction.value == pytest.approx(0.9 * 0.4 / (0.6 * 0.5))
    assert (
        attribution_table(results(planted, "batch_size", "gradient_accumulation"))
        .rows[2][1]
        .startswith("2 knobs")
    )


def test_accumulation_of_the_same_passes_is_one_change_under_strong_scaling() -> None:
    spec = study(
        knobs={"batch_size": [8, 32], "gradient_accumulation": [1, 4]},
        search={"method": "ablation"},
        scaling={"mode": "strong"},
    )
    plan = make_plan(spec, Resources("cpu", 2, "a cpu"))
    found = attribution(analyse(spec, run_all(FakeRunner(seed=3), plan.requests())[0]))
    assert found is not None
    assert sorted(effect.label for effect in found.singles) == ["batch 32", "batch 32, accumulation 4"]
    (both,) = found.together
    assert both.changes == {"batch_size": 128, "gradient_accumulation": 4}
    assert both.label == "batch 128, accumulation 4"
    assert both.interaction is not None


def test_an_interaction_holds_the_uncertainty_of_all_its_trials() -> None:
    spec = study(knobs={"batch_size": [32, 64], "gradient_accumulation": [1, 2]})
    found = attribution(analyse(spec, grid(spec, (2,), FakeRunner(seed=3))[0]))
    assert found is not None
    (both,) = found.together
    assert both.interaction is not None
    assert both.interaction.relative_half_width > both.efficiency_ratio.relative_half_width


def test_two_studies_tell_the_model_from_the_settings() -> None:
    before = results({(8,): exactly(0.2), (128,): exactly(0.4)}, "batch_size")
    after = results({(128,): exactly(0.8), (8,): exactly(0.3)}, "batch_size")
    found = between(before, after)
    assert found is not None
    assert found.total.value == pytest.approx(4)
    assert found.workload is not None
    assert found.settings is not None
    assert found.interaction is not None
    assert (found.workload.value, found.settings.value) == pytest.approx((1.5, 2))
    assert found.interaction.value == pytest.approx(4 / (1.5 * 2))
    assert found.same_setting == "batch 8"
    apart = between(before, results({(64,): exactly(0.8), (256,): exactly(0.3)}, "batch_size"))
    assert apart is not None
    assert apart.workload is apart.settings is apart.interaction is None


def test_every_configuration_has_a_status_and_the_measured_change_that_helps() -> None:
    planted = {
        (8, "fp32"): exactly(0.3),
        (128, "fp32"): exactly(0.81, 0.04),
        (8, "bf16"): exactly(0.25, 0.005),
        (128, "bf16"): exactly(0.7, 0.02),
    }
    found = results(planted, "batch_size", "precision")
    by_label = {each.label: each for each in configurations(found)}
    assert {label: each.status for label, each in by_label.items()} == {
        "batch 128, fp32": Status.GOOD,
        "batch 128, bf16": Status.POOR,
        "batch 8, fp32": Status.NEGATIVE,
        "batch 8, bf16": Status.NEGATIVE,
    }
    (change,) = by_label["batch 8, fp32"].changes
    assert (change.knob, change.value) == ("batch_size", 128)
    assert change.efficiency_ratio.value == pytest.approx(2.7)
    # fp32 scales better at batch 128 because it computes longer: no advice
    assert by_label["batch 128, bf16"].changes == ()
    text = diagnosis_markdown(found)
    assert "### batch 8, fp32: negative" in text
    assert "batch 128 reaches 81% [81, 81], 1.62x [1.62, 1.62], where this has 30% [30, 30]" in text
    assert "70% [70, 70] exposed communication" in text
    ranking = text[text.index("## What changes the efficiency most") :]
    assert ranking.index("- batch 128: 2.70x") < ranking.index("- bf16: 0.83x")


def test_overheads_stand_side_by_side_with_intervals() -> None:
    found = results({(32,): PLAIN}, "batch_size")
    (row,) = overheads_table(found).rows
    assert tuple(cell.replace(".0%", "%").replace(".0,", ",").replace(".0]", "]") for cell in row[2:7]) == (
        "2.50 [2.50, 2.50]",
        "20% [20, 20]",
        "1.00 [1.00, 1.00]",
        "8% [8, 8]",
        "25% [25, 25]",
    )


def test_lines_of_a_batch_start_on_one_device_of_the_same_rounds() -> None:
    found = results({(8,): exactly(0.3), (128,): exactly(0.8, 0.04)}, "batch_size")
    small, large = batch_lines(found)
    assert (small.batch_size, large.batch_size) == (8, 128)
    assert [point.world_size for point in large.points] == [1, 2]
    assert large.points[0].throughput_samples_per_s.value == pytest.approx(128 / 0.04)
    assert large.points[1].speedup.value == pytest.approx(1.6)
    fraction = large.points[1].serial_fraction
    assert fraction is not None
    assert fraction.value == pytest.approx(0.25)  # (1/1.6 - 1/2) / (1 - 1/2)
    assert amdahl_speedup(0.05, 8) == pytest.approx(5.926, abs=1e-3)


def test_phases_per_epoch_where_its_samples_are_known() -> None:
    found = results({(32,): PLAIN}, "batch_size", workload={"name": "vision", "samples": 6400})
    table = phases_table(found, ())
    assert [column.heading for column in table.columns][-2:] == [
        "one device, s an epoch",
        "2 devices, s an epoch",
    ]
    forward = next(row for row in table.rows if row[0] == "forward")
    assert forward[-2:] == ("0.600 [0.600, 0.600]", "0.345 [0.345, 0.345]")
    without = phases_table(results({(32,): PLAIN}, "batch_size"), ())
    assert len(without.columns) == 5


def test_one_device_or_nothing_has_no_such_table() -> None:
    for records in ([], [measured(PLAIN, world_size=1, setting=Setting(strategy="single"))]):
        found = analyse(study(knobs={"batch_size": [32]}), records)
        tables = (
            phases_table(found, ()),
            overheads_table(found),
            hiding_table(found),
            cost_table(found, ()),
            attribution_table(found),
        )
        assert [table.rows for table in tables] == [()] * 5
        assert when_to_use(found) == ""
        assert diagnosis_markdown(found).startswith("# Diagnosis: fake")

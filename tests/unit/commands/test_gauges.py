"""Which gauges a study sets, at which values."""

from __future__ import annotations

import io
from collections.abc import Iterator

import pytest

from raybench.analysis.scaling import scaling
from raybench.commands.console import make_console
from raybench.commands.progress import Display, StudyGauges, StudyProgress, trial_values
from raybench.launch import metrics
from raybench.launch.metrics import METRICS, Metric, RayMetrics
from raybench.machine.host import Resources
from raybench.plan.make_plan import make_plan
from raybench.records.record import TrialRecord
from tests.support.alone import waterfall
from tests.support.planted import FakeRunner, Noise
from tests.unit.runs import QUIET_ENOUGH, run
from tests.unit.studies import SHORT, SIXTEEN_TENTHS, asked, failed, measured, study

STUDY = study(knobs={"batch_size": [32, 512]})
DEFAULT, LARGE = STUDY.knobs.grid()


def of(sent: RayMetrics, metric: Metric) -> dict[tuple[str, ...], float]:
    """The values of a metric by the tags after the study's."""
    return {tags[1:]: value for (each, tags), value in sent.values.items() if each is metric}


def test_a_trial_with_all_variants_has_every_gauge_as_planted() -> None:
    """Two devices at 12.5 ms a step, 1 ms of it transfers that nothing hides: an efficiency of 0.8."""
    record = measured(SIXTEEN_TENTHS, Noise(block=0.002, step=0.001), setting=LARGE)
    values = trial_values(record, scaling(record))
    of_study = {metrics.TRIALS, metrics.STAGE_DONE, metrics.STAGE_PLANNED, metrics.LEFT}
    assert set(values) == set(METRICS) - of_study
    assert values[metrics.STEP_TIME] == pytest.approx(0.0125, rel=0.02)
    assert values[metrics.THROUGHPUT] == pytest.approx(2 * 512 / 0.0125, rel=0.02)
    assert values[metrics.EXPOSED] == pytest.approx(0.001, rel=0.1)
    assert values[metrics.EFFICIENCY] == pytest.approx(0.8, rel=0.02)
    parts = waterfall(record)
    assert parts is not None
    assert parts.bus_bandwidth_bytes_per_s is not None
    assert values[metrics.BUS_BANDWIDTH] == parts.bus_bandwidth_bytes_per_s.value


def test_what_a_trial_does_not_measure_has_no_gauge() -> None:
    search = measured(SIXTEEN_TENTHS, setting=LARGE, role="search", variants=SHORT)
    values = trial_values(search, scaling(search))
    assert metrics.EFFICIENCY in values
    assert not {metrics.EXPOSED, metrics.BUS_BANDWIDTH} & set(values)
    verification = measured(
        SIXTEEN_TENTHS, role="verification", setting=LARGE, anchor=DEFAULT, variants=("ddp", "anchor")
    )
    values = trial_values(verification, scaling(verification))
    assert set(values) == {metrics.STEP_TIME, metrics.THROUGHPUT}


def test_trials_are_counted_by_state_and_named_by_their_setting() -> None:
    kept = RayMetrics()
    gauges = StudyGauges(STUDY, kept)
    gauges.progress()
    assert of(kept, metrics.STAGE_DONE) == {(): 0}
    records = [measured(SIXTEEN_TENTHS, setting=each) for each in (DEFAULT, LARGE)]
    records.append(failed(asked(STUDY, "search", LARGE, 2), "oom"))
    for done, record in enumerate(records):
        gauges.progress(done, 3, 30.0 - 10 * done)
        gauges.trial_done(record, scaling(record) if record.steps else None)
    assert of(kept, metrics.TRIALS) == {("complete",): 2, ("oom",): 1}
    assert of(kept, metrics.STAGE_DONE) == {(): 3}
    assert of(kept, metrics.STAGE_PLANNED) == {(): 3}
    assert of(kept, metrics.LEFT) == {(): 10.0}
    assert set(of(kept, metrics.EFFICIENCY)) == {("2", "ddp", "batch 32"), ("2", "ddp", "batch 512")}
    gauges.progress()
    assert of(kept, metrics.STAGE_DONE) == {(): 0}
    assert of(kept, metrics.LEFT) == of(kept, metrics.STAGE_PLANNED) == {}  # not known any more
    assert of(kept, metrics.TRIALS) == {("complete",): 2, ("oom",): 1}


def test_every_record_of_a_whole_study_is_in_the_gauges_count() -> None:
    plan = make_plan(
        study(knobs={"batch_size": [32, 512]}, search={"method": "optuna", "trials": 2}),
        Resources("cpu", 2, "a CPU"),
    )
    kept, display = RayMetrics(), Display(make_console(io.StringIO()))
    runner = FakeRunner(noise=QUIET_ENOUGH, fail=_large_alone_fails)
    watcher = StudyProgress(plan.study, display, StudyGauges(plan.study, kept))
    _, store, _ = run(plan, runner, watcher=watcher)
    states = [record.state for record in store.records]
    assert of(kept, metrics.TRIALS) == {(state,): states.count(state) for state in set(states)}
    measured_there = {(str(r.config.world_size), r.config.batch_size) for r in _complete(store.records)}
    assert len(of(kept, metrics.STEP_TIME)) == len(measured_there)


def _large_alone_fails(request: object) -> tuple[str, str] | None:
    config = request.config  # type: ignore[attr-defined]
    return ("oom", "planted") if config.world_size == 1 and config.setting.batch_size == 512 else None


def _complete(records: list[TrialRecord]) -> Iterator[TrialRecord]:
    return (record for record in records if record.steps)

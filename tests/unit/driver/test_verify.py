"""``--verify``: a planted cure is confirmed, a planted wrong one refuted; neither counts elsewhere."""

from __future__ import annotations

import io
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from raybench.analysis.findings.diagnose import Diagnosis
from raybench.analysis.findings.finding import Finding, FindingName, Severity
from raybench.analysis.findings.verifications import Verified, verdict_of
from raybench.analysis.results import StudyResults
from raybench.analysis.stats.statistics import Estimate
from raybench.analysis.stats.verdict import gain_of
from raybench.commands.runs import plan_lines
from raybench.driver import stages as verifying
from raybench.driver.forecast import Forecast
from raybench.driver.time_budget import TimeBudget
from raybench.errors import Interrupted
from raybench.machine.environment import Environment
from raybench.machine.host import Resources
from raybench.plan.make_plan import make_plan
from raybench.plan.notes import NoteKind, Stage
from raybench.plan.trials import Plan
from raybench.records.record import TrialRecord
from raybench.records.requests import Configuration, TrialRequest
from raybench.records.store import ResultsDirectory
from raybench.report.answer import answer
from raybench.report.code import use_it
from raybench.report.document import write_report
from raybench.report.sections.settings import verification_table
from raybench.report.table import NONE
from raybench.report.terminal import print_summary
from raybench.spec.knobs import Setting
from tests.support.analysis import analyse
from tests.support.planted import FakeRunner, StepCosts
from tests.unit.runs import QUIET_ENOUGH, ClockRunner, Failing, MemoryStore, run
from tests.unit.studies import study

# A cure that is one: compression. One that is none: static_graph. One that harms: no_broadcast... of buffers.
CURE, PLACEBO, HARM = (
    {"gradient_compression": "bf16"},
    {"static_graph": True},
    {"find_unused_parameters": True},
)
MEASURE = {"half_width": 0.01, "visits": 1}


def costs(config: Configuration, setting: Setting) -> StepCosts:
    """Half of the step is exposed communication; compression halves that."""
    exposed_s = 0.010 / (2 if setting.gradient_compression == "bf16" else 1)
    looked_s = 0.002 if setting.find_unused_parameters else 0.0
    return StepCosts(plain_s=0.010, wrapper_s=looked_s, exposed_s=exposed_s)


def planned(**fields: Any) -> Plan:
    given = {"knobs": {"batch_size": [64]}, "search": {"method": "grid"}, "measure": MEASURE}
    return make_plan(study(**(given | fields)), Resources("cpu", 2, "a CPU"))


def ratio(value: float, half: float = 0.02) -> Estimate:
    return Estimate(value, value - half, value + half, 10)


TWICE = "batch 128 is x times the default's speed"
LARGER_BATCH = [  # seconds of a step with twice the batch on two devices; one takes 0.010 for half of it
    (0.050, f"Use one device: with batch 128 2 are x times as fast. On 2 devices {TWICE}."),
    (0.024, "Use batch 128: x times the default's speed on 2 devices."),
]
Proposed = list[tuple[FindingName, dict[str, Any] | None, Estimate | None]]


@pytest.fixture
def propose(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Plant what the headline's diagnosis proposes, whatever the records say."""

    def plant(*proposed: tuple[FindingName, dict[str, Any] | None, Estimate | None]) -> None:
        def diagnose(base: Any, around: Any) -> Diagnosis:
            at = base.headline.trial_id if base.headline else ""
            first = tuple(
                Finding(
                    name,
                    Severity.WARNING,
                    at,
                    {},
                    explains=ratio(0.01 / place, 0.001),
                    change=change,
                    predicted=gain,
                )
                for place, (name, change, gain) in enumerate(proposed, 1)
            )
            return Diagnosis(first)

        monkeypatch.setattr(verifying, "diagnose_study", diagnose)
        monkeypatch.setattr("raybench.analysis.results.diagnose_study", diagnose)

    return plant


def studied(
    plan: Plan, runner: FakeRunner | None = None, **fields: Any
) -> tuple[Any, MemoryStore, FakeRunner]:
    return run(plan, runner or FakeRunner(costs, QUIET_ENOUGH), verify=True, **fields)


def verified(plan: Plan, store: MemoryStore) -> dict[str, Any]:
    results = analyse(plan.study, store.records)
    return {each.label: each for each in results.verifications}


def roles(store: MemoryStore) -> list[str]:
    return [record.request.role for record in store.records]


WRAPPER, BATCH, SLOW = (
    FindingName.COSTLY_WRAPPER,
    FindingName.BATCH_TOO_SMALL,
    FindingName.CONTENTION,
)


def test_on_one_device_a_cure_is_confirmed_too() -> None:
    def unfused(config: Configuration, setting: Setting) -> StepCosts:
        update_s = 0.001 if setting.optimizer_kernels == "fused" else 0.004
        return StepCosts(plain_s=0.016 + update_s, of_result={"update_s": update_s, "fused_update_s": 0.001})

    plan = make_plan(
        study(
            knobs={"batch_size": [64]},
            scaling={"world_sizes": [1]},
            search={"method": "grid"},
            measure=MEASURE,
            optimizer={"name": "adamw", "learning_rate": 0.001},
        ),
        Resources("cpu", 1, "a CPU"),
    )
    _, store, _ = studied(plan, FakeRunner(unfused, QUIET_ENOUGH))
    found = verified(plan, store)["optimizer_kernels fused"]
    assert found.verdict is Verified.CONFIRMED
    assert not found.gain.gain.excludes(0.020 / 0.017 - 1)


def test_a_cure_is_confirmed_and_a_wrong_one_refuted(propose: Any) -> None:
    propose((WRAPPER, CURE, ratio(1.33)), (BATCH, PLACEBO, ratio(1.2)), (SLOW, HARM, None))
    plan = planned()
    session, store, _ = studied(plan)
    assert roles(store) == ["scaling", "scaling", "verification", "verification", "verification"]
    assert session.watcher.stages[-1] == (Stage.VERIFICATION, 3)
    assert session.notes == session.not_reached == []
    for record in store.records[2:]:
        assert record.study_request.kind == "steps"
        assert record.study_request.variants == ("ddp", "anchor")
        assert record.study_request.anchor == store.records[0].config.setting
    found = verified(plan, store)
    cure, placebo, harm = found["bf16 compression"], found["static_graph"], found["find_unused_parameters"]
    assert cure.verdict is Verified.CONFIRMED
    assert cure.gain.gain.low < 1 / 3 < cure.gain.gain.high  # 20 ms to 15 ms
    assert placebo.verdict is Verified.REFUTED
    assert placebo.gain.gain.low < 0 < placebo.gain.gain.high
    assert harm.verdict is Verified.REFUTED
    assert harm.gain.gain.high < 0


def test_they_count_for_no_setting_and_no_choice(propose: Any) -> None:
    propose((WRAPPER, CURE, None))
    plan = planned(knobs={"batch_size": [64, 32]})
    _, store, _ = studied(plan)
    with_them = analyse(plan.study, store.records)
    without = analyse(plan.study, [r for r in store.records if r.request.role != "verification"])
    assert with_them.verifications
    assert not without.verifications
    # the rounds of the default in them are visits of it like others
    for each in (with_them, without):
        assert each.best is None or each.best.request.role != "verification"
    mine, theirs = (sorted(each.trial_id for each in of.references) for of in (with_them, without))
    assert mine == theirs
    shown = [
        [(point.record.trial_id, point.world_size) for each in of.settings for point in each.points]
        for of in (with_them, without)
    ]
    assert shown[0] == shown[1]


def test_what_raybench_cannot_do_is_named(propose: Any) -> None:
    propose((WRAPPER, CURE, None), (SLOW, None, None), (BATCH, {"precision": "tf32"}, None))
    plan = planned()
    _, store, _ = studied(plan)
    assert roles(store).count("verification") == 1
    reasons = {each.reason for each in analyse(plan.study, store.records).verifications if each.reason}
    assert reasons == {Setting(precision="tf32").fault("cpu")}


def test_what_was_verified_of_another_headline_is_no_test_of_this_one(propose: Any) -> None:
    """As of variables whose group crashed at first: it is not paired with this one."""
    propose((WRAPPER, CURE, ratio(1.33)))
    plan = planned()
    _, store, _ = studied(plan)
    of_headline, other = list(verified(plan, store)), []
    for record in store.records:
        if record.request.role == "verification":
            config = record.config.model_copy(update={"environment": {"OMP_PROC_BIND": "true"}})
            request = record.study_request.model_copy(update={"config": config})
            record = record.model_copy(update={"request": request})
        other.append(record)
    assert of_headline == ["bf16 compression"]
    assert analyse(plan.study, other).verifications == ()


def test_three_without_a_budget_and_one_where_several_findings_propose_the_same(propose: Any) -> None:
    more: Proposed = [(BATCH, {"batch_size": size}, None) for size in (128, 256, 512, 1024)]
    propose((WRAPPER, {"batch_size": 128}, None), *more)
    plan = planned()
    _, store, _ = studied(plan)
    assert roles(store).count("verification") == 3
    results = analyse(plan.study, store.records)
    assert [each.name for each in results.verifications[0].proposal.findings] == [WRAPPER, BATCH]
    assert results.verifications[-1].verdict is Verified.NOT_RUN


def test_within_a_budget_as_many_as_there_is_time_for(propose: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    more: Proposed = [(BATCH, {"batch_size": size}, None) for size in (128, 256, 512, 1024, 2048)]
    propose(*more)
    for seconds, expected in ((58.0, 4), (500.0, 5)):
        runner = ClockRunner(monkeypatch)
        session, store, _ = studied(planned(), runner, budget=TimeBudget(runner.now + seconds))
        assert roles(store).count("verification") == expected
        assert runner.now <= 1000.0 + seconds
        assert len(session.not_reached) == (expected < 5)
    assert session.not_reached == []


def test_what_is_on_disk_was_reached_and_a_cheaper_one_is_tried(
    propose: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    more: Proposed = [(BATCH, {"batch_size": size}, None) for size in (128, 256, 512)]
    propose(*more)
    plan, store = planned(), MemoryStore()
    studied(plan, store=store)
    missing = [each for each in store.records if each.config.setting.batch_size in (128, 512)]
    store.records = [each for each in store.records if each not in missing]
    fits = Forecast.fit

    def too_long_for_128(expected: Forecast, stage: Stage, queue: Any) -> Any:
        is_128 = queue[0].config.setting.batch_size == 128
        return None if is_128 else fits(expected, stage, queue)

    monkeypatch.setattr(Forecast, "fit", too_long_for_128)
    session, _, _ = studied(plan, store=store)
    assert [(note.number, note.total) for note in session.not_reached] == [(1, 2)]
    assert session.watcher.stages[-1] == (Stage.VERIFICATION, 2)
    assert store.records[-1].config.setting.batch_size == 512


def test_an_interrupt_costs_the_one_under_way_and_resume_measures_nothing_twice(propose: Any) -> None:
    propose((WRAPPER, CURE, None), (BATCH, PLACEBO, None))
    plan, store = planned(), MemoryStore()
    with pytest.raises(Interrupted):
        studied(plan, Failing(3, Interrupted("SIGINT")), store=store)
    assert roles(store) == ["scaling", "scaling", "verification"]
    _, _, runner = studied(plan, store=store)
    assert [request.role for request in runner.requests] == ["verification"]
    session, _, runner = studied(plan, store=store)
    assert runner.requests == []
    assert session.watcher.stages == []
    assert len(store.records) == 4


def test_a_change_that_does_not_run_is_said_with_its_reason(propose: Any) -> None:
    propose((WRAPPER, {"batch_size": 4096}, None))

    def too_large(request: TrialRequest) -> Any:
        assert isinstance(request.config, Configuration)
        return ("oom", "out of memory") if request.config.setting.batch_size == 4096 else None

    plan = planned()
    _, store, _ = studied(plan, FakeRunner(costs, QUIET_ENOUGH, fail=too_large))
    found = verified(plan, store)["batch 4,096"]
    assert (found.verdict, found.gain) == (Verified.FAILED, None)
    assert found.reason == "oom: out of memory"


def test_without_findings_it_says_so() -> None:
    quiet = FakeRunner(lambda config, setting: StepCosts(plain_s=0.010), QUIET_ENOUGH)
    session, store, _ = studied(planned(), quiet)
    assert "verification" not in roles(store)
    assert [note.kind for note in session.notes] == [NoteKind.NOTHING_PROPOSED]


@pytest.mark.parametrize(
    ("low", "high", "predicted", "expected"),
    [
        (0.10, 0.14, None, Verified.CONFIRMED),
        (0.10, 0.14, ratio(1.5), Verified.CONFIRMED),  # less than was promised, but faster
        (-0.01, 0.01, None, Verified.REFUTED),
        (-0.03, 0.05, None, Verified.UNDECIDED),
        (-0.03, 0.05, ratio(1.2), Verified.REFUTED),
        (-0.14, -0.10, None, Verified.REFUTED),
        (0.005, 0.015, None, Verified.REFUTED),  # too little to be worth it
    ],
)
def test_verdicts(low: float, high: float, predicted: Estimate | None, expected: Verified) -> None:
    gain = gain_of(Estimate(1 + (low + high) / 2, 1 + low, 1 + high, 10), 0.02)
    assert verdict_of(gain, predicted, 0.02) is expected


def test_report_and_terminal_say_by_how_much(propose: Any, tmp_path: Path) -> None:
    propose((WRAPPER, CURE, ratio(1.33)), (BATCH, PLACEBO, ratio(1.2)), (SLOW, None, None))
    plan = planned()
    _, store, _ = studied(plan)
    results = analyse(plan.study, store.records)
    rows = {row[1]: row for row in verification_table(results).rows}
    assert re.fullmatch(r"\+\d\d% \[\d\d, \d\d\]", rows["bf16 compression"][2])
    cells = {row[1]: row[3].partition(":")[0] for row in verification_table(results).rows}
    assert cells == {
        "bf16 compression": "confirmed",
        "static_graph": "refuted",
        NONE: "needs you",
    }
    write_report(tmp_path, results)
    text = (tmp_path / "report" / "report.md").read_text()
    assert "## Verified by experiment" in text
    assert "## Verified by experiment" in (tmp_path / "report" / "diagnosis.md").read_text()
    assert "| costly wrapper | bf16 compression | +" in text
    console = Console(width=80, record=True, quiet=False, file=io.StringIO())
    print_summary(results, console)
    assert "costly wrapper" in console.file.getvalue()


def test_a_refuted_change_is_advised_nowhere_and_a_confirmed_one_first(propose: Any, tmp_path: Path) -> None:
    propose((BATCH, PLACEBO, ratio(1.2)), (WRAPPER, CURE, ratio(1.33)))
    plan = planned()
    _, store, _ = studied(plan)
    results = analyse(plan.study, store.records)
    change = next(each.words for each in answer(results) if each.question == "What to change")
    assert re.fullmatch(r"Use bf16 compression: 1\.\d\d times the default's speed on 2 devices\.", change)
    write_report(tmp_path, results)
    diagnosis = (tmp_path / "report" / "diagnosis.md").read_text()
    assert "Confirmed: bf16 compression, " in diagnosis
    assert "Refuted: static_graph, " in diagnosis
    assert "Refuted: static_graph, " in (tmp_path / "report" / "report.md").read_text()
    page = (tmp_path / "report" / "report.html").read_text()
    assert "<b>Refuted:</b> static_graph, " in page
    assert "<b>Confirmed:</b> bf16 compression, " in page

    propose((BATCH, PLACEBO, ratio(1.2)))
    _, store, _ = studied(plan)
    results = analyse(plan.study, store.records)
    crashed = tuple(replace(each, verdict=Verified.FAILED) for each in results.verifications)
    for found in (results, replace(results, verifications=crashed)):
        clauses = {each.question: each.words for each in answer(found)}
        assert clauses["What to change"] == (
            "Nothing: the changes that the causes propose were tried, and failed or are not faster."
        )


def test_a_confirmed_change_is_the_code_to_use(propose: Any) -> None:
    propose((WRAPPER, CURE, ratio(1.33)), (BATCH, PLACEBO, None))
    plan = planned()
    _, store, _ = studied(plan)
    results = analyse(plan.study, store.records)
    use = results.recommendation
    assert use is not None
    assert (use.is_faster, use.is_default) == (True, False)
    assert use.config.setting.gradient_compression == "bf16"
    section = use_it(results)
    assert section is not None
    assert section.sentences[0].startswith("This is the code of bf16 compression (+")
    assert "bf16_compress_hook" in section.loop


@pytest.mark.parametrize(("of_larger", "words"), LARGER_BATCH)
def test_a_confirmed_change_is_held_against_fewer_devices(propose: Any, of_larger: float, words: str) -> None:
    """As "use batch 128: 1.88 times" where one device is faster still: a change is tested on all of them."""

    def on_one_or_two(config: Configuration, setting: Setting) -> StepCosts:
        if config.world_size == 1:
            return StepCosts(0.010)
        return StepCosts(0.010, exposed_s=0.030) if setting.batch_size == 64 else StepCosts(of_larger)

    propose((BATCH, {"batch_size": 128}, ratio(1.5)))
    plan = planned()
    _, store, _ = studied(plan, FakeRunner(on_one_or_two, QUIET_ENOUGH))
    results = analyse(plan.study, store.records)
    change = next(each.words for each in answer(results) if each.question == "What to change")
    assert re.sub(r"\d\.\d\d", "x", change) == words
    code = use_it(results)
    assert code is not None
    assert ("the default" in code.sentences[0]) is ("one device" in words)


def test_a_gain_that_is_far_less_than_was_promised_is_one(propose: Any) -> None:
    propose((WRAPPER, CURE, ratio(6.0)), (BATCH, PLACEBO, ratio(6.0)))
    plan = planned()
    _, store, _ = studied(plan)
    results = analyse(plan.study, store.records)
    assert [each.verdict for each in results.verifications] == [Verified.CONFIRMED, Verified.REFUTED]


def test_what_only_an_earlier_diagnosis_proposed_keeps_its_verdict(propose: Any) -> None:
    propose((WRAPPER, CURE, ratio(1.33)))
    plan = planned()
    _, store, _ = studied(plan)
    propose((SLOW, None, None))
    found = verified(plan, store)
    assert found["bf16 compression"].verdict is Verified.CONFIRMED


def test_the_dry_run_says_it() -> None:
    assert [line for line in plan_lines(planned(), verify=True) if line.startswith("verification")] == [
        "verification: the changes that the first findings propose, 3 at most, interleaved"
    ]
    assert not [line for line in plan_lines(planned()) if line.startswith("verification")]


def test_records_survive_the_disk(propose: Any, tmp_path: Path) -> None:
    propose((WRAPPER, CURE, None))
    plan = planned()
    with ResultsDirectory.create(tmp_path / "out", plan.study, Environment.model_construct()) as store:
        studied(plan, store=store)  # type: ignore[arg-type]
    with ResultsDirectory.open_readonly(tmp_path / "out") as store:
        again: list[TrialRecord] = list(store.latest().values())
    found: StudyResults = analyse(plan.study, again)
    assert [each.verdict for each in found.verifications] == [Verified.CONFIRMED]

"""The study's answer in plain words, in every case."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from raybench.analysis.choice import is_default
from raybench.analysis.findings.case import Around
from raybench.analysis.findings.finding import FindingName
from raybench.analysis.recommendation import device_advice
from raybench.analysis.results import StudyResults
from raybench.analysis.stats.verdict import Verdict
from raybench.machine.host import Resources
from raybench.plan.make_plan import make_plan
from raybench.records.record import TrialRecord
from raybench.records.requests import Configuration
from raybench.records.results import LossParity, TrainingResult
from raybench.report.answer import answer, answer_of, fewer_words, to_use
from raybench.report.code import use_it
from raybench.report.document import write_report
from raybench.report.finding_texts import next_step
from raybench.spec.knobs import Setting
from tests.support.analysis import analyse
from tests.support.planted import QUIET, FakeHardware, FakeLearning, FakeRunner, Noise, StepCosts, run_all
from tests.unit.runs import run
from tests.unit.studies import (
    FULL,
    asked,
    exactly,
    failed,
    grid,
    planted,
    request,
    searched,
    study,
    trained_study,
)

DEFAULT = study(
    knobs={"batch_size": [512, 32, 128], "bucket_cap_mb": ["default", 1, 25], "precision": ["fp32", "bf16"]},
    search={"method": "optuna", "trials": 12},
)
WINNER = Setting(batch_size=512, precision="bf16", bucket_cap_mb=25)


def test_a_whole_search() -> None:
    results = analyse(DEFAULT, searched(DEFAULT, (1, 2), WINNER))
    answer = answer_of(results)
    assert answer.startswith("2 devices train 1.")
    for words in (
        " times as fast as one, with ",
        "% efficiency. This is at batch 512 per device, and they are slower at batch ",
        "% of each step is lost: ",
        " times the default's speed on 2 devices. ",
        "With the default, by Gustafson's law 4 devices would train about 3.",
        " times as fast as one; what the network between more devices costs is not in it. To measure it ",
        "% efficiency in another run of the default.",
    ):
        assert words in answer
    assert len(re.findall(r"[.:] ", answer)) <= 9
    assert "eep the default" not in answer
    assert [is_default(results.study, each.main.config) for each in results.settings] == [True, *[False] * 5]
    assert [[point.world_size for point in each.points] for each in results.settings] == [[1, 2]] * 6


@pytest.mark.parametrize("visits", [1, 3])
@pytest.mark.parametrize("block", [0.01, 0.05])
def test_a_best_that_may_be_no_gain_is_not_called_one(block: float, visits: int) -> None:
    runner = FakeRunner(FakeHardware(speed={}).costs, Noise(block=block), seed=3)
    equal = {"batch_size": (512,), "bucket_cap_mb": ("default", 25.0)}  # 1 MiB is faster
    spec = DEFAULT.model_copy(update={"knobs": DEFAULT.knobs.model_copy(update=equal)})
    same = Setting(batch_size=512, bucket_cap_mb=25)
    results = analyse(spec, searched(spec, (1, 2), same, runner, visits))
    use, (words,) = results.recommendation, _clauses(results, "What to change")
    assert use is not None
    assert use.is_default
    assert not use.is_faster
    assert words.startswith("Keep the default (default buckets, fp32): ")
    assert ("it is the best of " in words) is (results.best is results.default)
    section = use_it(results)
    assert section is not None
    assert section.sentences[0].startswith("This is the code of the default.")


def _clauses(results: StudyResults, question: str) -> list[str]:
    return [each.words for each in answer(results) if each.question == question]


def test_a_winner_that_is_worse_is_not_recommended() -> None:
    runner = FakeRunner(FakeHardware(speed={"bf16": 0.8}).costs, seed=3)
    results = analyse(DEFAULT, searched(DEFAULT, (1, 2), WINNER, runner))
    assert results.recommendation is not None
    assert results.recommendation.config.setting.precision == "fp32"
    (worse,) = (each for each in results.rivals if each.config.setting == WINNER)
    gain = results.gain(worse)
    assert gain is not None
    assert gain.verdict is Verdict.WORSE


@pytest.mark.parametrize(
    "speed",
    [0.8, 1.0],
)
def test_a_winner_for_another_objective_is_not_judged_by_speed(speed: float) -> None:
    spec = DEFAULT.model_copy(
        update={"search": DEFAULT.search.model_copy(update={"objectives": ("efficiency", "peak_memory")})}
    )
    runner = FakeRunner(FakeHardware(speed={"bf16": speed}).costs, QUIET, seed=3)
    winner = Setting(batch_size=512, precision="bf16")
    results = analyse(spec, searched(spec, (1, 2), winner, runner))
    use, (words,) = results.recommendation, _clauses(results, "What to change")
    assert use is not None
    assert not use.is_faster
    assert words.startswith("None is best in efficiency and peak memory at once: batch ")
    assert " is the best of 12 in efficiency, at " in words
    assert "eep the default" not in answer_of(results)


def test_the_default_is_best() -> None:
    spec = study(knobs={"precision": ["fp32", "bf16"]}, search={"method": "optuna", "trials": 2})
    runner = FakeRunner(FakeHardware(speed={"bf16": 0.5}).costs, seed=3)
    records = searched(spec, (1, 2), Setting(precision="bf16"), runner)
    assert "On 2 devices keep the default (fp32): it is the best of 2 measured settings." in answer_of(
        analyse(spec, records)
    )


@pytest.mark.parametrize(
    ("values", "crashed", "words"),
    [
        (["fp32", "bf16"], ["bf16"], "Keep the default (fp32): no other has figures to use."),
        (["fp32", "bf16", "tf32"], ["bf16"], "best of 2 measured settings."),
        (["fp32", "bf16"], [], "best of 2 measured settings."),
    ],
)
def test_settings_without_numbers_are_said_in_words(
    values: list[str], crashed: list[str], words: str
) -> None:
    """As "best of 2 (1 failed)"."""
    spec = study(knobs={"batch_size": [64], "precision": values})
    records = grid(spec, (1, 2), FakeRunner(FakeHardware(speed={"bf16": 0.5}).costs, seed=3))[0]
    broken = [
        failed(each.request, "crashed") if each.config.setting.precision in crashed else each
        for each in records
        if each.request.kind == "steps" and each.request.role == "scaling"
    ]
    answer = answer_of(analyse(spec, broken))
    assert words in answer
    assert "failed)" not in answer


def test_one_device_only() -> None:
    spec = study(knobs={"batch_size": [64]})
    answer = answer_of(analyse(spec, grid(spec, [1])[0]))
    assert answer.startswith("1 device trains ")
    assert "samples/s at batch 64 per device. With one device there is nothing to scale over." in answer


def test_nothing_and_nothing_complete() -> None:
    spec = study(knobs={"batch_size": [64, 128, 256]})
    assert answer_of(analyse(spec, [])) == "Nothing was measured."
    records = [
        failed(asked(spec, "scaling", Setting(batch_size=batch), 2), "oom", "can't allocate memory")
        for batch in (64, 128)
    ]
    records.append(failed(asked(spec, "scaling", Setting(batch_size=256), 2), "crashed", "ValueError: x"))
    expected = "No trial completed: 2 oom (can't allocate memory), 1 crashed (ValueError: x)."
    results = analyse(spec, records)
    assert answer_of(results) == expected
    assert len(results.failed) == 3
    assert results.waterfall is None


def test_the_target_failed() -> None:
    spec = study(scaling={"world_sizes": [1, 2, 4]}, knobs={"batch_size": [512]})
    records = [
        *grid(spec, [1, 2])[0],
        failed(asked(spec, "scaling", Setting(batch_size=512), 4), "timeout", "after 300 s"),
    ]
    results = analyse(spec, records)
    start = "No trial completed on 4 devices. 2 devices train "
    assert answer_of(results).startswith(start)
    assert to_use(results) is None  # as the default's code was given out, of which nothing is known there


def test_where_the_target_failed_the_best_is_of_fewer_devices() -> None:
    """As batch 512 was advised at 2.5 times the samples/s, and the default's code given out."""
    spec = study(scaling={"world_sizes": [1, 2, 4]}, knobs={"batch_size": [32, 512]})
    lost = [failed(asked(spec, "scaling", Setting(batch_size=batch), 4)) for batch in (32, 512)]
    results = analyse(spec, [*grid(spec, [1, 2])[0], *lost])
    assert results.recommendation is not None
    assert (results.recommendation.label, results.recommendation.config.world_size) == ("batch 512", 2)
    assert results.winners == []
    (change,) = _clauses(results, "What to change")
    assert change.startswith("Use batch 512: 2.")


def test_where_the_default_failed_the_answer_names_the_setting_that_it_is_of() -> None:
    spec = study(knobs={"precision": ["fp32", "bf16"]})
    records = [record for record in grid(spec, [1, 2])[0] if record.config.setting.precision == "bf16"]
    lost = failed(asked(spec, "scaling", Setting(), 2))
    (first, *_) = _clauses(analyse(spec, [*records, lost]), "Scaling")
    assert first.startswith("With bf16, 2 devices train ")


@pytest.mark.parametrize("precisions", [["fp32"], ["fp32", "bf16"]])
def test_a_change_that_the_recommended_setting_has_is_said_once(precisions: list[str]) -> None:
    """As "batch 512: +188%, measured; batch 512: measured at 82%"."""
    spec = study(knobs={"batch_size": [32, 512], "precision": precisions})
    plan = make_plan(spec, Resources("cpu", 2, "a CPU"))
    results = analyse(plan.study, run(plan)[1].records)
    clauses = {each.question: each.words for each in answer(results)}
    assert clauses["What to change"].lower().count("batch 512") == 1
    assert clauses["What to change"].endswith(" times the default's speed on 2 devices.")
    code = use_it(results)
    assert code is not None
    assert not any("Not in this code" in sentence for sentence in code.sentences)


def test_slower_at_every_batch() -> None:
    spec = study(knobs={"batch_size": [8, 16]})
    answer = answer_of(analyse(spec, grid(spec, [1, 2])[0]))
    assert "and they are also slower at batch 16." in answer


def test_slower_with_one_batch() -> None:
    spec = study(knobs={"batch_size": [8]})
    answer = answer_of(analyse(spec, grid(spec, [1, 2])[0]))
    assert answer.startswith("2 devices train only ")


def test_nothing_lost() -> None:
    spec = study(knobs={"batch_size": [64]})
    runner = FakeRunner(lambda request, setting: StepCosts(plain_s=0.01), QUIET)
    answer = answer_of(analyse(spec, grid(spec, [1, 2], runner)[0]))
    first = "2 devices train 2.00 times as fast as one, with 100% efficiency."
    second = (
        "This is at batch 64 per device. Nothing is lost that could be measured. Communication is at most "
    )
    assert answer.startswith(f"{first} {second}")
    assert "%. Nothing: no loss is large" in answer


@pytest.mark.parametrize(
    ("stopped_by", "most_s", "larger"),
    [
        ("max_seconds", 20, "measure.max_seconds"),
        ("max_seconds", 60, "--time-budget"),  # which made the rounds shorter, and makes none longer
        ("half_width", 20, ""),
    ],
)
@pytest.mark.parametrize(("seed", "untold"), [(5, "% to the wrapper"), (3, "does not separate")])
def test_a_large_rest_asks_for_more_rounds_where_the_clock_ended_them(
    seed: int, untold: str, stopped_by: str, most_s: float, larger: str
) -> None:
    costs = StepCosts(plain_s=0.01, exposed_s=0.002, wrapper_s=0.002, contention_s=0.002)
    spec, runner = (
        study(knobs={"batch_size": [64]}),
        FakeRunner(lambda *_: costs, Noise(block=0.3), seed=seed),
    )
    records = [
        record.model_copy(update={"result": record.steps.model_copy(update={"stopped_by": stopped_by})})
        for record in grid(spec, (1, 2), runner)[0]
        if record.steps is not None
    ]
    wanted = spec.measure.model_copy(update={"max_seconds": most_s})
    told = answer_of(analyse(spec.model_copy(update={"measure": wanted}), records))
    assert untold in told
    assert re.findall(r"larger (\S+) would separate the parts", told) == ([larger] if larger else [])


def test_no_round_divides_what_was_not_measured_in_parts() -> None:
    spec, missing = study(knobs={"batch_size": [64]}), dict.fromkeys(("concurrent", "local"), "too large")
    costs = StepCosts(plain_s=0.01, exposed_s=0.006, missing=missing)
    records = grid(spec, (1, 2), FakeRunner(lambda *_: costs, QUIET))[0]
    steps = [
        each.model_copy(update={"result": each.steps.model_copy(update={"stopped_by": "max_seconds"})})
        for each in records
        if each.steps is not None
    ]
    results = analyse(spec, steps)
    assert results.waterfall is not None
    assert results.waterfall.parts.undivided is not None
    assert "would separate" not in answer_of(results)


def why_of(costs: StepCosts, noise: Noise = QUIET) -> str:
    spec = study(knobs={"batch_size": [64]})
    results = analyse(spec, grid(spec, [2], FakeRunner(lambda *_: costs, noise))[0])
    (words,) = _clauses(results, "Why")
    return words


def test_where_a_part_is_below_0_it_is_said_that_parts_offset_each_other() -> None:
    words = why_of(StepCosts(plain_s=0.010, contention_s=0.005, wrapper_s=-0.002, exposed_s=0.007))
    assert words == (
        "50% of each step is lost: 35% to communication, 25% to contention, partly offset by other parts."
    )
    alone = why_of(StepCosts(plain_s=0.010, contention_s=0.006, wrapper_s=-0.001))
    assert alone.startswith(
        "33% of each step is lost: 40% to contention, partly offset by other parts. Communication is at most "
    )


def test_communication_is_named_where_it_is_uncertain() -> None:
    words = why_of(StepCosts(plain_s=0.010, contention_s=0.006, exposed_s=0.0001), Noise(block=0.05))
    assert re.search(r"to contention\. Communication is at most \d+%", words)
    third = StepCosts(plain_s=0.010, contention_s=0.006, wrapper_s=0.003, exposed_s=0.001)
    assert why_of(third).endswith("% to contention, 5% to communication, the rest to other parts.")


def test_an_interval_that_says_nothing_is_not_an_answer() -> None:
    """One visit of two devices whose rounds differ by a factor of ten: no efficiency, and no causes."""
    spec = study(knobs={"batch_size": [64]})
    results = analyse(
        spec, grid(spec, [1, 2], FakeRunner(lambda *_: StepCosts(plain_s=0.010), Noise(block=1.5)))[0]
    )
    assert results.headline_scaling is not None
    speedup = results.headline_scaling.speedup
    assert speedup is not None
    assert speedup.high > 2 * speedup.low
    (said,) = _clauses(results, "Scaling")
    assert "too wide to go by" in said
    assert "efficiency" not in said
    assert _clauses(results, "Why") == []


def test_several_devices_that_are_certainly_slower_are_said_to_be_however_wide_the_interval_is() -> None:
    """As "too wide to go by" stood above "Use one device"."""
    spec = study(knobs={"batch_size": [64]})
    costs = StepCosts(plain_s=0.010, exposed_s=0.040)
    results = analyse(spec, grid(spec, [1, 2], FakeRunner(lambda *_: costs, Noise(block=0.9)))[0])
    assert results.headline_scaling is not None
    speedup = results.headline_scaling.speedup
    assert speedup is not None
    assert 2 * speedup.low < speedup.high < 1
    (said,) = _clauses(results, "Scaling")
    assert "times as fast as one. This is at batch 64" in said
    assert "too wide" not in said


def test_settings_that_were_not_reached_are_not_said_to_gain_nothing() -> None:
    """As "nothing: no loss is large and certain enough to act on" where no other one was measured."""
    spec = study(knobs={"batch_size": [64, 128]})
    records = grid(study(knobs={"batch_size": [64]}), [1, 2], FakeRunner(lambda *_: StepCosts(0.01), QUIET))[
        0
    ]
    late = analyse(spec, records, around=Around(left_out=("2 of 2 suggestions",)))
    assert _clauses(late, "What to change") == ["Not known yet: no other setting was measured."]


def test_more_than_linear_is_said() -> None:
    spec = study(knobs={"batch_size": [64]})
    for contention_s, is_said in ((-0.003, True), (-0.0001, False)):
        costs = StepCosts(plain_s=0.010, contention_s=contention_s)
        results = analyse(spec, grid(spec, [1, 2], FakeRunner(lambda *_, costs=costs: costs, QUIET))[0])
        (said,) = _clauses(results, "Scaling")
        assert ("% efficiency, which is superlinear." in said) is is_said


def test_base_of_several_devices() -> None:
    spec = study(scaling={"world_sizes": [2, 4]}, knobs={"batch_size": [64]})
    costs = StepCosts(plain_s=0.01, exposed_s=0.001, missing={"plain": "out of memory"})
    answer = answer_of(
        analyse(spec, grid(spec, [2, 4], FakeRunner(lambda request, setting: costs, QUIET))[0])
    )
    assert answer.startswith(
        "4 devices train 2.00 times as fast as 2, with 100% efficiency. This is at batch 64 per device."
    )


def test_without_an_efficiency_nothing_is_said_of_what_to_change() -> None:
    spec = study(scaling={"world_sizes": [2]}, knobs={"batch_size": [64]})
    costs = StepCosts(plain_s=0.01, missing={"plain": "out of memory"})
    results = analyse(spec, grid(spec, [2], FakeRunner(lambda request, setting: costs, QUIET))[0])
    assert results.headline_scaling is not None
    assert results.headline_scaling.efficiency is None
    clauses = {each.question: each.words for each in answer(results)}
    assert "What to change" not in clauses  # what is lost is not known


def test_oversubscribed_recommends_nothing() -> None:
    spec = study(knobs={"batch_size": [64, 128]})
    requests = [request(setting=setting, oversubscribed=True, variants=FULL) for setting in spec.knobs.grid()]
    results = analyse(spec, run_all(FakeRunner(), requests)[0])
    assert results.best is None
    assert answer_of(results).startswith("Workers share cores here")


def test_strong_scaling_speaks_of_the_global_batch() -> None:
    spec = study(scaling={"mode": "strong", "world_sizes": [1, 2]}, knobs={"batch_size": [512]})
    assert "at global batch 512" in answer_of(analyse(spec, grid(spec, [1, 2])[0]))


def test_training_with_one_seed_has_no_verdict() -> None:
    plan, records = trained_study(FakeLearning(), training={"epochs": 3})
    results = analyse(plan.study, records)
    (clause,) = _clauses(results, "Training")
    assert re.match(r"Accuracy on 2 devices \(ddp\) is \d\.\d\d points (below|above)", clause)
    assert ", within the noise of the test samples (1.1" in clause


def test_a_large_gap_of_one_seed_is_said_with_what_it_rests_on() -> None:
    plan, records = trained_study(FakeLearning(per_device=-0.2), training={"epochs": 3})
    (clause,) = _clauses(analyse(plan.study, records), "Training")
    assert re.search(r" is 19\.\d\d points below that on one \(1 seed; three give an interval\)", clause)


@pytest.mark.parametrize(("per_device", "words"), [(0.0, "equals that on one"), (-0.05, "below that on one")])
def test_the_answer_says_what_was_planted(per_device: float, words: str) -> None:
    plan, records = trained_study(FakeLearning(spread=0.0002, per_device=per_device))
    results = analyse(plan.study, records)
    (clause,) = _clauses(results, "Training")
    assert "ccuracy on 2 devices (ddp)" in clause
    assert words in clause


@pytest.mark.parametrize(("checkpoint", "first"), [(None, True), ("distilbert-base-uncased", False)])
def test_training_from_random_weights_is_the_first_clause(checkpoint: str | None, first: bool) -> None:
    workload = {"name": "text", "input": "real", "model": "distilbert", "checkpoint": checkpoint}
    plan, records = trained_study(FakeLearning(), workload=workload, training={"epochs": 2})
    answer = answer_of(analyse(plan.study, records))
    words = "Distilbert is trained from random weights: it is fine-tuned with --set workload.checkpoint="
    assert answer.startswith(words) == first
    assert ("random weights" in answer) == first


def slower_at(**speedups: float) -> str:
    """What the answer says of other batches than 8, the default, which two devices train as fast as one."""
    of_batches = {(int(batch.removeprefix("b")),): exactly(value / 2) for batch, value in speedups.items()}
    answer = answer_of(planted({(8,): exactly(0.5)} | of_batches, "batch_size"))
    return answer.partition(", and they are slower at batch")[2].partition(".")[0]


def test_other_batches_at_which_devices_are_slower_are_named() -> None:
    assert slower_at(b32=0.9) == " 32"
    assert slower_at(b32=0.8, b128=1.5) == " 32, but not at 128"
    assert slower_at(b32=0.8, b128=0.9, b512=1.2, b1024=1.5) == "es 32 and 128, but not at 512"
    assert slower_at(b32=1.2, b128=0.9) == " 128"  # a larger batch than one that pays
    assert slower_at(b32=1.2) == ""
    assert slower_at(b32=0.999) == ""  # not certainly


def on_two_nodes(of_eight: float) -> StudyResults:
    """1, 2 and 4 devices on one node, 8 on two: 1.6 and 2.5 times as fast as one, and ``of_eight``."""
    speedups = {1: 1.0, 2: 1.6, 4: 2.5, 8: of_eight}
    spec = study(knobs={"batch_size": [32]})

    def costs(config: Configuration, setting: Setting) -> StepCosts:
        alone_s, n = 0.010, config.world_size
        return StepCosts(plain_s=alone_s, exposed_s=alone_s * (n / speedups[n] - 1))

    records = grid(spec, (1, 2, 4, 8), FakeRunner(costs, QUIET))[0]
    return analyse(
        spec, [each.model_copy(update={"nodes": 1 + each.config.world_size // 8}) for each in records]
    )


def test_more_devices_that_are_slower_than_fewer_are_not_advised() -> None:
    """As eight were advised where four are faster; the code to use is for those."""
    results = on_two_nodes(2.0)
    (change,) = _clauses(results, "What to change")
    assert change.startswith("Use 4 devices: 8 are 0.80 times as fast as 4.")
    use = to_use(results)
    assert use is not None
    assert (use.config.world_size, use.nodes) == (4, 1)
    code = use_it(results)
    assert code is not None
    assert code.sentences[0].endswith(" for 4 devices, as more are slower.")
    assert "--nproc-per-node=4" in code.variables
    (change,) = _clauses(on_two_nodes(2.49), "What to change")  # not certainly slower
    assert "Use 4" not in change


def test_one_device_that_only_slow_steps_make_faster_has_its_reason() -> None:
    """The typical step of two is no slower: the first sentence says 1.05 times as fast."""
    results = planted({(8,): exactly(0.525)}, "batch_size")
    assert results.headline is not None
    found = results.scaling(results.headline)
    assert found.speedup is not None
    slower = replace(found, mean_speedup=found.speedup.scaled(0.8))
    facts = replace(results, scalings={**results.scalings, results.headline.trial_id: slower})
    advice = device_advice(facts, results.recommendation)
    (words,) = fewer_words(replace(results, device_advice=advice))
    assert words == "use one device: 2 are 0.84 times as fast with rare slow steps included"


def test_a_load_that_was_beside_every_trial_is_said() -> None:
    """No trial was disturbed more than another, and yet all may be faster; Ray's own tenth is no matter."""
    spec = study(knobs={"batch_size": [32, 64]})
    for taken, is_said in ((0.6, True), (0.1, False)):
        costs = StepCosts(0.04, contention_s=0.01, other_cores=taken, host_cores=2)
        records = grid(spec, (1, 2), FakeRunner(lambda *_, costs=costs: costs, QUIET))[0]
        results = analyse(spec, records)
        (said,) = _clauses(results, "Trust")
        words = "Other processes took 0.60 of 2 cores: without them a step may be up to 20% shorter."
        assert (words in said) is is_said
        assert ("Other processes" in said) is is_said


@pytest.mark.parametrize(
    ("taken", "words"),
    [
        (0.6, "Use one device while other programs run, and measure again without them."),
        (0.0, "Use one device."),
    ],
)
def test_one_device_is_advised_under_the_load_that_there_was(taken: float, words: str) -> None:
    """As "use one device" where "without them 2 devices may beat one"."""
    spec = study(knobs={"batch_size": [32]})
    costs = StepCosts(0.04, exposed_s=0.05, other_cores=taken, host_cores=2)
    results = analyse(spec, grid(spec, (1, 2), FakeRunner(lambda *_: costs, QUIET))[0])
    (said,) = _clauses(results, "What to change")
    assert said.startswith(words)
    assert ("2 devices may beat one" in answer_of(results)) is (taken > 0)


def test_the_trust_says_whose_efficiency_it_is() -> None:
    """As 89% at most was expected after a setting with 95% had been advised."""
    better = planted({(32,): exactly(0.7), (64,): exactly(0.9)}, "batch_size")
    assert better.recommendation is not None
    assert not better.recommendation.is_default
    (said,) = _clauses(better, "Trust")
    assert said.endswith("% efficiency in another run of the default.")
    (said,) = _clauses(planted({(32,): exactly(0.7)}, "batch_size"), "Trust")
    assert said.endswith("% efficiency in another run.")


def test_a_training_that_diverged_is_said() -> None:
    plan, records = trained_study(FakeLearning(), training={"epochs": 3})
    for grown, is_said in ((10.0, True), (1.0, False)):
        changed = [
            each.model_copy(update={"result": _with_last_loss(each, grown)}) if each.training else each
            for each in records
        ]
        (said,) = _clauses(analyse(plan.study, changed), "Training")
        words = "Training diverged on 1 device and on 2 devices, ddp: its loss grew."
        assert said.startswith(words) is is_said


def _with_last_loss(record: TrialRecord, factor: float) -> TrainingResult:
    """The training of a record whose last loss is so many times its first one, or as it was."""
    assert record.training is not None
    *before, last = record.training.epochs
    loss = last.train_loss if factor == 1 else factor * before[0].train_loss
    last = last.model_copy(update={"train_loss": loss})
    return record.training.model_copy(update={"epochs": (*before, last)})


def test_a_report_on_gpus_has_one_word_for_them(tmp_path: Path) -> None:
    """As "2 GPUs train ..." and "accuracy on 2 devices" in one box."""
    plan, records = trained_study(FakeLearning())
    on_gpus = [
        each.model_copy(
            update={
                "request": each.request.model_copy(
                    update={"config": each.request.config.model_copy(update={"device": "cuda"})}
                )
            }
        )
        for each in records
    ]
    found = analyse(plan.study, on_gpus)
    write_report(tmp_path, found)
    report = tmp_path / "report"
    text = "".join((report / name).read_text() for name in ("report.md", "diagnosis.md"))
    assert "2 GPUs" in text
    assert not re.findall(r"[^\n]{0,40}\b\d+ devices?\b", text)


def test_a_load_that_explains_nothing_of_the_step_promises_nothing() -> None:
    """Two devices train more than twice as fast as one, while others took a core."""
    spec = study(knobs={"batch_size": [32]})
    costs = StepCosts(0.03, contention_s=-0.002, other_cores=1.0, host_cores=2)
    results = analyse(spec, grid(spec, (1, 2), FakeRunner(lambda *_: costs, QUIET))[0])
    (said,) = _clauses(results, "Trust")
    assert said.endswith("Other processes took 1.00 of 2 cores.")


def test_where_one_device_is_faster_even_with_the_setting_to_use_it_says_so() -> None:
    costs = {(32,): exactly(0.2, 0.010), (64,): exactly(0.4, 0.012)}
    results = planted(costs, "batch_size")
    use = results.recommendation
    assert use is not None
    assert use.label == "batch 64"
    assert "Use one device with batch 64: " in answer_of(results)
    assert "2 are 0.80 times as fast" in answer_of(results)
    assert "On 2 devices batch 64 is " in answer_of(results)
    sent = planted({("none",): exactly(0.2), ("fp16",): exactly(0.4)}, "gradient_compression")
    assert "Use one device: with fp16 compression 2 are 0.80 times as fast." in answer_of(sent)
    slower = planted({(32,): exactly(0.4)}, "batch_size")
    assert "Use one device." in answer_of(slower)
    faster = planted({(32,): exactly(0.8)}, "batch_size")
    assert "se one device" not in answer_of(faster)


@pytest.mark.parametrize(("cores", "is_cause"), [(0.12, False), (0.6, True)])
def test_the_little_that_ray_takes_is_no_cause_of_the_page(
    cores: float, is_cause: bool, tmp_path: Path
) -> None:
    spec = study(knobs={"batch_size": [32, 64]})
    costs = StepCosts(0.04, contention_s=0.01, other_cores=cores, host_cores=2)
    found = analyse(spec, grid(spec, (1, 2), FakeRunner(lambda *_: costs, QUIET))[0])
    assert FindingName.OTHER_PROCESSES in [each.name for each in found.diagnosis]
    write_report(tmp_path, found)
    page = (tmp_path / "report" / "report.md").read_text().split("## What it costs")[0]
    assert ("Other programs, on 0.6 of 2 cores, may be all of it" in page) is is_cause
    assert "**Other processes**" not in page
    assert ("Other processes took " in page) is is_cause  # how far to trust it


@pytest.mark.parametrize(("is_wrong", "advised"), [(True, "Keep the default (ddp)"), (False, "Use fsdp: ")])
def test_a_setting_whose_losses_are_wrong_is_not_to_be_used(is_wrong: bool, advised: str) -> None:
    parity = LossParity(samples_per_step=64, losses=(2.9,), reference_losses=(2.1,))
    of_fsdp = replace(exactly(0.9), of_result={"parity": parity} if is_wrong else {})
    results = planted({("ddp",): exactly(0.6), ("fsdp",): of_fsdp}, "strategy")
    (said,) = _clauses(results, "What to change")
    assert advised in said
    assert ("Do not use fsdp: " in said) is is_wrong
    # what was measured of DDP is no advice for FSDP
    assert "o try" not in said or is_wrong


def test_several_devices_that_are_not_shown_to_be_faster_than_one_are_no_silent_advice() -> None:
    words = "on 2 devices, which are not shown to be faster than one."
    for efficiency, is_said in ((0.5, True), (0.8, False)):
        results = planted({(32,): exactly(0.4, 0.02), (64,): exactly(efficiency, 0.02)}, "batch_size")
        (said,) = _clauses(results, "What to change")
        assert ("Use batch 64: " in said, words in said) == (True, is_said)


@pytest.mark.parametrize(
    ("rounds", "of_result", "words"),
    [
        ({"throttled": (True, True)}, {}, "GPUs throttled"),
        ({}, {"quota_used_up": (0.2, 0.2)}, "A CPU quota ran out"),
        (
            {"throttled": (True, True)},
            {"quota_used_up": (0.2, 0.2)},
            "A CPU quota ran out, and GPUs throttled",
        ),
    ],
)
def test_what_slowed_the_machine_is_in_the_answer(
    rounds: dict[str, object], of_result: dict[str, object], words: str
) -> None:
    """As "Nothing: no loss is large and certain enough to act on" above a throttled GPU."""
    spec = study(knobs={"batch_size": [64]})
    records = grid(spec, [1, 2], FakeRunner(lambda *_: StepCosts(plain_s=0.01), QUIET))[0]
    slowed = [
        each.model_copy(
            update={
                "result": each.steps.model_copy(
                    update={
                        "rounds": tuple(one.model_copy(update=rounds) for one in each.steps.rounds),
                        **of_result,
                    }
                )
            }
        )
        for each in records
        if each.steps is not None
    ]
    results = analyse(spec, slowed)
    assert words in _clauses(results, "Trust")[0]
    (said,) = _clauses(results, "What to change")
    assert said == f"To try: {next_step(results.diagnosis[0])}."
    assert all(len(each.split()) <= 32 for each in answer_of(results).split(". "))


def test_on_one_device_nothing_is_said_of_several() -> None:
    knobs = {"batch_size": [64], "optimizer_kernels": ["default", "fused"]}
    spec = study(knobs=knobs, scaling={"world_sizes": [1]}, search={"method": "grid"})

    def costs(config: Configuration, setting: Setting) -> StepCosts:
        return StepCosts(plain_s=0.010 if setting.optimizer_kernels == "fused" else 0.020)

    plan = make_plan(spec, Resources("cpu", 1, "a CPU"))
    _, store, _ = run(plan, FakeRunner(costs, QUIET))
    change = next(
        each for each in answer(analyse(plan.study, store.records)) if each.question == "What to change"
    )
    assert change.words == "Use optimizer_kernels fused: 2.00 times the default's speed on 1 device."

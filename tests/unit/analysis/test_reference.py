"""Which trials are of one setting, by its knobs and by its buckets, and which is its reference."""

from __future__ import annotations

import itertools
import re
from functools import cache
from typing import Any

import pytest
import torch
import torch.distributed as distributed

from raybench.analysis import analyse
from raybench.analysis.attribution import attribution
from raybench.analysis.choice import suggestions
from raybench.analysis.findings.verifications import in_same_rounds
from raybench.analysis.load import disagreements
from raybench.analysis.reference import KnownBuckets, between_starts, bucket_sizes, without_batch
from raybench.analysis.resolve import resolve
from raybench.analysis.results import StudyResults
from raybench.analysis.simulate.timeline import BucketCap, assign, bucket_limits
from raybench.analysis.stats.statistics import BETWEEN_STARTS
from raybench.commands.notes import note_words
from raybench.errors import RequestError
from raybench.machine.host import Resources
from raybench.plan.notes import Note, NoteKind, Stage, left_out
from raybench.plan.resolve import grid_of_search, make_plan
from raybench.plan.trials import Plan
from raybench.records.record import TrialRecord
from raybench.records.requests import Configuration
from raybench.report.answer import answer_box, answer_of
from raybench.report.contents import make_tables
from raybench.report.diagnosis import diagnosis_markdown, grouped
from raybench.report.finding_texts import evidence, next_step
from raybench.report.sections.configurations import attribution_table, configurations_table
from raybench.report.sections.cost import cost_table
from raybench.report.sections.overlap import model_buckets_table, sizes_words
from raybench.report.sections.scaling import scaling_plot, scaling_table
from raybench.report.sections.search import confirmation_table, suggestions_table
from raybench.report.terminal import terminal_table
from raybench.spec import Setting
from raybench.spec.workloads import MLPSpec, TextSpec, VisionSpec, WorkloadSpec
from raybench.workloads import build
from tests.support.planted import QUIET, FakeRunner, Noise, StepCosts, run_all
from tests.unit.runs import QUIET_ENOUGH, MemoryStore, run
from tests.unit.studies import MIB, asked, config, exactly, grid, measured, planted, study

TWO = {"setting": Setting(batch_size=32, bucket_cap_mb=1)}
ONE = {"setting": Setting(batch_size=32).at(1), "world_size": 1}


@pytest.mark.parametrize(
    ("one", "other", "is_same"),
    [
        (TWO, TWO, True),
        (TWO, TWO | {"world_size": 4, "placement": "spread", "seed": 7, "oversubscribed": True}, True),
        (TWO, {"setting": Setting(batch_size=64, bucket_cap_mb=1)}, False),
        (TWO, {"setting": Setting(batch_size=32)}, False),
        (TWO, ONE, True),  # the buckets do not matter on one device
        (TWO, ONE | {"setting": Setting(batch_size=64).at(1)}, False),
        (TWO, TWO | {"environment": {"OMP_PROC_BIND": "true"}}, False),
        (TWO, TWO | {"scaling": "strong"}, False),
        (TWO, TWO | {"device": "cuda"}, False),
        (TWO, TWO | {"data": "elsewhere"}, False),
    ],
)
def test_the_same_question_differs_in_world_size_and_placement_alone(
    one: dict[str, object], other: dict[str, object], is_same: bool
) -> None:
    assert config(**one).same_question(config(**other)) is is_same
    assert config(**other).same_question(config(**one)) is is_same


def test_the_same_setting_may_be_of_another_workload() -> None:
    one, other = config(**TWO), config(**TWO, workload={"name": "vision"}, placement="spread", seed=3)
    assert one.same_setting(other)
    assert not one.same_question(other)
    for field in ({"environment": {"A": "1"}}, {"scaling": "strong"}, {"setting": Setting(batch_size=64)}):
        assert not one.same_setting(config(**TWO | field))


def test_a_setting_counts_as_far_as_it_can_matter_on_its_world_size() -> None:
    buckets = [Configuration.model_validate(dict(config(**TWO)) | {"world_size": 1})]
    buckets.append(buckets[0].model_copy(update={"setting": Setting(batch_size=32, bucket_cap_mb=25)}))
    assert buckets[0].same_setting(buckets[1])


def test_two_points_of_a_batch_curve_differ_in_the_batch_alone() -> None:
    one, other = (config(setting=Setting(batch_size=batch)) for batch in (8, 64))
    assert one != other
    assert without_batch(one) == without_batch(other)
    assert without_batch(one) != without_batch(config(setting=Setting(batch_size=8, precision="bf16")))


def test_starts_differ_between_worker_groups_alone() -> None:
    record = measured(StepCosts(plain_s=0.01), QUIET)
    elsewhere = record.model_copy(update={"group": record.group + 1})
    assert between_starts(record, record) == 0.0
    assert between_starts(record, elsewhere) == between_starts(elsewhere, record) == BETWEEN_STARTS


KIB = 2**10
SMALL = (256 * KIB, 128 * KIB, 64 * KIB)  # one bucket whatever the cap
# the first bucket of the default is full at 1 MiB; 25 and 100 MiB hold all of it
LARGE = (700 * KIB, 700 * KIB, 2 * MIB, 2 * MIB)
CAPS = ("default", 1, 25)


def of_model(parameter_bytes: tuple[int, ...], gain_of_cap: dict[object, float] | None = None) -> FakeRunner:
    """A model of these gradients; a cap's exposed communication is less by ``gain_of_cap`` s."""

    def costs(config: Configuration, setting: Setting) -> StepCosts:
        gain_s = (gain_of_cap or {}).get(setting.bucket_cap_mb, 0.0)
        exposed_s = 0.004 - gain_s if config.world_size > 1 else 0.0
        step_s = 0.005 + 5e-5 * setting.batch_size
        return StepCosts(plain_s=step_s, exposed_s=exposed_s, parameter_bytes=parameter_bytes)

    return FakeRunner(costs, QUIET_ENOUGH)


def planned(**fields: object) -> Plan:
    given = {"knobs": {"batch_size": [64, 32], "bucket_cap_mb": list(CAPS)}, "measure": {"half_width": 0.02}}
    return make_plan(study(**(given | fields)), Resources("cpu", 2, "a CPU"))


def asked_caps(store: MemoryStore) -> set[object]:
    return {r.config.setting.bucket_cap_mb for r in store.records if r.config.world_size > 1}


@pytest.mark.parametrize(
    ("order", "cap", "sizes"),
    [
        (SMALL, "default", (sum(SMALL),)),
        (SMALL, 1, (sum(SMALL),)),
        (LARGE, "default", (1400 * KIB, 4 * MIB)),
        (LARGE, 25, (sum(LARGE),)),
        (LARGE, 1, (1400 * KIB, 2 * MIB, 2 * MIB)),
    ],
)
def test_the_sizes_are_those_of_ddps_own_rule(order, cap, sizes):
    assert bucket_sizes(order, cap) == sizes


@pytest.mark.parametrize("cap", [0.25, 1, 5, 25])
@pytest.mark.parametrize("order", [SMALL, LARGE, tuple(KIB * (1 + 37 * k % 900) for k in range(60))])
def test_the_rule_is_the_one_that_torch_has(order, cap):
    """As ``rebuild_buckets`` calls it: of a given cap the first bucket has it too."""
    tensors = [torch.empty(size // 4) for size in order]
    buckets, _ = distributed._compute_bucket_assignment_by_size(tensors, [int(cap * MIB)])
    assert bucket_sizes(order, cap) == tuple(sum(order[index] for index in each) for each in buckets)


@pytest.mark.parametrize("cap", ["default", 0.5, 1.0, 2.5, 25.0])
@pytest.mark.parametrize(
    "workload",
    [
        MLPSpec(name="mlp", input_dim=256, hidden_dim=512, output_dim=64, num_layers=4),
        TextSpec(name="text", vocab_size=4000, sequence_length=16),
        VisionSpec(name="vision", model="resnet18"),
        VisionSpec(name="vision", model="mobilenet_v3_small"),
    ],
    ids=["mlp", "text", "resnet18", "mobilenet"],
)
def test_the_assignment_of_a_models_gradients_is_torchs(workload: WorkloadSpec, cap: BucketCap) -> None:
    sizes = gradient_bytes(workload)
    # as Reducer::rebuild_buckets calls it: in the order of readiness, which indices tell
    theirs, _ = distributed._compute_bucket_assignment_by_size(
        [torch.empty(size // 4) for size in sizes],
        list(bucket_limits(cap)),
        [False] * len(sizes),
        list(range(len(sizes))),
    )
    assert [list(each) for each in assign(sizes, cap)] == theirs
    assert bucket_limits("default")[0] == distributed._DEFAULT_FIRST_BUCKET_BYTES


@cache
def gradient_bytes(workload: WorkloadSpec) -> list[int]:
    parameters = reversed(list(build(workload, None).model().parameters()))
    return [each.nbytes for each in parameters if each.requires_grad]


def test_one_trial_tells_which_sizes_are_the_same():
    known = KnownBuckets(CAPS)
    small = Setting(bucket_cap_mb=25, precision="bf16")
    assert known.standing(small, 2) == small  # nothing is known yet
    costs = StepCosts(plain_s=0.01, exposed_s=0.002, parameter_bytes=SMALL)
    assert known.learn(measured(costs, setting=Setting()))
    assert not known.learn(measured(costs, setting=Setting()))
    assert known.standing(small, 2) == Setting(bucket_cap_mb="default", precision="bf16")
    assert known.standing(small, 1) == small  # one device has no buckets
    compiled = small.model_copy(update={"compile": True})
    assert known.standing(compiled, 2) == compiled  # its gradients may come in another order


def test_a_grid_measures_what_is_the_same_once_and_says_so():
    plan = planned()
    session, store, _ = run(plan, of_model(SMALL))
    assert asked_caps(store) == {"default"}
    assert len([r for r in store.records if r.config.world_size == 2 and r.request.role == "scaling"]) == 2
    assert [note_words(plan.study, note) for note in session.notes] == [
        "1 MiB buckets are default buckets for this model: 2 trials were not measured a second time",
        "25 MiB buckets are default buckets for this model: 2 trials were not measured a second time",
    ]
    assert left_out(plan.study, store.records) == []
    results = analyse(plan.study, store.records)
    table = model_buckets_table(results)
    assert "114,688 trained parameters in 3 tensors: 0.438 MiB of gradients" in table.caption
    assert [row[0] for row in table.rows] == ["default buckets", "1 MiB buckets", "25 MiB buckets"]
    assert [row[1:] for row in table.rows] == [
        ("1", "0.438", "DDP", ""),
        ("1", "0.438", "DDP's rule", "default buckets"),
        ("1", "0.438", "DDP's rule", "default buckets"),
    ]
    again = of_model(SMALL)
    run(plan, again, store)
    assert again.requests == []


def test_what_would_be_measured_as_another_is_not_left_out_beside_it():
    plan = planned()
    _, store, _ = run(plan, of_model(SMALL))
    whole = store.records
    store.records = [r for r in whole if r.config.setting.batch_size == 64 and r.config.world_size == 2]
    (note, *_) = left_out(plan.study, store.records)
    assert (note.stage, len(note.requests), note.total) == (Stage.CURVES, 3, 8)
    (default,) = store.records[:1]
    store.records = [default, *(r.model_copy(update={"state": "crashed"}) for r in whole if r != default)]
    known = KnownBuckets(CAPS, store.records)
    asked = [each.request for each in plan.trials() if each.request.config.world_size == 2]
    stand_ins = [known.stand_in(each) for each in asked]
    own = [each.config.setting.batch_size for each, other in zip(asked, stand_ins, strict=True) if not other]
    assert own == [64, 32, 32, 32]  # the crashed one stands for no other
    assert {each.trial_id for each in stand_ins if each} == {default.trial_id}


def test_a_grid_of_a_larger_model_measures_every_size_that_differs():
    plan = planned(knobs={"bucket_cap_mb": ["default", 1, 25, 100]})
    _, store, _ = run(plan, of_model(LARGE))
    assert asked_caps(store) == {"default", 1, 25}
    rows = model_buckets_table(analyse(plan.study, store.records)).rows
    assert [row[1] for row in rows] == ["2", "3", "1", "1"]
    assert [row[-1] for row in rows] == ["", "", "", "25 MiB buckets"]


def test_a_search_suggests_no_second_of_the_same():
    plan = planned(search={"method": "optuna", "trials": 5})
    session, store, _ = run(plan, of_model(SMALL))
    searched = [r for r in store.records if r.request.role == "search"]
    assert sorted(r.config.setting.batch_size for r in searched) == [32, 64]
    assert asked_caps(store) == {"default"}
    assert Note(NoteKind.SPACE_EXHAUSTED, Stage.SEARCH, 2, 5) in session.notes
    assert left_out(plan.study, store.records) == []


def test_what_was_measured_anyway_is_one_setting_in_every_choice():
    """Of three that are the same the luckiest would be "best", and be confirmed against itself."""
    spec = study(knobs={"bucket_cap_mb": list(CAPS), "precision": ["fp32", "bf16"]})
    runner = of_model(SMALL, gain_of_cap={1: 0.0005, 25: 0.001})  # as chance has it
    records, _ = grid(spec, (1, 2), runner)
    assert len([r for r in records if r.config.world_size == 2]) == 6
    assert [r.config.setting.precision for r in suggestions(spec, records, 2)] == ["fp32", "bf16"]
    results = resolve(spec, records)
    assert {r.config.setting.bucket_cap_mb for r in results.tried} == {"default"}
    found = attribution(results)
    assert found is not None
    assert [each.label for each in (*found.singles, *found.together)] == ["bf16"]
    rows = configurations_table(analyse(spec, records)).rows
    assert sorted(row[0] for row in rows) == ["default buckets, bf16", "default buckets, fp32"]


def test_older_records_that_tell_no_parameters_are_left_as_they_are():
    spec = study(knobs={"bucket_cap_mb": list(CAPS)})
    records, _ = grid(spec, (2,), of_model(SMALL))
    bare = [
        record.model_copy(
            update={
                "result": record.steps.model_copy(update={"gradient_timeline": None, "num_parameters": None})
            }
        )
        for record in records
        if record.steps
    ]
    assert len(suggestions(spec, bare, 2)) == 3


@pytest.mark.parametrize(("trials", "method"), [(5, "optuna"), (6, "optuna"), (7, "grid"), (1000, "grid")])
def test_more_suggestions_than_combinations_become_a_grid(trials, method):
    plan = planned(search={"method": "optuna", "trials": trials})
    found = grid_of_search(plan)
    assert (found is None) == (method == "optuna")
    pairs = itertools.product((64, 32), CAPS)
    if found is not None:
        made, number = found
        assert (made.study.search.method, number) == ("grid", 6)
        settings = {(each.setting.batch_size, each.setting.bucket_cap_mb) for each in made.suggestions()}
        assert settings == set(pairs)


def test_a_grid_that_is_too_large_stays_a_search():
    batches = list(range(1, 2_602))  # twice as many trials, at two world sizes
    plan = planned(knobs={"batch_size": batches}, search={"method": "optuna", "trials": 5_000})
    assert grid_of_search(plan) is None


def test_a_search_of_more_than_5000_trials_is_refused():
    with pytest.raises(RequestError, match=r"search\.trials: at most 5,000"):
        planned(search={"method": "optuna", "trials": 5_001})


def test_sizes_of_many_buckets_fit_a_cell():
    assert sizes_words((MIB, MIB, MIB, 512 * KIB)) == "3 x 1.00, 0.5"
    assert sizes_words(tuple(k * MIB for k in range(1, 20))).endswith("6.00, 13 more")


STEADY = Noise(block=0.003, step=0.001)
FP32, BF16 = Setting(batch_size=64), Setting(batch_size=64, precision="bf16")
SPEC = study(
    knobs={"batch_size": 64, "precision": ["fp32", "bf16"]},
    search={"method": "optuna", "trials": 2},
    measure={"half_width": 0.02},
)


def trial(
    role: str, setting: Setting, size: int, slow: float = 1.0, others: float = 0.02, **fields: Any
) -> TrialRecord:
    """On two cores: 10 ms alone in fp32, 4 in bf16; 12 and 6 on two devices; all ``slow`` times as long."""

    def costs(config: Configuration, setting: Setting) -> StepCosts:
        alone_s = 0.004 if setting.precision == "bf16" else 0.010
        exposed_s = 0.002 if config.world_size > 1 else 0.0
        return StepCosts(plain_s=slow * alone_s, exposed_s=slow * exposed_s, other_cores=others, host_cores=2)

    request = asked(SPEC, role, setting, size, **fields)
    return run_all(FakeRunner(costs, STEADY, seed=3), [request])[0][0]


def confirmed(slow: float = 1.0) -> TrialRecord:
    return trial("confirmation", BF16, 2, slow, anchor=FP32, variants=("ddp", "anchor"))


def curves(slow_default: float = 1.0, slow_one: float = 1.0) -> list[TrialRecord]:
    """Default and winner on two devices and on one."""
    return [
        trial("scaling", FP32, 2, slow_default, others=0.9 if slow_default > 1 else 0.02),
        trial("scaling", FP32, 1, slow_one),
        trial("scaling", BF16, 2),
        trial("scaling", BF16, 1),
    ]


def searched(slow_default: float = 1.0) -> list[TrialRecord]:
    first = trial("search", FP32, 2, slow_default, others=0.9)
    second = trial("search", BF16, 2)
    return [first, second.model_copy(update={"suggestion": 1})]


def analysed(*records: TrialRecord) -> StudyResults:
    return analyse(SPEC, records)


# --- paired first


def test_the_gain_of_a_setting_is_that_of_its_confirmation_wherever_it_stands():
    """As +358% stood beside 2.15x: while the default's curve was measured others were at work, 1.4 times."""
    results = analysed(*searched(), *curves(slow_default=1.4), confirmed())
    (confirmation,) = results.confirmations
    attributed = results.attribution
    assert attributed is not None
    (effect,) = attributed.singles
    assert effect.is_paired
    gain = confirmation.gain.gain
    assert gain.value == pytest.approx(1.0, abs=0.02)  # 12 ms to 6
    apart = [results.scaling(each.record).throughput_samples_per_s.value for each in (effect,)]
    default = results.scaling(attributed.default).throughput_samples_per_s.value
    assert apart[0] / default == pytest.approx(2.8, rel=0.02)  # what two trials apart would say
    ratio = effect.throughput_ratio
    assert (ratio.value - 1, ratio.low - 1, ratio.high - 1) == pytest.approx(
        (gain.value, gain.low, gain.high)
    )
    assert confirmation_table(results).rows[0][2].startswith("+100%")
    row = attribution_table(results).rows[0]
    assert row[4].startswith("2.00x")
    assert "interleaved" in row
    assert "+100%" in answer_of(results)
    assert "in the same rounds" in answer_of(results)


def test_without_a_confirmation_two_trials_are_compared_and_called_apart():
    results = analysed(*searched(), *curves())
    assert results.attribution is not None
    (effect,) = results.attribution.singles
    assert not effect.is_paired
    assert "apart" in attribution_table(results).rows[0]


# --- of one setting one figure


def test_a_default_slow_in_the_search_has_its_figure_of_the_curve_and_the_difference_is_named():
    """As 10,101 samples/s in the search and 33,600 on the curve."""
    results = analysed(*searched(slow_default=3.3), *curves(), confirmed())
    curve_rate = results.scaling(results.headline).throughput_samples_per_s.value
    suggestion = next(row for row in suggestions_table(results).rows if row[1] == "fp32")
    assert float(suggestion[2].split()[0].replace(",", "")) == pytest.approx(curve_rate, abs=1)
    assert "on the curve" in suggestion
    (found,) = [each for each in results.disagreements if each.config.world_size == 2]
    assert found.ratio.value == pytest.approx(1 / 3.3, rel=0.02)
    assert found.is_settled  # the confirmation bears the curve out
    (finding,) = [each for each in results.diagnosis if "fp32 on 2 devices" in evidence(each)]
    assert finding.name == "measurements disagree"
    assert finding.severity == "note"
    told, other = evidence(finding).split(", but ")
    assert float(told.split(": ")[1].split()[0].replace(",", "")) == pytest.approx(curve_rate, abs=1)
    assert float(other.split()[0].replace(",", "")) == pytest.approx(curve_rate / 3.3, rel=0.02)
    assert "samples/s on the curve" in told
    assert "samples/s in the search" in other
    assert "other processes took 0.90 of 2 cores" in evidence(finding)
    assert "other processes took 0.02 of 2 cores" in evidence(finding)
    assert "bears it out" in next_step(finding)
    text = diagnosis_markdown(results, make_tables(results), answer_of(results), grouped(results.findings))
    assert "Measurements disagree" in text


def test_what_nothing_bears_out_is_a_warning_in_the_first_lines():
    results = analysed(*searched(slow_default=3.3), *curves(slow_default=1.6), confirmed())
    found = next(each for each in results.disagreements if each.config.world_size == 2)
    assert not found.is_settled
    named = [each for each in results.diagnosis if "fp32 on 2 devices" in evidence(each)]
    loaded, finding = named  # beside one that was not, so it comes first
    assert (loaded.name, loaded.comes_first) == ("measured under load", True)
    assert (finding.name, finding.severity) == ("measurements disagree", "warning")
    assert "nothing bears it out" in next_step(finding)
    words = next(each.words for each in answer_box(results) if each.question == "Not sure")
    assert "fp32 on 2 devices had" in words
    assert "as told here" in words
    told, other = words.split(", as told here, and ")  # each with what it would say of the scaling
    assert re.search(r"samples/s \(\d\.\d+x \[.*\]\) on the curve", told)
    if "in the search" in other:
        assert re.search(r"\(\d\.\d+x \[.*\]\) in the search", other)


def test_a_row_of_one_device_says_in_whose_rounds_its_figure_was_measured():
    results = analysed(*searched(), *curves(slow_one=1.3), confirmed())
    alone = [row for row in scaling_table(results).rows if row[0] == "1"]
    assert alone
    assert all(row[1].endswith(" (in the rounds of 2)") for row in alone)
    assert not any("in the rounds of" in row[1] for row in scaling_table(results).rows if row[0] == "2")


def test_measurements_that_agree_are_not_spoken_of():
    results = analysed(*searched(), *curves(), confirmed())
    assert results.disagreements == ()
    assert all(each.name != "measurements disagree" for each in results.findings)
    assert "disagree" not in answer_of(results)


@pytest.mark.parametrize("seed", range(5))
def test_noise_alone_is_seldom_a_disagreement(seed):
    """As often as the intervals are said to fail: 5% of studies."""
    spec = study(knobs={"batch_size": [64, 32], "precision": ["fp32", "bf16"]}, measure={"half_width": 0.05})
    found = 0
    for number in range(8):
        records = grid(spec, (1, 2), FakeRunner(noise=Noise(), seed=100 * seed + number))[0]
        found += bool(disagreements(resolve(spec, records)))
    assert found <= 3


# --- one device beside several


def test_throughput_and_speed_up_of_a_curve_tell_the_same():
    """As a plot in which throughput rises and one in which the speed-up falls: one device, slower alone."""
    results = analysed(*curves(slow_one=1.4))
    plot = scaling_plot(results)
    assert plot is not None
    for line, efficiencies in zip(plot.throughput, plot.efficiency, strict=True):
        one, two = (point.estimate.value for point in line.points)
        assert two / one / 2 == pytest.approx(efficiencies.points[-1].estimate.value), line.label
    assert plot.ideal[0][1] == plot.throughput[0].points[0].estimate.value
    rows = [row for row in scaling_table(results).rows if row[1].startswith("fp32")]
    rates = [float(row[3].split()[0].replace(",", "")) for row in rows]
    assert rates[1] / rates[0] == pytest.approx(float(rows[1][4].split("x")[0]), rel=0.01)
    drawn = terminal_table(results, 100)
    cells = list(drawn.columns[3].cells)
    assert float(str(cells[1]).replace(",", "")) / float(str(cells[0]).replace(",", "")) == pytest.approx(
        rates[1] / rates[0], rel=0.01
    )
    (found,) = results.disagreements
    assert found.config.world_size == 1
    assert found.ratio.value == pytest.approx(1 / 1.4, rel=0.02)
    assert [each.where for each in found.others] == ["in a trial of its own"]


def test_savings_are_the_difference_of_the_times_beside_them():
    """As 4.84 min on two devices, 5.59 on one, which saved -0.221 h."""
    results = analysed(*curves(slow_one=0.5))  # alone, one device was twice as fast as in the rounds on two
    one, two = (
        next(each for each in results.costs if each.record.config.world_size == size and "fp32" in each.label)
        for size in (1, 2)
    )
    runs = results.study.cost.runs
    assert two.saved_s is not None
    difference_s = (one.costs[-1].time_s.value - two.costs[-1].time_s.value) * runs
    assert two.saved_s.value == pytest.approx(difference_s)
    assert two.cost_ratio is not None
    device_times = two.costs[-1].device_s.value / one.costs[-1].device_s.value
    assert two.cost_ratio.value == pytest.approx(device_times)
    assert cost_table(results).rows


def test_what_is_too_unsure_bears_nothing_out():
    """Of a busy machine an interval that holds everything agrees with everything."""
    unsure = FakeRunner(
        lambda config, setting: StepCosts(plain_s=0.010, exposed_s=0.006), Noise(block=0.8), seed=5
    )
    wide = run_all(unsure, [asked(SPEC, "confirmation", BF16, 2, anchor=FP32, variants=("ddp", "anchor"))])
    results = analysed(*searched(slow_default=1.5), *curves(), wide[0][0])
    found = next(each for each in results.disagreements if each.config.world_size == 2)
    assert found.agrees is None or abs(found.agrees.rate.value / found.speaks.rate.value - 1) < 0.25


def test_a_figure_far_off_is_named_however_wide_its_interval():
    """As 10,101 samples/s in the search, of three rounds and with others at work, beside 33,600."""
    first, second = searched(slow_default=1.0)
    told = first.model_dump(mode="json")
    for slow, found in zip((1.0, 4.0, 9.0), told["result"]["rounds"], strict=False):
        for block in found["blocks"]:
            block["step_time_s"] = [slow * each for each in block["step_time_s"]]
            block["slowest_s"] *= slow
    del told["result"]["rounds"][3:]
    unsure = TrialRecord.model_validate(told)
    results = analysed(unsure, second, *curves())
    (found,) = [each for each in results.disagreements if each.config.world_size == 2]
    assert not found.is_certain
    assert found.ratio.value < 1 / 2
    (finding,) = [each for each in results.diagnosis if "fp32 on 2 devices" in evidence(each)]
    assert finding.name == "measurements disagree"
    assert "too wide to tell" in evidence(finding)
    words = next(each.words for each in answer_box(results) if each.question == "Not sure")
    assert "too unsure to tell whether that is chance" in words


# --- measured again


def test_of_what_was_measured_again_the_last_speaks_and_all_are_shown():
    slow = curves(slow_default=1.6)
    again = trial("scaling", FP32, 2, again=1)
    assert again.trial_id != slow[0].trial_id
    results = analysed(*searched(), *slow, confirmed(), again)
    assert results.headline is again
    found = next(each for each in results.disagreements if each.config.world_size == 2)
    assert found.is_settled
    assert found.speaks.record is again
    assert [each.where for each in found.others] == ["on the curve before"]
    shown = [row for row in make_tables(results).trials.rows if row[0] in (slow[0].trial_id, again.trial_id)]
    assert [row[2] for row in shown] == ["complete, measured again", "complete"]
    assert [row.trial_id for row in results.summaries].count(again.trial_id) == 1
    assert slow[0].trial_id not in [row.trial_id for row in results.summaries]
    assert len(scaling_table(results).rows) == 4


def test_a_repeat_that_failed_replaces_nothing():
    slow = curves()
    failed = slow[0].model_copy(
        update={
            "trial_id": "0" * 12,
            "request": slow[0].request.model_copy(update={"again": 1}),
            "state": "crashed",
            "reason": "gone",
            "result": None,
        }
    )
    results = analysed(*slow, failed)
    assert results.headline is slow[0]
    assert results.failed == (failed,)


def test_verifications_share_rounds_for_the_diagnosis_as_for_what_each_knob_changes():
    """Apart, bf16 was 1.4 times as fast in a slow hour of the default; in the same rounds it is twice."""
    tested = trial("verification", BF16, 2, anchor=FP32, variants=("ddp", "anchor"))
    results = analysed(*curves(slow_default=0.7), tested)
    assert results.attribution is not None
    (effect,) = results.attribution.singles
    assert effect.throughput_ratio.value == pytest.approx(2.0, rel=0.02)
    default = next(each for each in results.configurations if each.record is results.headline)
    assert [change.throughput_ratio for change in default.changes] in ([effect.throughput_ratio], [])
    shared = in_same_rounds(resolve(SPEC, [*curves(), tested]), ())
    assert shared.ratio(tested.config, results.headline.config).value == pytest.approx(2.0, rel=0.02)


def test_the_base_of_a_speed_up_is_not_one_that_was_measured_again():
    """No block of one device fits: the smallest world size is the base, as its last measurement has it."""
    spec = study(knobs={"batch_size": 64}, scaling={"world_sizes": [2, 4]})

    def measured(size: int, slow: float, **fields: Any) -> TrialRecord:
        costs = StepCosts(plain_s=slow * 0.010)
        request = asked(spec, "scaling", FP32, size, variants=("local", "ddp"), **fields)
        return run_all(FakeRunner(lambda config, setting: costs, STEADY, seed=3), [request])[0][0]

    first, larger, again = measured(2, 3.0), measured(4, 1.0), measured(2, 1.0, again=1)
    results = analyse(spec, [first, larger, again])
    scaled = results.scaling(larger)
    assert scaled.baseline is not None
    assert scaled.baseline.step_time_s.value == results.scaling(again).step_time_s.value
    assert scaled.efficiency is not None
    assert scaled.efficiency.value == pytest.approx(1.0, rel=0.02)


def test_of_two_equal_figures_the_one_of_the_curve_speaks():
    """One device takes 10 ms in the rounds of both bucket sizes, to the last digit, and 14 by itself."""
    spec = study(knobs={"batch_size": 64, "bucket_cap_mb": [25, 1]})
    default, other = (Setting(batch_size=64, bucket_cap_mb=size) for size in (25, 1))

    def measured(setting: Setting, size: int) -> TrialRecord:
        costs = StepCosts(plain_s=0.010 if size > 1 else 0.014, exposed_s=0.002)
        request = asked(spec, "scaling", setting, size)
        return run_all(FakeRunner(lambda config, setting: costs, STEADY, seed=3), [request])[0][0]

    first, second, one = measured(other, 2), measured(default, 2), measured(default, 1)
    results = analyse(spec, [first, second, one])
    (found,) = (each for each in results.disagreements if each.config.world_size == 1)
    assert {each.record.trial_id for each in (found.speaks, found.agrees)} == {
        first.trial_id,
        second.trial_id,
    }
    assert found.speaks.rate == found.agrees.rate
    assert found.speaks.record is second
    assert results.reported_by[one.trial_id] == second.trial_id


# --- a confirmed setting without a curve


def test_a_confirmation_says_how_fast_a_setting_without_a_curve_is():
    """As where the time budget ended before its curve: the search had 10% less than was measured again."""
    slow = trial("search", BF16, 2, slow=1.1).model_copy(update={"suggestion": 1})
    default, confirmation = [trial("search", FP32, 2), *curves()[:2]], confirmed()
    results = analysed(*default, slow, confirmation)
    again, searched_rate = (
        results.own_scalings[each.trial_id].throughput_samples_per_s for each in (confirmation, slow)
    )
    assert searched_rate.value == pytest.approx(again.value / 1.1, rel=0.02)
    told = results.scaling(slow)
    assert told.throughput_samples_per_s == again
    assert told.step_time_s == results.own_scalings[confirmation.trial_id].step_time_s
    assert told.efficiency == results.own_scalings[slow.trial_id].efficiency  # a confirmation measures none
    assert told.efficiency is not None
    row = next(row for row in suggestions_table(results).rows if "bf16" in row[1])
    assert float(row[2].split()[0].replace(",", "")) == pytest.approx(again.value, abs=1)
    assert "in the confirmation" in row
    drawn = terminal_table(results, 100)
    shown = [str(cell) for cell in drawn.columns[3].cells]
    assert f"{again.value:,.0f}" in shown
    assert f"{searched_rate.value:,.0f}" not in shown
    found = next(each for each in results.disagreements if each.config.setting == slow.config.setting)
    assert found.speaks.record is confirmation
    (effect,) = results.attribution.singles
    ratio = (
        results.scaling(effect.record).throughput_samples_per_s.value
        / results.headline_scaling.throughput_samples_per_s.value
    )
    assert ratio == pytest.approx(effect.throughput_ratio.value, rel=0.02)  # beside each other they agree


def test_a_curve_speaks_before_a_confirmation():
    results = analysed(*searched(), *curves(), confirmed(slow=1.2))
    on_curve = next(
        each for each in results.tried if each.config.setting == BF16.at(2) and each.config.world_size == 2
    )
    assert on_curve.request.role == "scaling"
    assert on_curve.trial_id not in results.reported_by
    assert results.scaling(on_curve) == results.own_scalings[on_curve.trial_id]


def test_two_measurements_of_one_kind_have_two_names():
    """One device was slower in the rounds of another setting on as many devices."""
    costs = {("default",): exactly(0.8, 0.01), (1,): exactly(0.8, 0.02)}
    apart = [each for each in planted(costs, "bucket_cap_mb").disagreements if each.config.world_size == 1]
    assert apart
    for each in apart:
        names = [each.speaks.where, *(other.where for other in each.others)]
        assert len(set(names)) == len(names)
    assert any(other.where == "in the rounds of another trial" for each in apart for other in each.others)

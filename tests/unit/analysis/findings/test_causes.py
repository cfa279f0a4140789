"""Planted causes come back as the first finding, and nothing is claimed of sound studies.

benchmarks/diagnosis.py does the same with hundreds of studies.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from raybench.analysis.findings.case import Case
from raybench.analysis.findings.communication import unattributed_loss
from raybench.analysis.findings.finding import Finding, FindingName, Reason
from raybench.analysis.results import StudyResults
from raybench.report.finding_texts import cost, evidence, next_step
from raybench.report.method import method_words
from raybench.spec.knobs import Setting
from tests.support.analysis import analyse
from tests.support.planted import QUIET, FakeHardware, FakeRunner, Noise, StepCosts, run_all
from tests.support.planted.causes import CAUSES, PlantedCause, faults, measure, simulate, sound_site
from tests.unit.studies import SHORT, asked, grid, study

MIB = 2**20


Simulated = dict[int, StudyResults]  # by the place of the cause


@pytest.fixture(scope="module")
def simulated() -> Simulated:
    """A study of each cause, with as many visits as a user's."""
    return {place: simulate([cause], place, visits=3)[0] for place, cause in enumerate(CAUSES)}


@pytest.mark.parametrize("place", range(len(CAUSES)), ids=[f"{each.name} {each.kind}" for each in CAUSES])
def test_a_planted_cause_is_the_first_finding(place: int, simulated: Simulated) -> None:
    cause = CAUSES[place]
    right = right_of(cause, 1) + is_first(cause, simulated[place])
    # with a few rounds of each device alone one cannot always tell that one is slower
    assert right >= (1 if cause.reason is Reason.SLOW_ALONE or cause.pairs else 2)


def is_first(cause: PlantedCause, results: StudyResults) -> bool:
    found = faults(results.diagnosis)
    return bool(found) and cause.is_named_by(found[0])


def right_of(cause: PlantedCause, studies: int, visits: int = 1) -> int:
    """In how many it is the first finding."""
    return sum(is_first(cause, simulate([cause], seed, visits=visits)[0]) for seed in range(studies))


def test_of_two_causes_the_larger_comes_first() -> None:
    pairs = [cause for cause in CAUSES if cause.pairs]
    right, number = 0, 0
    for place, larger in enumerate(pairs):
        smaller = pairs[(place + 3) % len(pairs)]
        found = faults(simulate([larger, smaller], 100 + place)[0].diagnosis)
        right += bool(found) and found[0].name is larger.name
        number += 1
    assert right >= number - 1


def test_nothing_is_claimed_of_sound_studies() -> None:
    assert claimed_of_sound(10, visits=3) <= 2  # 1 of 20 by chance


def claimed_of_sound(studies: int, visits: int = 1) -> int:
    """Of how many something is claimed."""
    sound = [measure(sound_site(np.random.default_rng(seed)), seed, visits) for seed in range(studies)]
    return sum(bool(faults(each.diagnosis)) for each in sound)


def test_no_second_of_a_step_is_explained_twice(simulated: Simulated) -> None:
    for results in simulated.values():
        headline = results.headline
        assert headline is not None
        step_s = results.scaling(headline).step_time_s.value
        explained = [each.explains.value for each in results.diagnosis if each.explains]
        assert sum(explained) <= 1.05 * step_s
        assert [each.explains for each in results.diagnosis if each.explains] == sorted(
            (each.explains for each in results.diagnosis if each.explains), key=lambda part: -part.value
        )


def test_every_finding_says_its_cost_and_what_to_do(simulated: Simulated) -> None:
    for results in simulated.values():
        for each in results.diagnosis:
            assert "{" not in evidence(each) + next_step(each)
            assert (each.explains is None) or " of a step" in cost(each)
            assert (each.predicted is None) or each.change


# --- step times alone


def test_slower_than_one_by_step_times_alone_with_the_right_efficiencies() -> None:
    """A global batch on 1, 2, 4 and 8 devices; no device was measured beside the others."""
    steps_s = {1: 0.132, 2: 0.249, 4: 2.366, 8: 5.947}
    spec = study(scaling={"mode": "strong", "world_sizes": [1, 2, 4, 8]}, knobs={"batch_size": [256]})
    costs = {size: StepCosts(plain_s=each, base_s=each) for size, each in steps_s.items()}
    runner = FakeRunner(lambda config, setting: costs[config.world_size], Noise(block=0.01, step=0.0))
    requests = [
        asked(spec, "scaling", spec.knobs.default(), size, variants=("ddp",) if size > 1 else ("plain",))
        for size in steps_s
    ]
    results = analyse(spec, run_all(runner, requests)[0])
    first = results.diagnosis[0]
    assert first.name is FindingName.UNATTRIBUTED_LOSS
    efficiencies = {
        record.config.world_size: results.scaling(record).efficiency for record in results.measured
    }
    for size, truth in {2: 0.265, 4: 0.0139, 8: 0.00277}.items():
        found = efficiencies[size]
        assert found is not None
        assert found.value == pytest.approx(truth, rel=0.02)


# --- links


def _on_link(buckets_mb: list[object], **hardware: object) -> Finding:
    machine = FakeHardware(fixed_s=0.0, gradient_bytes=32 * MIB, overlap=0.0, contention=0.0, wrapper_s=0.0)
    machine = replace(machine, **hardware)  # type: ignore[arg-type]
    spec = study(knobs={"batch_size": [64], "bucket_cap_mb": buckets_mb})
    records = grid(spec, [1, 2], FakeRunner(machine.costs, Noise(block=0.005, step=0.0)))[0]
    return analyse(spec, records).diagnosis[0]


def test_two_bucket_sizes_tell_latency_from_bandwidth() -> None:
    slow = _on_link(["default", 1], bandwidth_bytes_per_s=5e9, latency_s=1e-6)
    assert slow.reason is Reason.BANDWIDTH
    many = _on_link([1, "default"], bandwidth_bytes_per_s=50e9, latency_s=0.0005)
    assert many.reason is Reason.MANY_BUCKETS
    assert many.values["latency_share"] > 0.9
    few = _on_link(["default", 1], bandwidth_bytes_per_s=50e9, latency_s=0.005)
    assert few.reason is Reason.FEW_BUCKETS  # no size of buckets helps
    assert "bucket_cap_mb" not in (few.change or {})


def test_two_sizes_of_buckets_bound_the_share_of_latency() -> None:
    """10.6 ms in 32 buckets, 7.0 in two: latency is 37% of it."""
    machine = FakeHardware(
        fixed_s=0.0, gradient_bytes=32 * MIB, overlap=0.0, contention=0.0, wrapper_s=0.0, latency_s=120e-6,
        bandwidth_bytes_per_s=5e9,
    )  # fmt: skip
    spec = study(knobs={"batch_size": [64], "bucket_cap_mb": [1, "default"]})
    records = grid(spec, [1, 2], FakeRunner(machine.costs, Noise(block=0.005, step=0.0)))[0]
    found = analyse(spec, records).diagnosis[0]
    assert found.reason is Reason.BANDWIDTH
    assert found.values["latency_share"] == pytest.approx(0.37, abs=0.05)


@pytest.mark.parametrize(
    ("batches", "steps_s", "is_told"),
    [((256, 320), (0.0100, 0.0122), False), ((64, 256), (0.0100, 0.0160), True)],
)
def test_batches_say_no_fixed_cost_that_trials_may_differ_by(
    batches: tuple[int, int], steps_s: tuple[float, float], is_told: bool
) -> None:
    """12% of the step is fixed, or one of two trials is 2% slower; 80% is fixed whatever trials do."""
    spec, known = study(knobs={"batch_size": list(batches)}), dict(zip(batches, steps_s, strict=True))

    def model(config: object, setting: Setting) -> StepCosts:
        return StepCosts(plain_s=known[int(setting.batch_size)])

    found = analyse(spec, grid(spec, [1, 2], FakeRunner(model, QUIET))[0]).diagnosis
    assert any(each.name is FindingName.BATCH_TOO_SMALL for each in found) is is_told


def test_a_larger_batch_is_not_the_next_step_where_one_was_measured_and_brought_nothing() -> None:
    """Fixed costs are half of the step at 256 samples, and at 1,024 transfers take what these save."""
    spec = study(knobs={"batch_size": [256, 1024]})

    def model(config: object, setting: Setting) -> StepCosts:
        if setting.batch_size == 256:
            return StepCosts(plain_s=0.0100, exposed_s=0.0020)
        return StepCosts(plain_s=0.0250, exposed_s=0.0250)

    records = grid(spec, [1, 2], FakeRunner(model, QUIET))[0]
    for known, is_said in ((records, True), (records[:2], False)):
        named = [each for each in analyse(spec, known).diagnosis if each.name is FindingName.BATCH_TOO_SMALL]
        assert [each.reason for each in named] == [Reason.LARGER_IS_NO_BETTER] * is_said


def test_one_bucket_size_does_not_and_the_finding_says_so() -> None:
    one = _on_link(["default"], bandwidth_bytes_per_s=5e9, latency_s=1e-6)
    assert (one.name, one.reason) == (FindingName.COMMUNICATION_BOUND, Reason.ONE_BUCKET_SIZE)


# --- several settings


def test_what_two_variants_leave_open_is_bounded_by_the_transfers_of_another_trial() -> None:
    costs = StepCosts(plain_s=0.004, contention_s=0.001, exposed_s=0.008, replay_s=0.009)
    spec = study(knobs={"batch_size": [64, 8]})

    def model(config: object, setting: Setting) -> StepCosts:
        return replace(costs, plain_s=0.03) if setting.batch_size == 64 else costs

    requests = [
        asked(spec, "scaling", Setting(batch_size=64), 2),
        asked(spec, "search", Setting(batch_size=8), 2, variants=SHORT),
    ]
    results = analyse(spec, run_all(FakeRunner(model, QUIET), requests)[0])
    searched = next(each for each in results.measured if each.request.role == "search")
    finding = unattributed_loss(Case(searched, results.fit, results.measured))
    assert finding is not None  # 13 ms for twice what one device does in 4
    assert finding.values["least_communication_s"] == pytest.approx(0.005, rel=0.3)
    assert finding.values["most_communication_s"] == pytest.approx(0.009, rel=0.2)
    # the truth, of which nothing was measured but 9 ms lost
    assert finding.values["least_communication_s"] <= 0.008 <= finding.values["most_communication_s"]


def test_why_the_loss_of_a_script_is_not_divided_is_said_with_the_fix() -> None:
    """Its ranks gather a count in every step; another script has no DDP at all."""
    spec = study(workload={"script": "train.py"}, scaling={"world_sizes": [1, 2]})
    costs = StepCosts(plain_s=0.010, exposed_s=0.010)
    requests = [
        asked(spec, "scaling", spec.knobs.default(), size, variants=("ddp",) if size > 1 else ("plain",))
        for size in (1, 2)
    ]
    records = run_all(FakeRunner(lambda *_: costs, QUIET), requests)[0]
    gathers = records[1].steps
    assert gathers is not None
    gathers = gathers.model_copy(update={"local_collectives": 1})
    results = analyse(spec, [records[0], records[1].model_copy(update={"result": gathers})])
    assert results.diagnosis[0].reason is Reason.OWN_COLLECTIVES
    for gradient_bytes, fix in (
        (1000, "measure without what keeps this loss undivided: it gathers a count"),
        (None, "measure plain DDP too, whose loss can be divided"),
    ):
        found = {"missing": {"local": "it gathers a count"}, "gradient_bytes": gradient_bytes}
        steps = records[1].steps
        assert steps is not None
        changed = records[1].model_copy(update={"result": steps.model_copy(update=found)})
        results = analyse(spec, [records[0], changed])
        assert next_step(results.diagnosis[0]) == fix
        assert any("it gathers a count" in words for words in method_words(results))

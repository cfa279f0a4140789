from __future__ import annotations

from typing import Any

import pytest

from raybench.analysis.findings.case import Case
from raybench.analysis.findings.diagnose import diagnose
from raybench.analysis.findings.finding import Finding, FindingName, Reason, Severity
from raybench.analysis.scaling import Fit
from raybench.records.record import TrialRecord
from raybench.records.results import NUMANode, PCIeLink
from raybench.report.finding_texts import evidence
from raybench.spec.study import MeasureSpec
from raybench.spec.workloads import MLPSpec, ScriptSpec
from tests.support.alone import findings
from tests.support.analysis import analyse
from tests.support.planted import QUIET, Noise, StepCosts
from tests.unit.studies import SHORT, measured, slowed, study

COSTS = StepCosts(plain_s=0.01, exposed_s=0.002)
STEADY = Noise(block=0.004, step=0.0)


def found(record: TrialRecord) -> dict[FindingName, Finding]:
    return {finding.name: finding for finding in findings(record)}


def with_rounds(record: TrialRecord, **fields: list[Any]) -> TrialRecord:
    """The record with other fields in its rounds, one value a round."""
    assert record.steps is not None
    rounds = tuple(
        each.model_copy(update={name: values[index % len(values)] for name, values in fields.items()})
        for index, each in enumerate(record.steps.rounds)
    )
    return record.model_copy(update={"result": record.steps.model_copy(update={"rounds": rounds})})


def test_a_steady_trial_has_no_findings() -> None:
    sound = StepCosts(plain_s=0.01, exposed_s=0.0002, contention_s=0.0002, wrapper_s=0.0002)
    asked = MeasureSpec(half_width=0.1, min_rounds=10)
    claimed = [findings(measured(sound, STEADY, seed=seed, measure=asked)) for seed in range(40)]
    assert sum(map(bool, claimed)) <= 2


def with_slow_rounds(places: tuple[int, ...], rounds: int = 10) -> TrialRecord:
    """Steady rounds, of which some took twice as long."""
    return slowed(measured(COSTS, STEADY, measure=MeasureSpec(steps=10, min_rounds=rounds)), places)


def test_rare_slow_steps_are_a_finding_with_what_they_cost() -> None:
    """5% of the blocks take twice as long."""
    finding = found(with_slow_rounds((7, 23), 40))[FindingName.RARE_SLOW_STEPS]
    assert finding.values["share_ratio"] == pytest.approx(0.05, abs=0.005)
    assert finding.values["seconds_per_step"] == pytest.approx(0.05 * 0.012, rel=0.1)
    assert FindingName.RARE_SLOW_STEPS not in found(with_slow_rounds((), 40))
    assert FindingName.RARE_SLOW_STEPS not in found(with_slow_rounds((7,), 40))  # 2.5%


def test_uneven_devices_are_named() -> None:
    costs = StepCosts(plain_s=0.01, exposed_s=0.002, offset_s=(0.0, 0.0006))
    finding = found(measured(costs, STEADY, variants=SHORT))[FindingName.STRAGGLER]
    assert (finding.values["rank"], finding.values["fast_rank"]) == (1, 0)
    assert finding.values["spread_ratio"] == pytest.approx(0.06, abs=0.015)
    assert finding.explains is not None
    assert finding.explains.value == pytest.approx(0.0003, rel=0.2)


def test_a_device_that_is_slow_alone_too_is_one_finding() -> None:
    costs = StepCosts(plain_s=0.01, offset_s=(0.0, 0.0006))
    named = found(measured(costs, STEADY))
    assert named[FindingName.STRAGGLER].reason is Reason.DEVICE


def test_less_than_two_percent_is_not_uneven() -> None:
    costs = StepCosts(plain_s=0.01, offset_s=(0.0, 0.0001))
    assert FindingName.STRAGGLER not in found(measured(costs, STEADY))


def test_a_straggler_is_named_with_its_delay() -> None:
    costs = StepCosts(plain_s=0.01, exposed_s=0.002, offset_s=(0.0, 0.0, 0.0015, 0.0))
    finding = found(measured(costs, STEADY, world_size=4))[FindingName.STRAGGLER]
    assert finding.values["rank"] == 2
    assert finding.values["excess_s"] == pytest.approx(0.0015, rel=0.1)


def test_jitter_of_any_rank_is_no_straggler() -> None:
    costs = StepCosts(plain_s=0.01, jitter_s=0.004)
    records = [measured(costs, STEADY, seed=seed, world_size=4) for seed in range(10)]
    assert sum(FindingName.STRAGGLER in found(record) for record in records) <= 2


@pytest.mark.parametrize(
    ("workload", "reason"), [(MLPSpec(name="mlp"), None), (ScriptSpec(script="train.py"), Reason.BATCHES)]
)
def test_batches_of_a_script_may_differ_in_length(
    workload: MLPSpec | ScriptSpec, reason: Reason | None
) -> None:
    record = measured(StepCosts(plain_s=0.01, jitter_s=0.004), STEADY, world_size=4, workload=workload)
    assert found(record)[FindingName.JITTER].reason is reason


def on_hosts(
    record: TrialRecord, others: list[tuple[float | None, ...]], cores: int, hosts: tuple[int, ...] = (0, 0)
) -> TrialRecord:
    """The record with what others took of each rank's host, which has so many cores."""
    told = with_rounds(record, other_cores=others)
    assert told.steps is not None
    update = {"hosts": hosts, "host_cores": (cores,) * len(others[0])}
    return told.model_copy(update={"result": told.steps.model_copy(update=update)})


def test_cores_that_others_took_are_found_where_none_was_spare() -> None:
    record = measured(COSTS, STEADY)  # two workers of one core
    finding = found(on_hosts(record, [(0.12, 0.12), (0.12, 0.12), (0.5, 0.5)], 2))[
        FindingName.OTHER_PROCESSES
    ]
    assert finding.severity is Severity.NOTE
    assert evidence(finding) == "other processes, which may be Ray's own, used 0.12 of 2 cores"
    assert finding.values["lost_ratio"] == pytest.approx(0.06)
    much = found(on_hosts(record, [(0.4, 0.4)], 2))[FindingName.OTHER_PROCESSES]
    assert much.severity is Severity.WARNING
    for others, cores in (((0.9, 0.9), 3), ((0.03, 0.03), 4), ((None, None), 2)):
        assert FindingName.OTHER_PROCESSES not in found(on_hosts(record, [others], cores))
    # two hosts of one worker each: the one without a spare core counts
    uneven = on_hosts(record, [(0.0, 0.4)], 1, hosts=(0, 1))
    assert found(uneven)[FindingName.OTHER_PROCESSES].values["other_cores"] == pytest.approx(0.4)
    # two hosts, in one round the other: what one has taken is not held against the other's cores to spare
    three = measured(COSTS, STEADY, world_size=3)
    shifting = on_hosts(three, [(0.0, 0.0, 1.1)] * 11 + [(0.2, 0.2, 0.0)], 2, hosts=(0, 0, 1))
    assert found(shifting)[FindingName.OTHER_PROCESSES].values["lost_ratio"] == pytest.approx(0.05)
    # bursts on one host are not what it is like: in most rounds it is quiet
    bursts = [(0.005, 0.01)] * 8 + [(1.0, 0.0)] * 3
    assert FindingName.OTHER_PROCESSES not in found(on_hosts(record, bursts, 1, hosts=(0, 1)))
    # two hosts that tell the same are two: each has a core to spare
    assert FindingName.OTHER_PROCESSES not in found(on_hosts(record, [(0.5, 0.5)], 2, hosts=(0, 1)))


def test_throttling_names_the_rank() -> None:
    record = with_rounds(measured(COSTS, STEADY), throttled=[(False, False), (False, True)])
    finding = found(record)[FindingName.THROTTLING]
    assert finding.values["throttled_rounds"] == 5
    assert evidence(finding) == "rank 1 reported it in 5 of 10 rounds"


def test_what_slows_a_later_visit_down_is_found_as_well() -> None:
    """The figure is of all visits, and so is a load: the GPU is cool and the host idle in the first two."""
    idle = [on_hosts(measured(COSTS, STEADY, visit=each), [(0.0, 0.0)], 2) for each in range(2)]
    hot = with_rounds(measured(COSTS, STEADY, visit=2), throttled=[(True, False)])
    visits = [*idle, on_hosts(hot, [(0.4, 0.4)], 2)]
    named = {each.name: each for each in diagnose(Case(visits[0], Fit(visits)))}
    assert named[FindingName.THROTTLING].values["throttled_rounds"] == 10
    assert named[FindingName.OTHER_PROCESSES].values["other_cores"] == pytest.approx(0.4 / 3)


def test_cores_to_spare_in_one_visit_make_up_for_none_that_another_lacked() -> None:
    """Two of eight are needed: in one of two visits others took all, so that a quarter was lacking."""
    visits = [
        on_hosts(measured(COSTS, STEADY, visit=each), [(taken, taken)], 8)
        for each, taken in enumerate((0.0, 8.0))
    ]
    named = {each.name: each for each in diagnose(Case(visits[0], Fit(visits)))}
    assert named[FindingName.OTHER_PROCESSES].values["lost_ratio"] == pytest.approx(0.25 / 2)


def test_a_clock_that_falls_is_throttling_where_the_device_cannot_say_why() -> None:
    """A GPU whose clock falls for none of those reasons is at its power cap, as it is at full load."""
    record = with_rounds(measured(COSTS, STEADY), clock_mhz=[(1900.0, None)] * 5 + [(1500.0, None)] * 5)
    assert found(record)[FindingName.THROTTLING].values["clock_drop_ratio"] == pytest.approx(0.21, abs=0.01)
    assert FindingName.THROTTLING not in found(with_rounds(record, throttled=[(False, None)]))


def with_result(record: TrialRecord, **fields: Any) -> TrialRecord:
    assert record.steps is not None
    return record.model_copy(update={"result": record.steps.model_copy(update=fields)})


def test_a_quota_that_is_used_up_is_a_finding_from_a_twentieth_of_the_periods_on() -> None:
    record = measured(COSTS, STEADY)
    finding = found(with_result(record, quota_used_up=(None, 0.31)))[FindingName.TOO_FEW_CORES]
    assert finding.values == {"used_up_share": 0.31}
    assert "31% of the scheduler's periods" in evidence(finding)
    for used_up in ((), (None, None), (0.04, 0.0)):
        assert FindingName.TOO_FEW_CORES not in found(with_result(record, quota_used_up=used_up))


def test_a_narrow_link_is_a_finding_of_its_rank() -> None:
    """A card that trained to x4 of x16, one to an older generation, and one as it should be."""
    record = measured(COSTS, STEADY, device="cuda")
    link = PCIeLink(generation=4, lanes=16, most_generation=4, most_lanes=16)
    assert FindingName.NARROW_PCIE not in found(with_result(record, pcie_links=(link, None)))
    narrow = link.model_copy(update={"lanes": 4})
    finding = found(with_result(record, pcie_links=(link, narrow)))[FindingName.NARROW_PCIE]
    assert (finding.values["ranks"], finding.values["rank"]) == (1, 1)
    assert evidence(finding) == "rank 1 has PCIe 4 x4, and could have 4 x16"
    older = link.model_copy(update={"generation": 3})  # as with a bad riser
    finding = found(with_result(record, pcie_links=(older, link)))[FindingName.NARROW_PCIE]
    assert evidence(finding) == "rank 0 has PCIe 3 x16, and could have 4 x16"


def test_cores_far_from_a_gpu_are_a_note_unless_the_rank_is_the_slow_one() -> None:
    record = measured(COSTS, STEADY, device="cuda")
    near, far = NUMANode(node=0, cores=8), NUMANode(node=1, cores=0)
    assert FindingName.FAR_CORES not in found(with_result(record, numa_nodes=(near, None)))
    finding = found(with_result(record, numa_nodes=(near, far)))[FindingName.FAR_CORES]
    assert (finding.severity, finding.values["rank"], finding.explains) == (Severity.NOTE, 1, None)
    assert evidence(finding) == (
        "rank 1 may use no core of NUMA node 1, which its GPU is on, at a cost that was not measured"
    )
    slow = measured(StepCosts(plain_s=0.01, offset_s=(0.0, 0.0015)), STEADY, device="cuda")
    found_slow = found(with_result(slow, numa_nodes=(far, far)))
    finding = found_slow[FindingName.FAR_CORES]
    assert (finding.severity, finding.values["rank"]) == (Severity.WARNING, 1)
    assert evidence(finding).startswith("rank 1 may use no core of NUMA node 1")
    assert "and 1 other rank none near theirs" in evidence(finding)
    assert evidence(finding).endswith("and is the slow rank")


def test_a_full_gpu_is_a_finding_where_the_allocator_had_to_ask_again() -> None:
    record = measured(COSTS, STEADY)
    assert record.steps is not None
    full = record.model_copy(
        update={"result": record.steps.model_copy(update={"allocator_retries": (0, 12)})}
    )
    finding = found(full)[FindingName.LITTLE_MEMORY]
    assert (finding.severity, finding.values["retries"]) == (Severity.WARNING, 12)
    assert "a GPU was full 12 times" in evidence(finding)
    assert FindingName.LITTLE_MEMORY not in found(record)  # an older record, and one on CPUs


def test_oversubscribed_is_a_problem() -> None:
    finding = found(measured(COSTS, STEADY, oversubscribed=True))[FindingName.TOO_FEW_CORES]
    assert finding.severity is Severity.PROBLEM


def test_ranks_that_read_the_same_samples_are_a_problem() -> None:
    record = measured(COSTS, STEADY)
    assert FindingName.SAME_SAMPLES not in found(record)
    assert record.steps is not None
    result = record.steps.model_copy(update={"same_samples": True})
    finding = found(record.model_copy(update={"result": result}))[FindingName.SAME_SAMPLES]
    assert finding.severity is Severity.PROBLEM
    assert "the ranks read the same samples" in evidence(finding)


def test_what_failed_after_the_rounds_is_a_finding_and_a_missing_variant_is_none() -> None:
    record = measured(COSTS, STEADY, seed=1)
    assert record.steps is not None
    reasons = {"local": "no memory for steps without transfers", "matrix_peak": "rank 0: out of memory"}
    result = record.steps.model_copy(update={"missing": reasons})
    finding = found(record.model_copy(update={"result": result}))[FindingName.NOT_ALL_MEASURED]
    assert (finding.severity, evidence(finding)) == (Severity.NOTE, "matrix peak: rank 0: out of memory")
    assert FindingName.NOT_ALL_MEASURED not in found(record)


@pytest.mark.parametrize(("warmer", "is_found"), [(8.0, True), (4.0, False)])
def test_a_gpu_that_grows_warmer_in_the_rounds_is_still_warming_up(warmer: float, is_found: bool) -> None:
    record = measured(COSTS, STEADY, device="cuda")
    assert record.steps is not None
    last = len(record.steps.rounds) - 1
    temperatures = [(50.0, 50.0 + warmer * place / last) for place in range(last + 1)]
    named = found(with_rounds(record, temperature_c=temperatures))
    assert (FindingName.STILL_WARMING in named) is is_found
    if is_found:
        words = "rank 1 was still growing warmer at the end, from 50 to 58 degrees"
        assert evidence(named[FindingName.STILL_WARMING]) == words
    unknown = with_rounds(record, temperature_c=[(None, None)])
    assert FindingName.STILL_WARMING not in found(unknown)


@pytest.mark.parametrize(("later", "is_found"), [(70.0, True), (62.0, False)])
def test_of_several_visits_the_last_two_say_whether_a_gpu_is_still_warming_up(
    later: float, is_found: bool
) -> None:
    """It grows warmer in each, as it idles before: what counts is whether the second's end was warmer."""
    first = measured(COSTS, STEADY, device="cuda")
    last = first.model_copy(update={"trial_id": "later"})
    visits = [
        with_rounds(first, temperature_c=[(40.0, 40.0), (50.0, 60.0)], clock_mhz=[(1980.0, 1980.0)]),
        with_rounds(last, temperature_c=[(40.0, 40.0), (50.0, later)], clock_mhz=[(1980.0, 1755.0)]),
    ]
    assert all(each.steps is not None and len(each.steps.rounds) % 2 == 0 for each in visits)
    named = {each.name: each for each in analyse(study(), visits).diagnosis}
    assert (FindingName.STILL_WARMING in named) is is_found
    if is_found:
        words = "rank 1 was still growing warmer at the end, from 60 to 70 degrees, at 1980 and 1755 MHz"
        assert evidence(named[FindingName.STILL_WARMING]) == words


def test_lines_at_which_a_step_waits_for_its_gpu_are_named_but_for_fp16s_own() -> None:
    record = measured(COSTS, STEADY, device="cuda")
    assert record.steps is not None
    lines = {"train.py:12": 2, "grad_scaler.py:350": 1}
    told = record.model_copy(update={"result": record.steps.model_copy(update={"host_waits": lines})})
    finding = found(told)[FindingName.HOST_SYNCHRONIZATION]
    assert evidence(finding) == "a step waits for its GPU 2 times, at train.py:12"
    assert FindingName.HOST_SYNCHRONIZATION not in found(record)


def test_a_wrapper_is_not_called_costly_for_the_calls_of_our_own_hook() -> None:
    """1.5 ms of a step of 11.5, most of which two hundred calls may take, and two do not."""
    record = measured(StepCosts(plain_s=0.01, wrapper_s=0.0015), QUIET)
    assert record.steps is not None
    many = record.steps.model_copy(update={"bucket_bytes": (2**20,) * 200})
    assert FindingName.COSTLY_WRAPPER in found(record)
    assert FindingName.COSTLY_WRAPPER not in found(record.model_copy(update={"result": many}))

"""What computing side by side costs, and how much of that is other processes'."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pytest

from raybench.analysis.findings.compute import _clocks_ratio
from raybench.analysis.findings.finding import Finding, FindingName, Reason
from raybench.analysis.stats.statistics import Estimate
from raybench.records.record import TrialRecord
from raybench.records.results import Block
from raybench.report.finding_texts import evidence, next_step
from raybench.report.format import figures
from raybench.spec.knobs import Setting
from tests.support.alone import case_of, findings
from tests.support.planted import QUIET, StepCosts
from tests.unit.studies import measured


def found(contention_s: float, others: float) -> dict[FindingName, Finding]:
    """Of a step of 40 ms and contention on two cores, of which other processes take a share."""
    record = measured(StepCosts(plain_s=0.040, contention_s=contention_s), QUIET)
    assert record.steps is not None
    rounds = [each.model_copy(update={"other_cores": (others,) * 2}) for each in record.steps.rounds]
    told = {"rounds": tuple(rounds), "hosts": (0, 0), "host_cores": (2, 2)}
    return {
        each.name: each
        for each in findings(record.model_copy(update={"result": record.steps.model_copy(update=told)}))
    }


@pytest.mark.parametrize(
    ("theirs_s", "reason", "words"),
    [(0.004, None, "up to {most:.0%} of it"), (0.0275, Reason.OTHERS, "all of it")],
)
def test_no_time_is_explained_by_contention_and_by_other_processes(
    theirs_s: float, reason: Reason | None, words: str
) -> None:
    """10 ms of a step of 50 are contention, whoever it is with; how much may be others' is its evidence.

    At most: of the least that contention may be.
    """
    cores = 2 * theirs_s / 0.050
    named = found(0.010, cores)
    assert named[FindingName.OTHER_PROCESSES].explains is None
    whole = named[FindingName.CONTENTION]
    assert whole.explains is not None
    assert whole.explains.value == pytest.approx(0.010)
    assert whole.reason is reason
    said = words.format(most=theirs_s / whole.explains.low)
    assert evidence(whole).endswith(f". Other programs, on {figures(cores)} of 2 cores, may be {said}")


def test_contention_without_other_processes_is_whole() -> None:
    named = found(0.010, 0.0)
    assert FindingName.OTHER_PROCESSES not in named
    own = named[FindingName.CONTENTION]
    assert own.explains is not None
    assert own.explains.value == pytest.approx(0.010)
    assert "Other programs" not in evidence(own)


def test_threads_beyond_the_cores_are_told_with_how_many_fit() -> None:
    record = measured(
        StepCosts(plain_s=0.040, contention_s=0.020), QUIET, cpus_per_worker=1, setting=Setting(num_threads=4)
    )
    assert record.steps is not None
    told = record.steps.model_copy(update={"hosts": (0, 0), "host_cores": (4, 4)})
    (finding,) = (each for each in findings(record.model_copy(update={"result": told})) if each.explains)
    assert finding.name is FindingName.CONTENTION
    assert "2 workers of 4 threads share 4 cores" in evidence(finding)
    assert finding.change == {"num_threads": 2}


@pytest.mark.parametrize(
    ("cores", "reason", "change"),
    [
        ((8, 2), None, None),
        ((8, 1), Reason.THREADS, {"num_threads": 1}),
        ((4, 2), Reason.THREADS, {"num_threads": 1}),
    ],
)
def test_threads_are_counted_on_each_host(
    cores: tuple[int, int], reason: Reason | None, change: dict[str, int] | None
) -> None:
    """Four ranks on one host and one on the other, of two threads each."""
    costs = StepCosts(plain_s=0.040, contention_s=0.020)
    record = measured(costs, QUIET, cpus_per_worker=2, world_size=5)
    assert record.steps is not None
    told = {"hosts": (0, 0, 0, 0, 1), "host_cores": (cores[0],) * 4 + (cores[1],)}
    changed = record.model_copy(update={"result": record.steps.model_copy(update=told)})
    (finding,) = (each for each in findings(changed) if each.explains)
    assert (finding.name, finding.reason, finding.change) == (FindingName.CONTENTION, reason, change)


def test_a_large_part_above_0_is_a_cause_as_it_is_in_the_answer() -> None:
    """14% of a step [3, 26]: not certain as one of five, and yet what the answer names."""
    record = measured(StepCosts(plain_s=0.054, exposed_s=0.009), QUIET)
    assert record.steps is not None
    case = case_of(record)
    step_s = case.step_s
    assert case.is_notable(Estimate(0.14 * step_s, 0.026 * step_s, 0.26 * step_s, 10))
    assert not case.is_notable(Estimate(0.08 * step_s, 0.01 * step_s, 0.15 * step_s, 10))


def clocked(
    record: TrialRecord,
    clocks: Mapping[str, tuple[float, ...]],
    is_kept: Callable[[Block], bool],
    **fields: object,
) -> TrialRecord:
    """The record with clocks in MHz by variant, of the blocks that are kept; ``fields`` of its result."""
    assert record.steps is not None
    rounds = []
    for each in record.steps.rounds:
        kept = filter(is_kept, each.blocks)
        blocks = (block.model_copy(update={"clock_mhz": clocks.get(block.variant, ())}) for block in kept)
        rounds.append(each.model_copy(update={"blocks": tuple(blocks)}))
    result = record.steps.model_copy(update={"rounds": tuple(rounds), **fields})
    return record.model_copy(update={"result": result})


@pytest.mark.parametrize(
    ("together_mhz", "reason", "by_clocks_s"),
    [(None, Reason.SHARED_NODE, None), (1760.0, Reason.CLOCKS, 0.005), (1960.0, Reason.SHARED_HOST, 0.0005)],
)
def test_contention_of_gpus_is_split_by_the_clocks_alone_and_together(
    together_mhz: float | None, reason: Reason, by_clocks_s: float | None
) -> None:
    """40 ms alone at 1,980 MHz, 45 together: at 1,760 MHz the same cycles take 45."""
    record = measured(StepCosts(plain_s=0.040, contention_s=0.005), QUIET, device="cuda")
    clocks = {"plain": (1980.0,), "concurrent": (together_mhz,) * 2} if together_mhz else {}
    # few cores are no cause on GPUs
    record = clocked(record, clocks, lambda block: True, host_cores=(1, 1))
    (finding,) = (each for each in findings(record) if each.name is FindingName.CONTENTION)
    assert finding.reason is reason
    assert finding.values.get("by_clocks_s") == (by_clocks_s and pytest.approx(by_clocks_s, rel=0.1))
    assert evidence(finding)
    assert "--cpus-per-worker" not in next_step(finding)  # which on GPUs is a reservation alone


def test_a_gpu_is_compared_with_its_own_clock_alone() -> None:
    """Rank 0 clocks 5% higher than rank 1, alone and among all; it is the one that runs alone here."""
    record = measured(StepCosts(plain_s=0.040, contention_s=0.005), QUIET, device="cuda")
    clocks: dict[str, tuple[float, ...]] = {"plain": (1980.0,), "concurrent": (1980.0, 1880.0)}
    case = case_of(clocked(record, clocks, lambda block: block.variant != "plain" or block.ranks == (0,)))
    assert _clocks_ratio(case) == 1.0

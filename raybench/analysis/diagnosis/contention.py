"""Devices that slow each other down, or are slowed by somebody else: what computing side by side costs."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from raybench.analysis.diagnosis.case import Case
from raybench.analysis.diagnosis.findings import Finding, FindingName, Severity
from raybench.analysis.diagnosis.words import ms, pct
from raybench.analysis.estimates.statistics import Estimate, sum_of, trimmed_mean
from raybench.records.measurements import Round, StepsResult
from raybench.records.record import TrialRecord
from raybench.spec.knobs import KnobValue

WORTH_TELLING, MUCH = 0.02, 0.10  # of the cores of a host


def other_processes(case: Case) -> Finding | None:
    """Other processes took cores that the trial's workers needed: Ray's own are among them.

    It explains at most so large a share of the step as they took of the cores, and no more than computing
    side by side costs, where that was measured: alone a rank leaves the other ranks' cores to them.
    """
    record, measurement = case.record, case.steps
    taken = [round_taken for each in measurement.rounds if (round_taken := _taken(record, measurement, each))]
    if not taken:
        return None
    others, cores = (float(np.median([pair[place] for pair in taken])) for place in range(2))
    # the kernel's sum over cores counts in ticks, that of programs exactly, where they can be seen
    programs = sum(measurement.other_programs.values())
    others = max(others, programs)
    spare = max(0.0, min(cores - needed for _, cores, needed in taken))
    lost = max(0.0, others - spare) / cores
    if lost < WORTH_TELLING:
        return None
    named = ", ".join(f"{name} {used:.2f}" for name, used in measurement.other_programs.items())
    explained = _explained(case, [max(0.0, max(each[0], programs) - spare) / each[1] for each in taken])
    return Finding(
        FindingName.OTHER_PROCESSES,
        Severity.WARNING if lost >= MUCH else Severity.NOTE,
        record.trial_id,
        f"{others:.2f} of {cores:.0f} cores went to other processes during the rounds "
        f"({len(taken)} rounds{f'; {named}' if named else ''}), the trial's workers need "
        f"{cores - spare:.0f}: steps of all of them are up to {lost:.0%} longer than on an idle host",
        "leave a core of each host free: fewer workers or loader processes; see what runs there (top)",
        {"other_cores": others, "host_cores": cores, "lost_ratio": lost, "rounds": len(taken)},
        explains=explained,
    )


def _explained(case: Case, lost_shares: list[float]) -> Estimate | None:
    if len(lost_shares) < 2:
        return None
    lost_s = trimmed_mean(lost_shares).scaled(case.step_s)
    contention = case.parts.contention
    if contention is None:
        return Estimate(lost_s.value, 0.0, lost_s.high, lost_s.n)
    most_s = max(contention.high, 0.0)
    value, low, high = (min(max(end, 0.0), most_s) for end in (lost_s.value, lost_s.low, lost_s.high))
    return Estimate(
        min(value, max(contention.value, 0.0)), min(low, max(contention.low, 0.0)), high, lost_s.n
    )


def _taken(record: TrialRecord, measurement: StepsResult, round_: Round) -> tuple[float, float, float] | None:
    """Of the host that is worst off: cores that others took, cores there are, cores that the trial needs."""
    config, found = record.config, list[tuple[float, float, float]]()
    places = list(zip(measurement.hosts, round_.other_cores, measurement.host_cores, strict=False))
    each_needs = config.cpus_per_worker + config.setting.workers
    for host, others, cores in set(places):  # ranks of one host tell the same
        ranks = sum(each[0] == host for each in places)
        if others is not None:
            found.append((others, cores, min(ranks * each_needs, cores)))
    return max(found, key=lambda one: one[0] - (one[1] - one[2]), default=None)


def contending(case: Case) -> Finding | None:
    """All devices at once compute slower than one alone, by 5% of the step beyond what others explain of it.

    On CPUs ranks share cores, caches and memory; on GPUs the host's memory, its PCIe lanes and its cores.
    Where workers have more threads than there are cores, the evidence says so; else the times do not tell
    which it is.
    """
    contention = case.parts.contention
    if contention is None:
        return None
    others, own = case.finding(other_processes), contention
    theirs = others.explains if others else None
    if theirs is not None:
        own = sum_of(contention, theirs.scaled(-1))
    if not case.is_worth_telling(own):
        return None
    share = pct(case.share(contention))
    words = f"all devices at once compute {ms(contention)} longer than one alone, {share} of the step"
    if theirs is not None:
        words += f"; other processes explain {ms(theirs)} of that"
    values = {"contention_s": contention.value, "contention_share": contention.value / case.step_s}
    if case.is_cuda:
        name = FindingName.MEMORY_OR_PCIE
        fact = "GPUs share the host's memory, PCIe and cores; the times do not tell which"
        step = (
            "more cores for each worker (--cpus-per-worker), pin_memory, ranks spread over sockets or nodes"
        )
        change: Mapping[str, KnobValue] | None = None
    else:
        name = FindingName.CONTENTION
        fact, step, change = _on_cores(case)
    return Finding(
        name,
        case.severity(own),
        case.record.trial_id,
        f"{words}; {fact}",
        step,
        values,
        own,
        change,
    )


def _on_cores(case: Case) -> tuple[str, str, Mapping[str, KnobValue] | None]:
    """Fact, next step and change for ranks that are processes on one host's cores."""
    setting, cores = case.config.setting, min(case.steps.host_cores, default=0)
    ranks = max((case.steps.hosts.count(host) for host in set(case.steps.hosts)), default=0)
    threads = setting.num_threads or case.config.cpus_per_worker
    if cores and ranks * threads > cores:
        fitting = max(cores // ranks, 1)
        fact = f"{ranks} workers of {threads} threads share {cores} cores"
        if fitting < threads:
            return fact, f"num_threads {fitting}: no more threads than cores", {"num_threads": fitting}
        return fact, "fewer workers: no more than there are cores", None
    fact = "ranks share caches and memory, perhaps cores (hyperthreads); the times do not tell which"
    if (case.record.nodes or 1) == 1 and _num_nodes(case) > 1:
        return fact, "spread the workers over the nodes: scaling.placement spread", None
    return fact, "fewer workers on this host, or more hosts: the rest of it has no more to give", None


def _num_nodes(case: Case) -> int:
    environment = case.around.environment
    return len(environment.every_node) if environment else 1

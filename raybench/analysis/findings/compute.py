"""What compute waits for on the host: other devices, other processes, DDP's own work, and the loader."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from raybench.analysis.findings.case import MUCH, Case
from raybench.analysis.findings.finding import Finding, FindingName, Need, Reason, Severity
from raybench.analysis.load import load_of, loads_of
from raybench.analysis.stats.statistics import Estimate, sum_of, trimmed_mean
from raybench.records.results import StepsResult
from raybench.spec.workloads import ScriptSpec

MOST_WORKERS = 16


def costly_wrapper(case: Case) -> Finding | Need | None:
    """DDP's copies and hooks.

    Views save the copies back from the buckets, not those into them, as no step keeps its gradients: one of
    two copies of each parameter. On CPUs ``batched_grad_copy`` saves none; on GPUs it saves launches. Forward
    and backward pass under DDP without transfers over the bare one, two gloo ranks, 15 interleaved blocks,
    CPU time, median and quartiles (torch 2.14.1):

    parameters        DDP                with views         batched            both
    60 of 256 x 256   1.33 [1.27, 1.42]  1.04 [0.98, 1.07]  1.36 [1.28, 1.43]  1.17 [1.08, 1.23]
    1000 of 8 x 8     1.17 [1.06, 1.39]  1.06 [0.99, 1.17]  1.17 [1.09, 1.23]  1.10 [0.98, 1.13]
    """
    wrapper, setting = case.parts.wrapper, case.config.setting
    if wrapper is None:
        return case.needs_variants
    if not case.is_notable(wrapper):
        return None
    values = {"wrapper_s": wrapper.value, "wrapper_share": case.share(wrapper)}
    if setting.strategy == "ddp" and not setting.gradient_as_bucket_view:
        return case.part(
            FindingName.COSTLY_WRAPPER,
            wrapper,
            values,
            reason=Reason.VIEWS,
            change={"gradient_as_bucket_view": True},
            predicted=case.without(wrapper),
        )
    reason = Reason.COPIES if case.is_cuda and not setting.batched_grad_copy else None
    return case.part(FindingName.COSTLY_WRAPPER, wrapper, values, reason=reason)


def data_bound(case: Case) -> Finding | Need | None:
    """The step waits for its batch: more processes for the loader, while there are cores for them."""
    phases = case.phases()
    if not phases:
        return Need.PHASES
    waited = phases.get("data")
    if waited is None or not case.is_notable(waited):
        return None
    now, workload = case.config.setting.workers, case.config.workload
    values = {"waited_s": waited.value, "waited_share": case.share(waited), "workers": float(now)}
    workers = min(max(2 * now, 2), MOST_WORKERS, _cores_of_a_rank(case))
    if workload.input == "real" and workers > now:
        return case.part(
            FindingName.DATA_BOUND,
            waited,
            values,
            reason=Reason.FEW_WORKERS,
            change={"workers": workers},
            predicted=case.without(waited),
        )
    reason = Reason.LOADER if workload.input == "real" else None
    if isinstance(workload, ScriptSpec):
        reason = Reason.SCRIPT
    return case.part(FindingName.DATA_BOUND, waited, values, reason=reason)


def _cores_of_a_rank(case: Case) -> int:
    """Cores of the smallest node for each rank; as many as loaders ever use where the machine is unknown."""
    environment, record = case.around.environment, case.record
    if environment is None:
        return MOST_WORKERS
    cores = min(node.usable_cores for node in environment.every_node)
    ranks = math.ceil(case.config.world_size / (record.nodes or 1))
    most = max((record.hostnames.count(name) for name in set(record.hostnames)), default=ranks)
    return cores // most


LEAST_LOST = 0.02  # of the cores of a host
WORTH_NAMING = 0.01  # of a core, by one program
MOST_OF_IT = 0.3  # of what others took: less of it is not worth stopping
OURS = ("Ray", "raybench", "kernel")  # that cannot be stopped: without them there is no study


@dataclass(frozen=True)
class Taken:
    """Cores that other processes took from the trial's workers.

    They explain at most as large a share of the step as they took of the cores, and no more than computing
    side by side and waiting cost, where these were measured: alone a rank leaves the other ranks' cores to
    them. Where computing may be all theirs its interval is theirs; where it was not measured only the bound
    is known.
    """

    case: Case
    others: float  # cores
    cores: float  # of the host
    spare: float  # cores that the trial did not need
    lost_in_rounds: tuple[float, ...]  # of each round, the share of the cores

    @property
    def lost(self) -> float:
        """The share of the cores that the trial needed and did not have."""
        return max(0.0, self.others - self.spare) / self.cores

    @property
    def _lost_s(self) -> Estimate | None:
        if len(self.lost_in_rounds) < 2:
            return None
        return trimmed_mean(self.lost_in_rounds).scaled(self.case.step_s)

    @property
    def of_contention(self) -> Estimate | None:
        """What they explain of computing side by side, in s; of the whole loss where that is not known."""
        lost_s, contention = self._lost_s, self.case.parts.contention
        if lost_s is None:
            return None
        if contention is None:
            of_all = self.case.lost_s
            most_s = lost_s.value if of_all is None else min(lost_s.value, max(of_all.value, 0.0))
            return Estimate(most_s, 0.0, most_s, lost_s.n)
        # what is not more than 0 is no contention: there is nothing of it that they explain
        side_by_side = replace(contention, value=max(contention.value, 0.0), low=max(contention.low, 0.0))
        if lost_s.high >= contention.value:
            return replace(side_by_side, high=max(contention.high, 0.0))
        low, high = min(lost_s.low, side_by_side.low), min(lost_s.high, contention.high)
        return Estimate(lost_s.value, max(low, 0.0), high, lost_s.n)

    @property
    def of_step(self) -> Estimate | None:
        """What they explain of the step, in s.

        Of computing side by side, and beyond that of what waits: transfers on CPUs need cores too, and a rank
        that was held up is waited for.
        """
        parts, lost_s, of_computing = self.case.parts, self._lost_s, self.of_contention
        if lost_s is None or of_computing is None or parts.contention is None:
            return of_computing
        waits = (parts.wrapper, parts.skew, parts.exposed_communication)
        waits_s = sum(max(each.value, 0.0) for each in waits if each is not None)
        more_s = min(max(lost_s.value - of_computing.value, 0.0), waits_s)
        value, low, high = of_computing.value + more_s, of_computing.low, of_computing.high + more_s
        return Estimate(value, low, high, of_computing.n)


def _taken(case: Case) -> Taken | None:
    """What others took, from 2% of the cores on; None too where it is not known."""
    load = load_of(case.record)
    if load is None:
        return None
    # the kernel's sum over cores counts in ticks, that of programs exactly, where they can be seen
    programs = sum(case.steps.other_programs.values())
    loads = [replace(each, taken=max(each.taken, programs)) for each in loads_of(case.record)]
    found = Taken(
        case,
        max(load.taken, programs),
        load.cores,
        load.spare,
        tuple(max(0.0, each.taken - load.spare) / each.cores for each in loads),
    )
    return found if found.lost >= LEAST_LOST else None


def other_processes(case: Case) -> Finding | Need | None:
    """Other processes took cores that the trial's workers needed: Ray's own are among them."""
    taken = _taken(case)
    if taken is None:
        return Need.LOAD if load_of(case.record) is None else None
    explains = taken.of_step
    reason, program = _who(case.steps, taken.others)
    return case.found(
        FindingName.OTHER_PROCESSES,
        Severity.WARNING if taken.lost >= MUCH else Severity.NOTE,
        {
            "other_cores": taken.others,
            "host_cores": taken.cores,
            "lost_ratio": taken.lost,
            "rounds": len(taken.lost_in_rounds),
        },
        explains=explains,
        is_at_most=True,  # the workers may have waited while they ran
        reason=reason,
        named={"program": program},
    )


def _who(steps: StepsResult, others: float) -> tuple[Reason | None, str]:
    """The program that took most of it and can be stopped; else whether it is Ray and the kernel."""
    named = {name: used for name, used in steps.other_programs.items() if used >= WORTH_NAMING}
    stoppable = {name: used for name, used in named.items() if name not in OURS}
    program = max(stoppable, key=lambda name: stoppable[name], default="")
    if stoppable and stoppable[program] >= MOST_OF_IT * others:
        return Reason.ONE_PROGRAM, program
    ours = sum(named.values()) - sum(stoppable.values())
    return (Reason.OURS if ours >= MOST_OF_IT * others else None), ""


def contention(case: Case) -> Finding | Need | None:
    """All devices at once compute slower than one alone, beyond what other processes explain.

    Ranks on CPUs share cores, caches and memory, GPUs the power and cooling that set their clocks, the host's
    memory, its PCIe lanes and its cores.
    """
    whole, others = case.parts.contention, _taken(case)
    if whole is None:
        return case.needs_variants
    theirs = others.of_contention if others else None
    own = whole if theirs is None else sum_of(whole, theirs.scaled(-1))
    if not case.is_notable(own):
        return None
    steps = case.steps
    ranks = max((steps.hosts.count(host) for host in set(steps.hosts)), default=0)  # of the fullest host
    cores = min(steps.host_cores, default=0)  # 0: unknown
    threads = case.config.setting.num_threads or case.config.cpus_per_worker
    values = {
        "contention_s": whole.value,
        "contention_share": case.share(whole),
        "ranks": ranks,
        "threads": threads,
        "cores": cores,
    }
    has_too_many = 0 < cores < ranks * threads
    fitting = max(cores // ranks, 1) if ranks else 0
    change = {"num_threads": fitting} if not case.is_cuda and has_too_many and fitting < threads else None
    reason = None
    if case.is_cuda:
        reason = Reason.SHARED_NODE
    elif has_too_many:
        reason = Reason.THREADS if change else Reason.WORKERS
    elif (case.record.nodes or 1) == 1 and _num_nodes(case) > 1:
        reason = Reason.ONE_NODE
    return case.part(FindingName.CONTENTION, own, values, reason=reason, change=change)


def _num_nodes(case: Case) -> int:
    """Nodes of the machine; 1 where they are not known."""
    environment = case.around.environment
    return len(environment.every_node) if environment else 1

"""What compute waits for on the host: other devices, other processes, DDP's own work, and the loader."""

from __future__ import annotations

import math
from collections import Counter
from statistics import median

from raybench.analysis.findings.case import MUCH, Case
from raybench.analysis.findings.finding import Finding, FindingName, Reason, Severity
from raybench.analysis.other_load import Load, load_of
from raybench.spec.workloads import ScriptSpec

MOST_WORKERS = 16
HOOK_S = 10e-6  # at most, of a call: 400 buckets took 1.0 ms within the hook, the way there is about as much


def costly_wrapper(case: Case) -> Finding | None:
    """DDP's copies and hooks, or FSDP's.

    Views save the copies back from the buckets, not those into them, as no step keeps its gradients: one of
    two copies of each parameter. On CPUs ``batched_grad_copy`` saves none; on GPUs it saves launches. Forward
    and backward pass under DDP without transfers over the bare one, two gloo ranks, 15 interleaved blocks,
    CPU time, median and quartiles (torch 2.14.1):

    parameters        DDP                with views         batched            both
    60 of 256 x 256   1.33 [1.27, 1.42]  1.04 [0.98, 1.07]  1.36 [1.28, 1.43]  1.17 [1.08, 1.23]
    1000 of 8 x 8     1.17 [1.06, 1.39]  1.06 [0.99, 1.17]  1.17 [1.09, 1.23]  1.10 [0.98, 1.13]
    """
    wrapper, setting = case.parts.wrapper, case.config.setting
    # without transfers a hook in Python is called for each bucket, which DDP's own all-reduce is not
    if wrapper is None or HOOK_S * len(case.steps.bucket_bytes) > wrapper.value / 2:
        return None
    reason, fix = None, None
    if setting.strategy == "fsdp":
        reason = Reason.SHARDS
    elif not setting.gradient_as_bucket_view:
        reason, fix = Reason.VIEWS, {"gradient_as_bucket_view": True}
    elif case.is_cuda and not setting.batched_grad_copy:
        reason = Reason.COPIES
    return case.part(FindingName.COSTLY_WRAPPER, wrapper, "wrapper", reason=reason, fix=fix)


def data_bound(case: Case) -> Finding | None:
    """The step waits for its batch: more processes for the loader, while there are cores for them."""
    now, workload = case.config.setting.workers, case.config.workload
    workers = min(max(2 * now, 2), MOST_WORKERS, _cores_of_a_rank(case))
    reason, fix = None, None
    if isinstance(workload, ScriptSpec):
        reason = Reason.SCRIPT
    elif workload.input == "real":
        reason, fix = (Reason.FEW_WORKERS, {"workers": workers}) if workers > now else (Reason.LOADER, None)
    values = {"workers": float(now)}
    return case.part(
        FindingName.DATA_BOUND, case.phases().get("data"), "waited", values, reason=reason, fix=fix
    )


def _cores_of_a_rank(case: Case) -> int:
    """Cores for each rank of the fullest node; as many as loaders ever use where the machine is unknown."""
    environment, record = case.around.environment, case.record
    if environment is None:
        return MOST_WORKERS
    cores = {node.hostname: node.usable_cores for node in environment.every_node}
    ranks = Counter(record.hostnames) or {"": math.ceil(case.config.world_size / (record.nodes or 1))}
    return min(cores.get(host, min(cores.values())) // number for host, number in ranks.items())


LEAST_LOST = 0.02  # of the cores of a host


def _taken(case: Case) -> Load | None:
    """What others took, from 2% of the cores on."""
    load = load_of(case.config, case.visits)
    return load if load is not None and load.lost >= LEAST_LOST else None


def other_processes(case: Case) -> Finding | None:
    """Other processes took cores that the trial's workers needed: Ray's own are among them."""
    load = _taken(case)
    if load is None:
        return None
    return case.found(
        FindingName.OTHER_PROCESSES,
        Severity.WARNING if load.lost >= MUCH else Severity.NOTE,
        # without a time that it explains: any part may have waited for these cores, or none
        {"other_cores": load.taken, "host_cores": load.cores, "lost_ratio": load.lost},
    )


def contention(case: Case) -> Finding | None:
    """All devices at once compute slower than one alone, and how much of that may be other processes'.

    Ranks on CPUs share cores, caches and memory, GPUs the power and cooling that set their clocks, the host's
    memory, its PCIe lanes and its cores.
    """
    whole, load = case.parts.contention, _taken(case)
    if whole is None:
        return None
    steps = case.steps
    hosts = Counter(zip(steps.hosts, steps.host_cores, strict=False)).items()
    # of the host with the fewest cores for each of its ranks; 0: unknown
    (_, cores), ranks = min(hosts, key=lambda each: each[0][1] / each[1], default=((0, 0), 0))
    threads = case.config.setting.num_threads or case.config.cpus_per_worker
    values: dict[str, float] = {"ranks": ranks, "threads": threads, "cores": cores}
    if load is not None:
        lost_s = load.lost * case.step_s
        of_it = 1.0 if lost_s >= whole.low else lost_s / whole.low  # at most
        values |= {"other_cores": load.taken, "host_cores": load.cores, "others_share": of_it}
    has_too_many = 0 < cores < ranks * threads
    fitting = max(cores // ranks, 1) if ranks else 0
    change = {"num_threads": fitting} if not case.is_cuda and has_too_many and fitting < threads else None
    reason, clocks = None, _clocks_ratio(case) if case.is_cuda else None
    compute = case.waterfall.compute_s if case.waterfall else None
    if clocks is not None and compute is not None:
        # as if a step took the time of so many cycles: what waits for memory slows down less
        by_clocks_s = min(max(1 - clocks, 0.0) * compute.value, whole.value)
        values |= {"clock_drop_ratio": max(1 - clocks, 0.0), "by_clocks_s": by_clocks_s}
        reason = Reason.CLOCKS if by_clocks_s >= whole.value / 2 else Reason.SHARED_HOST
    elif case.is_cuda:
        reason = Reason.SHARED_NODE
    elif has_too_many:
        reason = Reason.THREADS if change else Reason.WORKERS
    elif values.get("others_share") == 1.0:
        reason = Reason.OTHERS
    return case.part(FindingName.CONTENTION, whole, "contention", values, reason=reason, change=change)


def _clocks_ratio(case: Case) -> float | None:
    """The clock of a GPU while all are at work over its own alone, in each round; None where not known."""
    ratios = []
    for each in case.rounds:
        alone, together = each.block("plain"), each.block("concurrent")
        if alone and together and alone.clock_mhz:
            clocks = dict(zip(together.ranks, together.clock_mhz, strict=False))
            own, with_all = alone.clock_mhz[0], clocks.get(alone.ranks[0])
            ratios += [with_all / own] if own and with_all else []
    return median(ratios) if ratios else None

"""What a step costs whatever the batch, and what its compute waits for: loader, launches, memory."""

from __future__ import annotations

import math
from statistics import fmean

from raybench.analysis.diagnosis.case import Case
from raybench.analysis.diagnosis.findings import Finding, FindingName, Severity
from raybench.analysis.diagnosis.words import ms, pct
from raybench.analysis.estimates.statistics import Estimate, inverse

FIXED_LEAST = (
    0.10  # of the step: every step has some fixed cost; less than this no batch is worth changing for
)
IDLE_LEAST = 0.30  # of the time in which a GPU could work: below 70% busy it waits for whoever feeds it
BUSY, FEW_FLOPS = 0.90, 0.25  # busy all the time, with a quarter of what it computes in matrix products
MOST_WORKERS = 16


def costly_wrapper(case: Case) -> Finding | None:
    """DDP's copies and hooks take 5% of the step."""
    wrapper, setting = case.parts.wrapper, case.config.setting
    if wrapper is None or not case.is_worth_telling(wrapper):
        return None
    copies = setting.strategy == "ddp" and not setting.gradient_as_bucket_view
    return Finding(
        FindingName.COSTLY_WRAPPER,
        case.severity(wrapper),
        case.record.trial_id,
        f"DDP's copies and hooks take {ms(wrapper)}, {pct(case.share(wrapper))} of the step, without any "
        "transfer",
        "gradient_as_bucket_view saves the copies; a larger batch or accumulation has fewer of them for "
        "each sample"
        if copies
        else "a larger batch or accumulation has fewer of them for each sample",
        {"wrapper_s": wrapper.value, "wrapper_share": wrapper.value / case.step_s},
        explains=wrapper,
        change={"gradient_as_bucket_view": True} if copies else None,
        predicted=_at_most(case, wrapper) if copies else None,
    )


def data_bound(case: Case) -> Finding | None:
    """The step waits for its batch: 5% of it at least."""
    waited, setting = case.phases().get("data"), case.config.setting
    if waited is None or not case.is_worth_telling(waited):
        return None
    real = case.config.workload.input == "real"
    workers = min(max(2 * setting.workers, 2), MOST_WORKERS, _cores_of_a_rank(case))
    helps = real and workers > setting.workers
    if helps:
        step = f"more processes for the loader: workers {workers} instead of {setting.workers}"
    elif real:
        step = (
            "cheaper batches (decoded or resized ahead): the loader has as many processes as are of use to it"
        )
    else:
        step = "make batches before the steps; the loader's processes serve real input alone"
    return Finding(
        FindingName.DATA_BOUND,
        case.severity(waited),
        case.record.trial_id,
        f"{ms(waited)} of the step, {pct(case.share(waited))}, go by until the batch is there "
        f"({setting.workers} loader processes a rank)",
        step,
        {"waited_s": waited.value, "waited_share": waited.value / case.step_s, "workers": setting.workers},
        explains=waited,
        change={"workers": workers} if helps else None,
        predicted=_at_most(case, waited) if helps else None,
    )


def _cores_of_a_rank(case: Case) -> int:
    """Cores of the smallest node for each rank; as many as loaders ever use where the machine is not told."""
    environment, record = case.around.environment, case.record
    if environment is None:
        return MOST_WORKERS
    cores = min(node.usable_cores for node in environment.every_node)
    ranks = math.ceil(case.config.world_size / (record.nodes or 1))
    most = max((record.hostnames.count(name) for name in set(record.hostnames)), default=ranks)
    return cores // most


def fixed_costs(case: Case) -> Finding | None:
    """A tenth of the step stays whatever the batch: launches and Python, or a device not filled.

    Known by the smaller batch of each device under strong scaling, by the batches measured, or by a GPU that
    is idle. A GPU busy for less than 70% of the time waits for whoever launches its work; where that is not
    told, the two are one finding, which a larger batch cures.
    """
    busy = _busy(case)
    small, fixed = case.parts.small_batch, _fixed_by_batches(case)
    known = [each for each in (small, fixed) if each is not None and case.is_worth_telling(each, FIXED_LEAST)]
    idle = _idle(case, busy)
    if idle is not None:
        return Finding(
            FindingName.LAUNCH_BOUND,
            case.severity(idle),
            case.record.trial_id,
            f"GPUs are busy for {busy:.0%} of the time: {ms(idle)} of the step, {pct(case.share(idle))}, "
            "they wait for "
            "the process that launches their work",
            "fewer and larger kernels: compile, a larger batch, no Python in the step",
            {"idle_s": idle.value, "busy_share": busy or 0.0},
            explains=idle,
            change=None if case.config.setting.compile else {"compile": True},
            predicted=None if case.config.setting.compile else _at_most(case, idle),
        )
    if not known:
        return None
    explained = max(known, key=lambda each: each.value)
    if explained is small:
        samples = f"{case.config.batch_size:,} samples a device"
        how = f"{samples} take {ms(explained)} longer than their part of the whole batch"
    else:
        how = f"{ms(explained)} of the step stay whatever the batch, by the line through the batches measured"
    told = "" if busy is not None else "; launches, Python and a device that is not filled are not told apart"
    return Finding(
        FindingName.BATCH_TOO_SMALL,
        case.severity(explained),
        case.record.trial_id,
        f"{how}, {pct(case.share(explained))} of the step{told}",
        "a larger batch",
        {"fixed_s": explained.value, "fixed_share": explained.value / case.step_s},
        explains=explained,
    )


def memory_bound(case: Case) -> Finding | None:
    """A device that is busy all the time with few of the FLOP/s of its matrix products: memory binds."""
    flops, peak, ideal = case.steps.flops_per_step, case.steps.matrix_peak_flops_per_s, case.parts.ideal
    busy = _busy(case)
    if (
        not flops
        or not peak
        or ideal is None
        or busy is None
        or busy < BUSY
        or case.config.scaling == "strong"
    ):
        return None
    share = inverse(ideal).scaled(flops / peak)
    if share.high >= FEW_FLOPS:
        return None
    return Finding(
        FindingName.MEMORY_BOUND,
        Severity.NOTE,
        case.record.trial_id,
        f"busy for {busy:.0%} of the time at {pct(share)} of the matrix peak of {peak * 1e-12:.1f} "
        "TFLOP/s: reading and "
        "writing memory takes the time, not arithmetic",
        "fewer passes over memory: fused kernels (compile), a narrower precision, channels_last for images",
        {"flops_share": share.value, "busy_share": busy},
        change=None if case.config.setting.compile else {"compile": True},
    )


def _fixed_by_batches(case: Case) -> Estimate | None:
    """Where the line through the smallest two batches of one device meets no samples, in s.

    From the trial's own batch and the next larger one: c_1 - (c_2 - c_1) / (b_2 - b_1) b_1. A step that grows
    faster than in proportion has none.
    """
    computed, own = case.alone, case.samples
    larger = [batch for batch in computed if batch > own]
    if own not in computed or not larger or case.config.scaling == "strong":
        return None
    next_ = min(larger)
    weight = own / (next_ - own)
    mine, theirs = computed[own].beside(computed[next_]), computed[next_].beside(computed[own])
    value = mine.value * (1 + weight) - theirs.value * weight
    half = ((mine.half_width * (1 + weight)) ** 2 + (theirs.half_width * weight) ** 2) ** 0.5
    return Estimate(value, value - half, value + half, min(mine.n, theirs.n))


def _busy(case: Case) -> float | None:
    """The share of the time in which the GPUs work, mean over ranks; None where nobody tells, or on CPUs."""
    told = [each for each in case.steps.device_utilization or () if each is not None]
    return fmean(told) if told and case.is_cuda else None


def _idle(case: Case, busy: float | None) -> Estimate | None:
    """What GPUs wait for work, in s of the step; the interval is from the busiest rank to the least busy."""
    if busy is None or 1 - busy < IDLE_LEAST:
        return None
    told = [each for each in case.steps.device_utilization or () if each is not None]
    ends = [(1 - each) * case.step_s for each in (busy, max(told), min(told))]
    data = case.phases().get("data")
    waited_s = data.value if data else 0.0  # a loader's wait is no launch's
    found = Estimate(ends[0] - waited_s, ends[1] - waited_s, ends[2] - waited_s, len(told))
    return found if case.is_worth_telling(found, FIXED_LEAST) else None


def _at_most(case: Case, part_s: Estimate) -> Estimate:
    """The throughput without ``part_s``, over that with it: between nothing gained and all of it."""
    most = case.step_s / max(case.step_s - part_s.high, case.step_s * 0.01)
    return Estimate(most**0.5, 1.0, most, part_s.n)

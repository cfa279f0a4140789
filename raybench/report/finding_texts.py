"""What a finding says: its evidence and its next step, in words made of the rule's numbers."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import singledispatch

from raybench.analysis.findings.batch import BatchTooSmall
from raybench.analysis.findings.case import Case, OfTrial, programs_of, stoppable
from raybench.analysis.findings.communication import (
    ExposedTransfers,
    Interference,
    Latency,
    WorseWay,
    cores_decide,
)
from raybench.analysis.findings.compute import (
    MOST_OF_IT,
    Contention,
    CostlyWrapper,
    DataBound,
    OtherProcesses,
    num_nodes,
)
from raybench.analysis.findings.configurations import Change
from raybench.analysis.findings.evenness import (
    Spread,
    Straggler,
    TakingTurns,
    UnevenDevices,
    place_of,
    varies,
)
from raybench.analysis.findings.finding import Finding, FindingName, Kind, Need, is_tie
from raybench.analysis.findings.of_study import (
    Failed,
    NoGain,
    NotReached,
    PrecisionWithoutGain,
    SeveralDevices,
)
from raybench.analysis.findings.steadiness import (
    CLOCK_DROP,
    MOST_TIMES,
    LittleMemory,
    LossesDisagree,
    NarrowPCIe,
    NoisyMeasurement,
    NotAllMeasured,
    Oversubscribed,
    QuotaUsedUp,
    RareSlowSteps,
    Throttling,
)
from raybench.analysis.findings.unattributed import (
    NegativeScaling,
    NotDivided,
    communication_bounds,
    replayed,
)
from raybench.analysis.labels import (
    changes_words,
    devices_words,
    difference_words,
    knob_words,
    label,
    trial_words,
)
from raybench.analysis.stats.statistics import Estimate
from raybench.analysis.stats.verdict import Verdict
from raybench.records.record import State, TrialRecord
from raybench.spec.plural import plural
from raybench.spec.workloads import OwnCodeSpec, ScriptSpec

MOST_NAMED = 1  # trials of one cause
MOST_TOLD = 3  # measurements that differ from the one that counts
NEARLY_ALL = 0.98  # of the loss: with less, other parts of it are known
MUCH_UNNAMED = 0.3  # of what was taken


@dataclass(frozen=True)
class Text:
    """The words of a finding, without a full stop."""

    evidence: str  # in numbers, with units
    next_step: str


def evidence(finding: Finding) -> str:
    """What shows the finding, in numbers with intervals."""
    return "" if finding.rule is None else text_of(finding.rule).evidence


def evidence_among(findings: Sequence[Finding]) -> Callable[[Finding], str]:
    """The same of ranked ``findings``, with a word where one explains about as much as that before it."""
    before = {id(each): other for other, each in itertools.pairwise(findings)}

    def words(finding: Finding) -> str:
        other = before.get(id(finding))
        tie = f"; about as much as {other.name}" if other is not None and is_tie(other, finding) else ""
        return f"{evidence(finding)}{tie}"

    return words


def next_step(finding: Finding, *, is_short: bool = False) -> str:
    """What to do about the finding: a better setting, measured or predicted, else what its rule says.

    ``is_short``: without what the setting itself has.
    """
    rule, better = finding.rule, finding.better
    if rule is None:
        return changes_words(finding.change or {})
    own = text_of(rule).next_step
    efficiency = rule.case.scaling.efficiency if isinstance(rule, OfTrial) else None
    if better is None or efficiency is None:
        return own
    this = "" if is_short else f"; this has {pct(efficiency)}"
    if isinstance(better, Change):
        return (
            f"{changes_words(better.changes)}: measured at {pct(better.efficiency)} efficiency, "
            f"{factor(better.throughput_ratio)} the samples/s{this}"
        )
    why = "" if is_short else f" ({_BOUNDS[better.bounded_by]})"
    words = (
        f"{knob_words('batch_size', better.batch_size)}: {pct_range(better.efficiency)} efficiency "
        f"predicted, {factor_range(better.throughput_ratio)} the samples/s{this}{why}"
    )
    if is_short:
        return words if rule.remedy.change is None else own
    if rule.remedy.change is not None:
        return f"{own}; or {words}"
    return f"{own}. {words[0].upper()}{words[1:]}"


_BOUNDS: Mapping[str, str] = {
    "batches": "computing grows at least along the line through the batches measured, at most with the batch",
    "peak": "computing takes at least what the matrix peak allows, grows at most with the batch",
    "nothing": "one batch was measured: computing may stay as it is, and grows at most with the batch",
}


@singledispatch
def text_of(rule: Kind) -> Text:
    """The words of what a rule found; every rule has its own."""
    raise NotImplementedError(type(rule).__name__)


# where the time of a step goes


NEED_WORDS = {
    Need.VARIANTS: "a trial with all variants",
    Need.PHASES: "the phases of a step, which trials of a curve have",
    Need.BATCHES: "a larger batch",
    Need.SWEEP: "a sweep (communication), or a second bucket_cap_mb",
    Need.CLOCKS: "the devices' clocks, which the driver does not tell",
    Need.LOAD: "what else runs, which the host does not tell",
}


def not_examined_words(missing: Sequence[tuple[FindingName, Need]]) -> str:
    """What could not be looked at, and what it needs; empty where all was."""
    by_need = dict[Need, list[str]]()
    for name, need in missing:
        by_need.setdefault(need, []).append(name)
    each = (f"{', '.join(names)} (needs {NEED_WORDS[need]})" for need, names in by_need.items())
    return f"Not examined: {'; '.join(each)}." if by_need else ""


@text_of.register
def _(rule: Interference) -> Text:
    return Text(
        f"the step loses {ms(rule.part_s)}, {pct(rule.share)} of it, beyond what its transfers take alone: "
        "they slow down what computes alongside",
        "on GPUs fewer channels (NCCL_MAX_NCHANNELS), on CPUs a core that the ranks leave free; or fewer "
        "transfers: accumulation",
    )


@text_of.register
def _(rule: ExposedTransfers) -> Text:
    return Text("; ".join(_transfers(rule)), _better_transfers(rule))


def _transfers(rule: ExposedTransfers) -> Iterator[str]:
    case = rule.case
    yield f"{ms(rule.part_s)} of the step, {pct(rule.share)}, are transfers that no compute hides"
    if case.waterfall and case.waterfall.replay_s is not None:
        buckets = plural(len(case.steps.bucket_bytes), "bucket")
        together = size(case.steps.gradient_bytes or 0)
        yield f"alone they take {ms(case.waterfall.replay_s)} in {buckets} of {together} together"
    if rule.rate is not None and rule.link_share is None:
        yield f"bus bandwidth {bandwidth(rule.rate)}"
    elif rule.rate is not None and rule.link_share is not None:
        reached = f"{pct(rule.link_share)} of what the sweep's largest messages reach"
        yield f"bus bandwidth {bandwidth(rule.rate)}, {reached}"
        if cores_decide(case):
            yield "by the sweep the cores decide for messages of this size, not the link"
    if rule.latency is not None:
        share, each = pct(rule.latency.share), ms(rule.latency.each_s)
        yield f"latency is {share} of that, {each} each bucket ({_known_from(rule.latency)})"
    if rule.worse_way is not None:
        yield _worse_way(rule.worse_way)[0]


def _known_from(latency: Latency) -> str:
    if latency.other_buckets is None:
        return "by the sweep"
    changes = f": {changes_words(latency.other_setting)}" if latency.other_setting else ""
    return f"by the trial with {plural(latency.other_buckets, 'bucket')}{changes}"


def _worse_way(way: WorseWay) -> tuple[str, str]:
    """What is wrong with it, and what to do."""
    if way.variable and way.change:
        name = way.variable
        return f"{name}={way.value} switches a fast path off", f"measure with {name}=0"
    if way.variable:
        step = f"name the network between the nodes in {way.variable}; `raybench doctor` lists the interfaces"
        return f"{way.variable}={way.value} is no network between nodes", step
    if way.devices:
        step = "NCCL_DEBUG=INFO says why: a plugin or libibverbs that is missing, NCCL_NET, NCCL_IB_HCA"
        return f"NCCL sends over sockets, not by {', '.join(way.devices)}", step
    if way.network:
        step = "load nvidia-peermem; GPU and adapter below one PCIe switch (nvidia-smi topo -m)"
        return f"NCCL sends over {way.network} through the host's memory, without GPUDirect", step
    (near_a, near_b), (far_a, far_b) = way.near, way.far
    far = f"GPUs {far_a} and {far_b} are joined by {way.far_link}"
    return (
        f"{far}, GPUs {near_a} and {near_b} by {way.near_link}",
        f"measure on those too: --set 'scaling.placement=[[{near_a}, {near_b}]]'",
    )


def _better_transfers(rule: ExposedTransfers) -> str:
    case, more_samples = rule.case, "more samples between two transfers: a larger batch or accumulation"
    if rule.worse_way is not None:
        return _worse_way(rule.worse_way)[1]
    if rule.name is FindingName.LATENCY_BOUND:
        change = rule.remedy.change
        if change is None:
            return more_samples
        cap, buckets = change["bucket_cap_mb"], len(case.steps.bucket_bytes)
        return f"fewer, larger buckets: bucket_cap_mb {cap:g} sends all in one or two instead of {buckets}"
    if rule.name is FindingName.BANDWIDTH_BOUND:
        if cores_decide(case):
            return (
                "the cores decide, not the link: more samples between two transfers (a larger batch or "
                "accumulation), or more cores for each worker; a faster link hardly helps"
            )
        if case.config.setting.gradient_compression != "none":
            return f"{more_samples}; else a faster link"
        return f"{more_samples}, or half the bytes (gradient_compression bf16); else a faster link"
    if rule.latency is not None:
        return (
            "neither latency nor bandwidth has certainly more than half of it: a larger batch helps "
            "against both"
        )
    sweep = f"`raybench communication --world-sizes {case.config.world_size}`"
    missing = rule.other_sizes
    if not missing:
        return (
            "it is not known whether latency or bandwidth limits the transfers: a larger batch or "
            f"accumulation helps against both; {sweep} shows which it is"
        )
    named = " and ".join(f"{each:g}" for each in missing)
    return (
        "one size of buckets cannot separate latency from bandwidth: measure bucket_cap_mb of "
        f"{named} too, or run {sweep}"
    )


@text_of.register
def _(rule: CostlyWrapper) -> Text:
    fewer = "a larger batch or accumulation has fewer of them for each sample"
    if rule.case.is_cuda and not rule.case.config.setting.batched_grad_copy:
        fewer = f"batched_grad_copy (torch 2.14) copies in fewer kernels; {fewer}"
    return Text(
        f"DDP's copies and hooks take {ms(rule.part_s)}, {pct(rule.share)} of the step, without any transfer",
        f"gradient_as_bucket_view saves the copies back; {fewer}" if rule.remedy.change else fewer,
    )


@text_of.register
def _(rule: DataBound) -> Text:
    now, change = rule.case.config.setting.workers, rule.remedy.change
    is_script = isinstance(rule.case.config.workload, ScriptSpec)
    if change is not None:
        step = f"more processes for the loader: workers {change['workers']} instead of {now}"
    elif rule.case.config.workload.input == "real":
        step = (
            "cheaper batches (decoded or resized ahead): the loader has as many processes as are of use to it"
        )
    elif is_script:
        step = "more processes for the script's loaders (num_workers), or cheaper batches (made ahead)"
    else:
        step = "make batches before the steps; the loader's processes serve real input alone"
    processes = "" if is_script else f" ({now} loader processes a rank)"
    shown = f"{ms(rule.part_s)} of the step, {pct(rule.share)}, go by until the batch is there{processes}"
    return Text(shown, step)


@text_of.register
def _(rule: OtherProcesses) -> Text:
    steps, rounds = rule.case.steps, len(rule.lost_in_rounds)
    are_named = bool(steps.other_programs)  # else nobody has looked for them
    named = programs_words(programs_of(steps), rule.others if are_named else 0.0)
    shown = (
        f"{rule.others:.2f} of {rule.cores:.0f} cores went to other processes during the rounds "
        f"({rounds} rounds{f'; {named}' if named else ''}), the trial's workers need "
        f"{rule.cores - rule.spare:.0f}: they explain at most {rule.lost:.0%} of a step"
    )
    name, used = next(iter(stoppable(steps).items()), ("", 0.0))
    if used >= MOST_OF_IT * rule.others:
        step = (
            f"{name} took {used:.2f} of {rule.cores:.0f} cores during the rounds: stop it, or measure when "
            "it is done"
        )
    elif rule.is_own:
        step = (
            "nothing much to stop: Ray and the kernel take their share wherever it runs; a core for them is "
            "one that no worker has"
        )
    else:
        step = "see what else runs there (top): stop it, or measure when it is done"
    return Text(shown, step)


@text_of.register
def _(rule: Contention) -> Text:
    case, share = rule.case, rule.contention_share
    words = (
        f"all devices at once compute {ms(rule.contention_s)} longer than one alone, {pct(share)} of the step"
    )
    if rule.others_s is not None:
        words += f"; other processes explain {ms(rule.others_s)} of that"
    change = rule.remedy.change
    if case.is_cuda:
        fact = "GPUs share power and cooling, the host's memory, PCIe and cores; the times do not tell which"
        step = (
            "compare the clocks with those of one GPU at work (nvidia-smi dmon); else more cores for each "
            "worker (--cpus-per-worker), ranks spread over sockets or nodes"
        )
    elif rule.has_too_many_threads:
        fact = f"{rule.ranks} workers of {rule.threads} threads share {rule.cores} cores"
        step = "fewer workers: no more than there are cores"
        if change is not None:
            step = f"num_threads {change['num_threads']}: no more threads than cores"
    else:
        fact = "ranks share caches and memory, perhaps cores (hyperthreads); the times do not tell which"
        step = "fewer workers on this host, or more hosts: the rest of it has no more to give"
        if (case.record.nodes or 1) == 1 and num_nodes(case) > 1:
            step = "spread the workers over the nodes: scaling.placement spread"
    return Text(f"{words}; {fact}", step)


@text_of.register
def _(rule: BatchTooSmall) -> Text:
    case, part_s = rule.case, rule.part_s
    how = f"{ms(part_s)} of the step stay whatever the batch, by the line through the batches measured"
    if rule.by_strong_scaling:
        samples = f"{plural(case.config.batch_size, 'sample')} a device"
        how = f"{samples} take {ms(part_s)} longer than their part of the whole batch"
    step = "a larger batch"
    if case.larger_batches:
        step = (
            "no larger batch that was measured is certainly better: fewer and larger kernels (compile, "
            "optimizer_kernels fused), or a larger batch than those"
        )
    causes = "launches, Python or a device that is not filled: not separated"
    return Text(f"{how}, {pct(rule.share)} of the step; {causes}", step)


@text_of.register
def _(rule: UnevenDevices) -> Text:
    spread = rule.spread
    return Text(
        f"{_alone(rule.case.record, spread)} (99% interval, {spread.num_blocks} plain blocks)",
        f"every step waits for {_rank(rule.case.record, spread.slow)}: compare its clock, temperature and "
        "power limit with the others', or leave it out, where there are devices to spare "
        "(scaling.placement)",
    )


@text_of.register
def _(rule: Straggler) -> Text:
    record, alone = rule.case.record, rule.slow_alone
    where, cause, doubt = _rank(record, rule.rank), "", _doubt(rule)
    if alone is not None:
        told = f"perhaps the device itself, but {doubt}" if doubt else "it is the device itself"
        cause = f"; {_alone(record, alone)}: {told}"
        step = f"compare the clock, temperature and power limit of {where} with the others'"
        if doubt:
            step = f"measure again with nothing else at work; if {where} stays slow, compare its clock"
    elif rule.spread is not None:
        cause = "; alone it is not certainly slower: something else runs at the same time"
        step = f"find out what else uses the device or host of {where} (top, nvidia-smi)"
    else:
        step = f"find out what else uses the device or host of {where}"
    return Text(
        f"{where} takes {ms(rule.excess_s)} longer than the others in every step, {rule.ratio.value - 1:.1%} "
        f"({rule.ratio.n} rounds, no communication){cause}",
        f"{step}, or leave it out, where there are devices to spare (scaling.placement)",
    )


def _doubt(rule: Straggler) -> str:
    """Why it may not be the device though it is slow alone too; empty where nothing else explains it."""
    if rule.slow_alone is None:
        return ""
    if rule.is_under_load:
        return f"other processes took {rule.cores_of_others:.2f} cores of its host at the time"
    if rule.in_other_trials is False:
        return "it is not the slowest in the study's other trials"
    return "" if rule.in_other_trials else "no other trial of the study shows it"


def _alone(record: TrialRecord, spread: Spread) -> str:
    return (
        f"alone, {_rank(record, spread.slow)} takes {spread.by.value:.1%} [{spread.by.low:.1%}, "
        f"{spread.by.high:.1%}] longer than rank {spread.fast}"
    )


def _rank(record: TrialRecord, rank: int) -> str:
    """The rank, and its node where the trial had several."""
    names, place = record.hostnames, place_of(record, rank)
    if (record.nodes or 1) > 1 and place < len(names):
        return f"rank {rank} on node {names[place]}"
    return f"rank {rank}"


@text_of.register
def _(rule: TakingTurns) -> Text:
    workload = rule.case.config.workload
    why = ", though all batches have one shape: the hosts do other work that comes and goes"
    step = "see what else runs on the hosts (top): stop it, or measure when it is done"
    if varies(rule.case):
        why = ": batches of uneven length, or other work that comes and goes; the times do not show which"
        step = (
            "give all ranks batches of like length (sort by length, or pad to one shape); else see what runs "
            "on the hosts"
        )
    elif isinstance(workload, OwnCodeSpec) and workload.input == "real":
        why = (
            ": the hosts do other work that comes and goes, or batches differ in length, which a workload of "
            "your own does not report"
        )
    shown = f"ranks wait {ms(rule.part_s)} in a step for the slowest, which changes from step to step{why}"
    return Text(shown, step)


@text_of.register
def _(rule: NotDivided) -> Text:
    step = "more time for its rounds (--time-budget, measure.max_seconds) divides the step into its parts"
    if rule.case.record.request.role == "search":
        step = "a trial of the curve divides it: --resume measures those of the default and the winner"
    return Text("; ".join(_loss(rule.case, rule.part_s)), step)


@text_of.register
def _(rule: NegativeScaling) -> Text:
    case, efficiency, baseline = rule.case, rule.case.scaling.efficiency, rule.case.scaling.baseline
    known = f", an efficiency of {pct(efficiency)}" if efficiency else ""
    fewer = baseline.world_size if baseline else 1
    base = "one device" if fewer == 1 else f"{fewer} devices"
    slower = f"{case.config.world_size} devices are slower than {base}: {factor(rule.speedup)}{known}"
    losses = [] if rule.lost_s is None else _loss(case, rule.lost_s)
    until = "the loss" if rule.lost_s is not None else "what takes the time"
    return Text("; ".join([slower, *losses]), f"use {base} until {until} is fixed")


def _loss(case: Case, lost: Estimate) -> list[str]:
    """The loss, with the bounds of its communication where they are known."""
    told = " and not divided" if case.lost_s and lost.value < NEARLY_ALL * case.lost_s.value else ""
    facts = [f"{ms(lost)} of the step, {pct(lost.scaled(1 / case.step_s))}, are lost{told}"]
    replay = replayed(case)
    if replay is not None:
        least, most = communication_bounds(case, lost, replay.time_s)
        whose = "its" if replay.record.trial_id == case.record.trial_id else "another trial's"
        facts.append(
            f"{whose} transfers alone, {ms(replay.time_s)}, say that communication is "
            f"{least / case.step_s:.0%} (what compute is too short to hide) to {most / case.step_s:.0%} of "
            "it (all of them, if they and compute do not slow each other down)"
        )
    return facts


# what is to be said against the measurement


@text_of.register
def _(rule: NoisyMeasurement) -> Text:
    visits, needed = plural(rule.num_visits, "visit"), rule.needed_visits
    step = f"about {needed} visits would reach it (--visits), or a quieter machine"
    if needed > MOST_TIMES * rule.num_visits:
        programs = stoppable(rule.case.steps)
        named = f": {programs_words(programs)}" if programs else " (top)"
        step = (
            "noise is the matter, not time: see what else uses the machine and stop it, or measure when "
            f"it is done{named}"
        )
    return Text(f"the half-width is {rule.reached:.1%} after {visits}, {rule.asked:.1%} was asked", step)


@text_of.register
def _(rule: RareSlowSteps) -> Text:
    extra_ms = 1e3 * rule.share * rule.case.step_s
    return Text(
        f"the mean step is {rule.share:.1%} above the typical one: rare slow steps cost {extra_ms:.3g} ms "
        "a step in times, costs and energy of epochs and runs",
        "find what comes and goes: other programs, garbage collection, checkpoints, a loader that stalls",
    )


@text_of.register
def _(rule: Oversubscribed) -> Text:
    step = "unknown" if rule.step_s is None else f"{ms(rule.step_s)}, {rule.step_s.n} rounds"
    return Text(
        f"{rule.case.config.world_size} workers shared fewer cores; step time {step}",
        "use it to see that a study works, not for its numbers: run on as many cores as workers",
    )


@text_of.register
def _(rule: Throttling) -> Text:
    said = list[str]()
    if rule.slowed_rounds:
        ranks = ", ".join(map(str, rule.ranks))
        rounds = len(rule.case.steps.rounds)
        said.append(f"the device said so in {rule.slowed_rounds} of {rounds} rounds (rank {ranks})")
    if rule.clock_drop >= CLOCK_DROP:
        said.append(f"a clock fell by {rule.clock_drop:.0%} between rounds")
    return Text(
        "; ".join(said),
        "look at temperature and power limit (nvidia-smi -q -d CLOCK,POWER,TEMPERATURE), and at the governor",
    )


@text_of.register
def _(rule: QuotaUsedUp) -> Text:
    return Text(
        f"the container used up its quota of CPU time in {rule.share:.0%} of the scheduler's periods, and "
        "stood still until the next",
        "fewer workers or threads, or a larger limit (Kubernetes: resources.limits.cpu, Docker: --cpus)",
    )


@text_of.register
def _(rule: LittleMemory) -> Text:
    return Text(
        f"a GPU was full {plural(rule.retries, 'time')} in the rounds, and torch emptied its cache",
        "a smaller batch or activation_checkpointing; without the other variants there may be room",
    )


@text_of.register
def _(rule: NarrowPCIe) -> Text:
    record = rule.case.record
    each = (
        f"{_rank(record, rank)} has PCIe {link.generation} x{link.lanes} where {link.most_generation} "
        f"x{link.most_lanes} is possible"
        for rank, link in rule.links.items()
    )
    return Text("; ".join(each), "reseat the card, or look at its riser and the slot's settings in the BIOS")


@text_of.register
def _(rule: LossesDisagree) -> Text:
    verdict, gradient = rule.verdict, ""
    if verdict.gradient_difference is not None:
        gradient = (
            f", its first gradient by {verdict.gradient_difference:.2g} "
            f"(tolerance {verdict.gradient_tolerance:g})"
        )
    words = (
        f"{rule.case.config.setting.strategy}'s losses of the first {verdict.steps} steps differ from one "
        f"device's on the same samples by up to {verdict.relative_difference:.2g} (relative, tolerance "
        f"{verdict.tolerance:g}){gradient}"
    )
    if verdict.may_differ:
        explained = "; ".join(verdict.may_differ)
        return Text(f"{words}: {explained}", "compare accuracies, not losses step by step")
    return Text(words, "find out what the strategy computes otherwise before its speed is used")


@text_of.register
def _(rule: NotAllMeasured) -> Text:
    return Text(
        "; ".join(f"{name.replace('_', ' ')}: {reason}" for name, reason in rule.reasons),
        "nothing for the step times; a smaller batch leaves more memory for the rest",
    )


# what is to be said of the study


_AFTER_FAILURE: Mapping[State, str] = {
    "crashed": "mend it, then try what crashed again, and the rest",
    "timeout": "if it does not hang, try again with more time",
    "oom": "a smaller batch, accumulation or activation_checkpointing; if others had the memory, try again",
    "invalid": "another value of what the reason names",
}


@text_of.register
def _(rule: Failed) -> Text:
    group, results = rule.group, rule.whole.results
    total = len(results.records)
    named = [trial_words(results.study, each.study_request) for each in group[:MOST_NAMED]]
    more = f"; and {len(group) - MOST_NAMED} more" if len(group) > MOST_NAMED else ""
    asked = "the only trial that was asked" if total == 1 else f"{len(group)} of {total} trials"
    whose = f" ({'; '.join(named)}{more})" if len(group) < total or total == 1 else ""
    reason = " ".join((group[0].reason or "").split())
    return Text(f"{asked}{whose}: {reason}", _AFTER_FAILURE[rule.state])


@text_of.register
def _(rule: NotReached) -> Text:
    has_budget = rule.whole.results.study.time_budget_seconds is not None
    budget = ", with a new time budget" if has_budget else ""
    return Text("; ".join(rule.whole.left_out), f"measure the rest{budget}")


@text_of.register
def _(rule: PrecisionWithoutGain) -> Text:
    precision = rule.record.config.setting.precision
    return Text(
        f"{precision} has {factor(rule.ratio)} the samples/s of fp32 at the same setting",
        "precision fp32, or look at what the narrower one has no fast operations for",
    )


@text_of.register
def _(rule: NoGain) -> Text:
    gain, what = rule.gain, difference_words(rule.whole.results.study, rule.record.config)
    more = f"{pct(gain.gain)} more" if gain.gain.value >= 0 else f"{pct(gain.gain.scaled(-1))} fewer"
    step = "keep the default: the best is as good"
    if gain.verdict is Verdict.UNKNOWN:
        tell = (
            f"about {gain.to_tell} times as many visits (measure.visits) would tell" if gain.to_tell else ""
        )
        step = "; ".join(filter(None, ["keep the default until it is known", tell]))
    return Text(f"the best setting ({what}) has {more} samples/s than the default", step)


@text_of.register
def _(rule: SeveralDevices) -> Text:
    first, here = rule.others[0].config, rule.headline.device_name
    of_each = Counter(each.device_name for each in rule.others)
    told = [f"{plural(number, 'trial')} on {name}" for name, number in of_each.most_common()]
    example = f"{label(rule.whole.results.study, first)} on {devices_words(first.world_size)}"
    return Text(
        f"the headline ran on {here}, {', '.join(told)} (first: {example})",
        "a speed-up holds where its one device was measured in the same rounds; do not compare rates, or "
        f"settings, of different kinds: measure all of them on {here}",
    )


def programs_words(programs: Mapping[str, float], taken: float = 0.0) -> str:
    """Such as "python 0.71, chrome 0.20"; of cores ``taken`` also what none of them accounts for."""
    unnamed = taken - sum(programs.values())
    named = [f"{name} {used:.2f}" for name, used in programs.items()]
    if unnamed > MUCH_UNNAMED * taken:
        named.append(f"programs that came and went {unnamed:.2f}")
    return ", ".join(named)


# numbers with their intervals


def ms(seconds: Estimate) -> str:
    """A time: "1.62 ms [1.55, 1.69]"."""
    scaled = seconds.scaled(1e3)
    digits = 0 if scaled.value >= 100 else 1 if scaled.value >= 10 else 2
    return f"{scaled.value:,.{digits}f} ms [{scaled.low:,.{digits}f}, {scaled.high:,.{digits}f}]"


def pct(share: Estimate) -> str:
    """A share: "12% [10, 14]"."""
    scaled = share.scaled(100)
    digits = 1 if scaled.half_width < 0.5 else 0
    return f"{scaled.value:.{digits}f}% [{scaled.low:.{digits}f}, {scaled.high:.{digits}f}]"


def pct_range(share: Estimate) -> str:
    """A share of which only the ends are known: "81% to 86%"."""
    return f"{share.low:.0%} to {share.high:.0%}"


def factor(ratio: Estimate) -> str:
    """A ratio: "1.62x [1.55, 1.69]"."""
    return f"{ratio.value:.2f}x [{ratio.low:.2f}, {ratio.high:.2f}]"


def factor_range(ratio: Estimate) -> str:
    """A ratio of which only the ends are known: "1.2x to 1.6x"."""
    return f"{ratio.low:.2f}x to {ratio.high:.2f}x"


def bandwidth(rate: Estimate) -> str:
    """A bandwidth in bytes/s: "1.62 GB/s [1.55, 1.69]" (10^9 bytes), a small one in MB/s."""
    unit, factor = ("GB/s", 1e-9) if rate.value >= 1e8 else ("MB/s", 1e-6)
    scaled = rate.scaled(factor)
    return f"{scaled.value:.2f} {unit} [{scaled.low:.2f}, {scaled.high:.2f}]"


def size(size_bytes: int) -> str:
    """An amount of memory: "1.4 MiB", "6.0 KiB"."""
    return f"{size_bytes / 2**20:.1f} MiB" if size_bytes >= 2**19 else f"{size_bytes / 2**10:.1f} KiB"


def rate(estimate: Estimate) -> str:
    """Samples/s: "10,101 [9,870, 10,330]", of few "12.3 [12.1, 12.5]"."""
    digits = 0 if estimate.value >= 100 else 1 if estimate.value >= 10 else 2
    return f"{estimate.value:,.{digits}f} [{estimate.low:,.{digits}f}, {estimate.high:,.{digits}f}]"

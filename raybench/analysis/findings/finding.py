"""What a finding is: its name, what it carries, and in which order findings stand."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum, auto

from raybench.analysis.stats.statistics import Estimate
from raybench.spec.knobs import KnobValue


class FindingName(StrEnum):
    """Every finding there is; of findings that weigh the same the first one here stands first."""

    # where the step's time goes: each explains some of it
    #: communication that compute does not hide, and what limits it: latency, bandwidth, or a slow
    #: way between nodes (NCCL took sockets despite InfiniBand, RoCE or EFA, or these without GPUDirect)
    COMMUNICATION_BOUND = "communication-bound"
    #: a step on which transfers run takes longer than both explain: they take cores, memory bandwidth or
    #: multiprocessors from what computes at the same time
    INTERFERENCE = "interference"
    #: DDP's copies and hooks, or FSDP's
    COSTLY_WRAPPER = "costly wrapper"
    #: all devices at once compute slower than one alone; on busy cores how much of it others may be
    CONTENTION = "contention"
    #: one rank is slower than the others by 2%: in `local`, with an interval that holds for all ranks at
    #: once, or else alone (99% interval); its reason is the device where it is slow alone too
    STRAGGLER = "straggler"
    #: skew beyond a straggler's: ranks wait now for one, now for another
    JITTER = "jitter"
    #: the phase in which the step waits for its batch
    DATA_BOUND = "data-bound"
    #: the optimizer's update, timed alone, takes longer than a fused one
    UNFUSED_OPTIMIZER = "unfused optimizer"
    #: 10% of the step stays whatever the batch, by the smaller batch of strong scaling or by the line through
    #: two batches
    BATCH_TOO_SMALL = "batch too small"
    #: a loss of which only the whole was measured, with bounds of its communication
    UNATTRIBUTED_LOSS = "unattributed loss"
    # what makes the figures those of a slower machine
    #: other processes, Ray's own among them, took 2% of the cores that the workers needed, which may be in
    #: any part of the step
    OTHER_PROCESSES = "other processes"
    #: more workers than cores, or in 5% of the scheduler's periods a rank's container had used up its quota
    #: of CPU time, and stood still
    TOO_FEW_CORES = "too few cores"
    #: a device says that heat, a power brake or its hardware holds its clock down; or the clock fell by 10%
    #: where none says why. A power cap is how GPUs work at full load, and not a finding
    THROTTLING = "throttling"
    #: a GPU's PCIe link is of an older generation, or has fewer lanes, than GPU and slot could have together
    NARROW_PCIE = "narrow PCIe link"
    #: a rank may use no core of its GPU's NUMA node; a warning where it is the slow rank too
    FAR_CORES = "cores far from the GPU"
    #: a GPU was 5 degrees warmer at the end of a setting's last visit than at that of the one before, or, of
    #: a single visit, than in its first round: the clocks of hours may be lower
    STILL_WARMING = "still warming up"
    #: lines of code at which a step waits for its GPU, so that the host cannot give it work ahead
    HOST_SYNCHRONIZATION = "host synchronization"
    #: torch's allocator found a GPU full in timed steps and emptied its cache, which stops the device
    LITTLE_MEMORY = "little memory left"
    #: the mean step over all rounds is more than 3% above the typical one: the slow steps that the estimator
    #: trims are part of every total (time, cost, energy)
    RARE_SLOW_STEPS = "rare slow steps"
    # what limits the use of the figures
    #: the strategy's losses, or its first gradient, are not one device's
    LOSSES_DISAGREE = "losses disagree"
    #: the loaders of a script give each rank the same samples, as without a DistributedSampler
    SAME_SAMPLES = "same samples"
    #: what failed when the rounds were done
    NOT_ALL_MEASURED = "not all measured"
    #: trials without figures, one finding for each cause: an error (with the user's own lines of code), a
    #: trial longer than `measure.timeout_seconds`, too little memory (a note where others completed), or a
    #: request that cannot be measured
    FAILED = "failed"
    #: what was requested and not measured, and the command that resumes
    NOT_REACHED = "not reached"


class Reason(StrEnum):
    """Which of several causes, with its own fix, a finding of one name has."""

    # communication-bound
    FEW_BUCKETS = auto()  # latency, which fewer buckets do not help
    MANY_BUCKETS = auto()  # latency
    BANDWIDTH = auto()
    COMPRESSED = auto()  # bandwidth, of gradients that are compressed already
    BOTH = auto()  # neither latency nor bandwidth has certainly more than half
    ONE_BUCKET_SIZE = auto()  # which of them is unknown; another bucket size separates them
    UNSEPARATED = auto()  # the same; no other bucket size separates them
    SOCKETS = auto()  # a slow way
    HOST_MEMORY = auto()  # a slow way
    PASSES = auto()  # communicate themselves, as SyncBatchNorm does
    GATHERS_TWICE = auto()  # of FSDP, weights before each pass
    GATHERS = auto()  # of FSDP, weights before the forward pass
    # interference
    CHANNELS = auto()  # of NCCL's take multiprocessors
    BUSY_CORES = auto()
    # contention
    SHARED_NODE = auto()  # of GPUs whose clocks are not known
    CLOCKS = auto()  # which are lower when all GPUs work
    SHARED_HOST = auto()  # of GPUs whose clocks are about the same
    THREADS = auto()  # more of them than cores
    WORKERS = auto()  # more of them than cores, whatever their threads
    OTHERS = auto()  # other processes may be all of it
    # costly wrapper
    VIEWS = auto()  # gradient_as_bucket_view is off
    COPIES = auto()  # batched_grad_copy is off
    SHARDS = auto()  # of FSDP
    # straggler
    DEVICE = auto()  # slow alone too
    NOT_ALONE = auto()  # something else runs there
    SLOW_ALONE = auto()  # and not certainly in the step
    # jitter
    BATCHES = auto()  # may have another length on each rank
    # data-bound
    FEW_WORKERS = auto()
    SCRIPT = auto()
    LOADER = auto()  # has as many workers as it can use
    # batch too small
    STRONG_SCALING = auto()
    LARGER_IS_NO_BETTER = auto()
    # unattributed loss
    SEARCHED = auto()  # a trial of the search, which has no other variants
    NO_PARTS = auto()  # of a strategy or script without DDP, whose transfers cannot be left out
    NOT_LEFT_OUT = auto()  # of a script with DDP, for the reason that it names
    OWN_COLLECTIVES = auto()  # of a script, in each step
    OF_SCRIPT = auto()  # whose wrapper and contention are not separated
    # too few cores
    OVERSUBSCRIBED = auto()
    QUOTA = auto()
    # throttling
    CLOCK_FELL = auto()
    # cores far from the GPU
    SLOW_TOO = auto()  # the rank is the slow one
    # losses disagree
    GRADIENT = auto()  # and not the losses
    # failed
    CRASHED = auto()
    TIMEOUT = auto()
    OOM = auto()
    INVALID = auto()


SLOW_WAYS = frozenset({Reason.SOCKETS, Reason.HOST_MEMORY})


class Need(StrEnum):
    """What was not measured, and is needed to look for a finding."""

    #: a trial with all variants
    VARIANTS = "variants"
    #: phases of the step: of trials of a curve
    PHASES = "phases"
    #: a further batch
    BATCHES = "batches"
    #: clocks of the devices
    CLOCKS = "clocks"
    #: what other processes take of the cores
    LOAD = "load"


class Severity(StrEnum):
    """How much a finding matters to whoever reads the numbers, the least first."""

    NOTE = "note"  # little time, or the estimator copes with it
    WARNING = "warning"  # much time, or the numbers are less sure, or less general, than they look
    PROBLEM = "problem"  # the numbers should not be used as they are


@dataclass(frozen=True)
class Finding:
    """One thing that was noticed in one trial; of equal failures in the first one.

    ``trial_id`` is empty of what was not reached. ``change`` is what to try: knobs of ``Setting`` with
    their new values; None where none fixes it. ``predicted`` is the throughput with the change over that
    without it, as far as it is known: its bounds. Its text is in ``report.finding_texts``, by name and
    reason.
    """

    name: FindingName
    severity: Severity
    trial_id: str
    values: dict[str, float]  # the numbers that show it by name, units in the names
    reason: Reason | None = None
    named: Mapping[str, str] = field(default_factory=dict)  # what shows it and is no number: programs, say
    step_s: float | None = None  # the step that it is about
    explains: Estimate | None = None  # of the step, in s
    change: Mapping[str, KnobValue] | None = None
    predicted: Estimate | None = None  # a ratio; never there without a change
    command: str = ""  # that takes the next step, as it is typed
    frame: str = ""  # of a crash: where in the code it arose

    @property
    def wins_s(self) -> float:
        """What the change is likely to win back of a step, in s; half of what it explains where unknown."""
        if self.explains is None:
            return 0.0
        if self.predicted is None or self.step_s is None:
            return self.explains.value / 2
        return min(self.step_s * (1 - 1 / self.predicted.value), self.explains.value)


def ranked(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """What makes the numbers useless first, then what wins back the most time, then the rest by gravity.

    What may explain nothing stands behind all that certainly explains some, however much it may be.
    """
    return tuple(sorted(findings, key=_rank))


def _rank(finding: Finding) -> tuple[int, float, int]:
    if finding.severity is Severity.PROBLEM:
        place = 0
    elif finding.explains is None:
        place = 3
    else:
        place = 1 if finding.explains.low > 0 else 2
    return place, -finding.wins_s, list(Severity)[::-1].index(finding.severity)

"""What a finding is: its name, what it carries, the class that each is one of, and in which order they stand.

The classes stand with what they look at; the lists of them are in ``diagnose``.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING

from raybench.analysis.stats.statistics import Estimate
from raybench.spec.knobs import KnobValue

if TYPE_CHECKING:
    from raybench.analysis.findings.batch import LargerBatch
    from raybench.analysis.findings.configurations import Change


class FindingName(StrEnum):
    """Every finding there is."""

    # where the step's time goes: each explains some of it
    #: the speed-up is below 1 with its whole interval; it explains the loss where its parts were not measured
    NEGATIVE_SCALING = "negative scaling"
    #: communication that no compute hides; whether latency or bandwidth makes it is unknown, or neither
    #: certainly has half of it
    COMMUNICATION_BOUND = "communication-bound"
    #: the same, and latency has more than half of the transfers' time, by a sweep or by trials with another
    #: number of buckets
    LATENCY_BOUND = "latency-bound"
    #: the same, and latency has less than half
    BANDWIDTH_BOUND = "bandwidth-bound"
    #: the same, and a variable switches a fast path off, an interface is none between nodes, GPUs are joined
    #: through the host while others are not, or NCCL took sockets where there is InfiniBand, RoCE or EFA, or
    #: these without GPUDirect
    SLOW_PATH = "slow interface or topology"
    #: 10% of the step stays whatever the batch, by the smaller batch of strong scaling or by the line through
    #: two batches
    BATCH_TOO_SMALL = "batch too small"
    #: the phase in which the step waits for its batch
    DATA_BOUND = "data-bound"
    #: one rank is slower than the others by 2% in `local`, its interval one that holds for all ranks at once;
    #: rank and node are named; it is called the device itself where it is slow alone in half of the study's
    #: other trials too and others took less than a tenth of a core
    STRAGGLER = "straggler"
    #: devices differ by 2% alone (99% interval), where no straggler explains it
    UNEVEN_DEVICES = "uneven devices"
    #: skew beyond a straggler's, of texts that are padded to the longest of a batch
    UNEVEN_BATCHES = "uneven batches"
    #: the same where batches have one shape, or this is unknown
    JITTER = "jitter"
    #: all devices at once compute slower than one alone, beyond what other processes explain
    CONTENTION = "contention"
    #: they took 2% of the cores that the workers needed; it explains contention that may be theirs, where
    #: contention was not measured up to the whole loss, and is reported as "up to"; the program that took a
    #: third of it at least is the one to stop
    OTHER_PROCESSES = "other processes"
    #: a step on which transfers run takes longer than both explain: they take cores, memory bandwidth or
    #: multiprocessors from what computes alongside
    INTERFERENCE = "interference"
    #: DDP's copies and hooks
    COSTLY_WRAPPER = "costly wrapper"
    #: a device says that heat, a power brake or its hardware holds its clock down, or the clock fell by 10%;
    #: a power cap in force is how GPUs work at full load, and no finding
    THROTTLING = "throttling"
    #: in 5% of the scheduler's periods a rank's container had used up its quota of CPU time, and stood still
    CPU_QUOTA = "CPU quota used up"
    #: a GPU's PCIe link has fewer lanes than GPU and slot could have
    NARROW_PCIE = "narrow PCIe link"
    #: torch's allocator found a GPU full in the rounds and emptied its cache, which stops the device
    LITTLE_MEMORY = "little memory left"
    #: a loss of which only the whole was measured, with bounds of its communication
    NOT_DIVIDED = "loss not taken apart"
    # what no time can be given for
    #: bf16, fp16 or tf32 with less than 1.05x the samples/s of fp32, whole interval
    PRECISION_WITHOUT_GAIN = "precision that does not help"
    #: the best setting is as good as the default: its whole interval is within `search.minimum_gain`
    AS_GOOD = "as good"
    #: whether the best setting is better than the default its interval leaves open
    NOT_KNOWN_YET = "not known yet"
    # what is to be said against the measurement
    #: more workers than cores
    OVERSUBSCRIBED = "oversubscribed"
    #: the half-width that was asked of so many visits was not reached; where that would take more than ten
    #: times as many, noise is to be stopped instead
    NOISY_MEASUREMENT = "noisy measurement"
    #: the mean step over all rounds is more than 3% above the typical one: the slow steps that the estimator
    #: trims are part of every total (time, cost, energy)
    RARE_SLOW_STEPS = "rare slow steps"
    #: trials ran on devices of another name than the headline's; `predict` leaves them out
    SEVERAL_DEVICES = "devices of several kinds"
    #: the strategy's losses, or its first gradient, are not one device's
    LOSSES_DISAGREE = "losses disagree"
    #: what failed when the rounds were done
    NOT_ALL_MEASURED = "not all measured"
    # what there are no numbers of
    #: trials ended with an error, counted by cause: the error, the user's own lines of code where it arose,
    #: and the command that tries them again
    CRASHED = "crashed"
    #: trials took longer than `measure.timeout_seconds`
    TIMED_OUT = "timed out"
    #: trials did not fit; a note where others completed
    OUT_OF_MEMORY = "out of memory"
    #: trials cannot be measured as requested
    REFUSED = "refused"
    #: what was requested and not measured, counted, and the command that goes on
    NOT_REACHED = "not reached"


class Need(StrEnum):
    """What a cause needs to be looked at, where the study does not have it."""

    #: a trial with all variants
    VARIANTS = "variants"
    #: phases of the step: of trials of a curve
    PHASES = "phases"
    #: a further batch
    BATCHES = "batches"
    #: a sweep of collectives, or a further size of buckets
    SWEEP = "sweep"
    #: clocks of the devices
    CLOCKS = "clocks"
    #: what other processes take of the cores
    LOAD = "load"


class Severity(StrEnum):
    """How much a finding matters to whoever reads the numbers."""

    NOTE = "note"  # little time, or the estimator copes with it
    WARNING = "warning"  # much time, or the numbers are less sure, or less general, than they look
    PROBLEM = "problem"  # the numbers should not be used as they are


@dataclass(frozen=True)
class Finding:
    """One thing that was noticed in one trial; of failures alike in the first one.

    ``trial_id`` is empty of what was not reached. ``change`` is what to try: knobs of ``Setting`` or
    variables of the processes, with their new values (None as a value of a variable: unset it); None where
    neither cures it. ``predicted`` is the throughput with the change over that without it, as far as it can
    be said: measured in this study, or bounds.
    """

    name: FindingName
    severity: Severity
    trial_id: str
    values: dict[str, float]  # the numbers that show it by name, units in the names
    rule: Kind | None = field(default=None, compare=False, repr=False)  # what found it; None: planted
    explains: Estimate | None = None  # of the step, in s
    change: Mapping[str, KnobValue] | None = None
    predicted: Estimate | None = None  # a ratio; never there without a change
    better: Change | LargerBatch | None = None  # a measured setting or a predicted batch that is better
    command: str = ""  # that takes the next step, as it is typed
    frames: tuple[str, ...] = ()  # of a crash: where in the code it arose, the user's own first
    comes_first: bool = False  # before what explains time, as the step that it explains is in doubt
    is_at_most: bool = False  # ``explains`` is a bound: so much at most, perhaps none

    @property
    def wins_s(self) -> float:
        """What the change is likely to win back of a step, in s; half of what it explains where unknown."""
        if self.explains is None:
            return 0.0
        step_s = self.rule.whole_s if self.rule is not None else None
        if self.predicted is None or step_s is None:
            return self.explains.value / 2
        return min(step_s * (1 - 1 / self.predicted.value), self.explains.value)


@dataclass(frozen=True)
class Remedy:
    """What to change because of a finding; the fields as in ``Finding``."""

    change: Mapping[str, KnobValue] | None = None
    predicted: Estimate | None = None
    command: str = ""


class Kind(ABC):
    """A rule: when there is a finding, which numbers show it, what to change.

    A class's ``condition`` makes its instances, each with the numbers that met it: of a trial (``OfTrial``),
    or of a study (``OfStudy``). Its words are in ``report.finding_texts``.
    """

    @property
    @abstractmethod
    def name(self) -> FindingName:
        """Its name: of a class with several causes, that of the cause."""

    @property
    @abstractmethod
    def trial_id(self) -> str:
        """The trial that it is about."""

    @property
    @abstractmethod
    def severity(self) -> Severity:
        """How much it matters."""

    @property
    def whole_s(self) -> float | None:
        """The step that it is about, in s; None: of no certain one."""
        return None

    @property
    def explains(self) -> Estimate | None:
        """How much of the step it takes, in s; None where that is not known."""
        return None

    @property
    def is_at_most(self) -> bool:
        """Whether ``explains`` is a bound and no estimate."""
        return False

    @property
    def comes_first(self) -> bool:
        """Whether it stands before what explains time, as the step that is explained is in doubt."""
        return False

    @property
    def frames(self) -> tuple[str, ...]:
        """Of a crash: where in the code it arose."""
        return ()

    @property
    @abstractmethod
    def values(self) -> dict[str, float]:
        """The numbers that show it, by name with their units."""

    @property
    def remedy(self) -> Remedy:
        """What to change; nothing where only its words say what to do."""
        return Remedy()

    def finding(self) -> Finding:
        """All of it as values."""
        remedy = self.remedy
        return Finding(
            name=self.name,
            severity=self.severity,
            trial_id=self.trial_id,
            values=self.values,
            rule=self,
            explains=self.explains,
            comes_first=self.comes_first,
            is_at_most=self.is_at_most,
            change=remedy.change,
            predicted=remedy.predicted,
            command=remedy.command,
            frames=self.frames,
        )


def is_tie(one: Finding, other: Finding) -> bool:
    """Whether two that explain time, one right behind the other, explain about as much."""
    if one.explains is None or other.explains is None or one.is_at_most or other.is_at_most:
        return False
    apart = abs(one.explains.value - other.explains.value)
    return apart < math.hypot(one.explains.half_width, other.explains.half_width)


_GRAVITY = {Severity.PROBLEM: 0, Severity.WARNING: 1, Severity.NOTE: 2}


def ranked(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """What makes the numbers useless first, then what wins back the most time, then the rest by gravity.

    What may explain nothing stands behind all that surely explains some, however much it may be.
    """
    return tuple(sorted(findings, key=_rank))


def _rank(finding: Finding) -> tuple[int, float, int]:
    gravity = _GRAVITY[finding.severity]
    if finding.severity is Severity.PROBLEM:
        return 0, 0.0, gravity
    if finding.comes_first:
        return 1, 0.0, gravity
    if finding.explains is not None:
        return 2 if finding.explains.low > 0 else 3, -finding.wins_s, gravity
    return 4, 0.0, gravity

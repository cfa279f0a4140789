"""What a finding is: its name, what it carries, the class that each is one of, and in which order they stand.

The classes stand with what they look at; the lists of them are in ``diagnose``.
"""

from __future__ import annotations

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
    NEGATIVE_SCALING = "negative scaling"
    COMMUNICATION_BOUND = "communication-bound"  # latency and bandwidth are not told apart
    LATENCY_BOUND = "latency-bound"
    BANDWIDTH_BOUND = "bandwidth-bound"
    SLOW_PATH = "slow interface or topology"
    BATCH_TOO_SMALL = "batch too small"
    LAUNCH_BOUND = "Python- or launch-bound"
    DATA_BOUND = "data-bound"
    STRAGGLER = "straggler"
    UNEVEN_DEVICES = "uneven devices"
    UNEVEN_BATCHES = "uneven batches"
    JITTER = "jitter"  # batches of one shape, and yet now one rank is late, now another
    CONTENTION = "contention"
    MEMORY_OR_PCIE = "memory or PCIe contention"
    OTHER_PROCESSES = "other processes"
    COSTLY_WRAPPER = "costly wrapper"
    THROTTLING = "throttling"
    NOT_DIVIDED = "loss not taken apart"
    # what no time can be given for
    MEMORY_BOUND = "memory-bound"
    PRECISION_WITHOUT_GAIN = "precision that does not help"
    NO_SIGNIFICANT_GAIN = "no significant gain"
    # what is to be said against the measurement
    OVERSUBSCRIBED = "oversubscribed"
    NOISY_MEASUREMENT = "noisy measurement"
    DRIFT = "drift"
    OUTLIER_ROUNDS = "outlier rounds"
    MEASURED_UNDER_LOAD = "measured under load"
    MEASUREMENTS_DISAGREE = "measurements disagree"
    SEVERAL_DEVICES = "devices of several kinds"
    LOSSES_DISAGREE = "losses disagree"
    NOT_ALL_MEASURED = "not all measured"
    # what there are no numbers of
    CRASHED = "crashed"
    TIMED_OUT = "timed out"
    OUT_OF_MEMORY = "out of memory"
    REFUSED = "refused"
    NOT_REACHED = "not reached"


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


_GRAVITY = {Severity.PROBLEM: 0, Severity.WARNING: 1, Severity.NOTE: 2}


def ranked(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """What makes the numbers useless first, then what explains the most time, then the rest by gravity.

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
        return 2 if finding.explains.low > 0 else 3, -finding.explains.value, gravity
    return 4, 0.0, gravity

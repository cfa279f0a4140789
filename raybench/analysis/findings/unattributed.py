"""What is lost where a trial did not measure to what, in bounds; and devices slower than one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from raybench.analysis.findings.case import Case, OfTrial, PartOfStep, Replay
from raybench.analysis.findings.evenness import UnevenDevices
from raybench.analysis.findings.finding import FindingName, Severity
from raybench.analysis.stats.statistics import Estimate

NEARLY_ALL = 0.98  # of the loss: with less, other parts of it are known


@dataclass(frozen=True)
class NotDivided(PartOfStep):
    """A loss of 5% of the step of which only the whole is known, with what it must hold of communication."""

    name = FindingName.NOT_DIVIDED

    @classmethod
    def condition(cls, case: Case) -> Self | None:
        """Worth telling; where devices are slower than one, it is told as that."""
        lost = undivided_loss(case)
        return None if lost is None or is_negative(case) else cls(case, lost)

    @property
    def values(self) -> dict[str, float]:
        return _loss(self.case, self.part_s)


@dataclass(frozen=True)
class NegativeScaling(OfTrial):
    """Slower than fewer devices, certainly.

    Where the parts of the step say why, those explain the time; else it explains the whole loss.
    """

    name = FindingName.NEGATIVE_SCALING
    severity = Severity.WARNING  # fewer devices do more
    speedup: Estimate
    lost_s: Estimate | None  # where no part of it is known

    @classmethod
    def condition(cls, case: Case) -> Self | None:
        """The speed-up is below 1 with its whole interval."""
        speedup = case.scaling.speedup
        if speedup is None or not is_negative(case):
            return None
        return cls(case, speedup, undivided_loss(case))

    @property
    def explains(self) -> Estimate | None:
        return self.lost_s

    @property
    def values(self) -> dict[str, float]:
        speedup = {"speedup": self.speedup.value}
        return speedup if self.lost_s is None else _loss(self.case, self.lost_s)


def undivided_loss(case: Case) -> Estimate | None:
    """What is lost and was not taken apart, less what uneven devices explain; None: not worth telling."""
    lost = case.lost_s if case.waterfall is None else case.parts.undivided
    devices = case.finding(UnevenDevices)
    if lost is not None and devices is not None and devices.explains is not None:
        known_s = devices.explains.value
        lost = Estimate(lost.value - known_s, lost.low - known_s, lost.high - known_s, lost.n, lost.starts)
    return lost if lost is not None and case.is_worth_telling(lost) else None


def is_negative(case: Case) -> bool:
    """Whether the speed-up is below 1 with its whole interval."""
    speedup = case.scaling.speedup
    return speedup is not None and case.config.world_size > 1 and speedup.high < 1


def _loss(case: Case, lost: Estimate) -> dict[str, float]:
    """The loss, with the bounds of its communication where they are known."""
    values = {"lost_s": lost.value, "lost_share": lost.value / case.step_s}
    replay = replayed(case)
    if replay is not None:
        least, most = communication_bounds(case, lost, replay.time_s)
        values |= {"least_communication_s": least, "most_communication_s": most}
    return values


def replayed(case: Case) -> Replay | None:
    """The same transfers alone, its own or another trial's: they take as long whatever the batch."""
    number = len(case.steps.bucket_bytes)
    return next((each for each in case.replays if each.num_buckets == number), None)


def communication_bounds(case: Case, lost: Estimate, replay_s: Estimate) -> tuple[float, float]:
    """Between what exposed communication lies, in s, where nothing but the whole loss was measured.

    At least the transfers less all compute of one device, which could hide them; at most all of them, unless
    compute and transfers slow each other down. Neither more than what is lost.
    """
    compute = case.alone_s.get(case.samples)
    hidden_s = compute.high if compute else case.step_s
    return min(max(replay_s.low - hidden_s, 0.0), lost.low), min(replay_s.high, lost.high)

"""What is lost where a trial did not measure to what, in bounds; and devices slower than one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from raybench.analysis.findings.case import Case, OfTrial, PartOfStep, Replay
from raybench.analysis.findings.evenness import UnevenDevices
from raybench.analysis.findings.finding import Evidence, FindingName, NextStep, Severity, factor, ms, pct
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

    def evidence(self) -> Evidence:
        words, values = _loss(self.case, self.part_s)
        return Evidence("; ".join(words), values)

    def next_step(self) -> NextStep:
        if self.case.record.request.role == "search":
            return NextStep(
                "a trial of the curve takes it apart: of the default and the winner --resume measures it"
            )
        return NextStep("more time for its rounds (--time-budget, measure.max_seconds) takes the step apart")


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

    def evidence(self) -> Evidence:
        efficiency = self.case.scaling.efficiency
        known = f", an efficiency of {pct(efficiency)}" if efficiency else ""
        base = _base_words(self.case)
        slower = (
            f"{self.case.config.world_size} devices are slower than {base}: {factor(self.speedup)}{known}"
        )
        if self.lost_s is None:
            return Evidence(slower, {"speedup": self.speedup.value})
        words, values = _loss(self.case, self.lost_s)
        return Evidence("; ".join([slower, *words]), values)

    def next_step(self) -> NextStep:
        until = "the loss" if self.lost_s is not None else "what takes the time"
        return NextStep(f"use {_base_words(self.case)} until {until} is cured")


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


def _loss(case: Case, lost: Estimate) -> tuple[list[str], dict[str, float]]:
    """The loss in words and numbers, with the bounds of its communication where they are known."""
    told = " and not taken apart" if case.lost_s and lost.value < NEARLY_ALL * case.lost_s.value else ""
    facts = [f"{ms(lost)} of the step, {pct(case.share(lost))}, are lost{told}"]
    values = {"lost_s": lost.value, "lost_share": lost.value / case.step_s}
    replay = replayed(case)
    if replay is not None:
        replay_s, least, most = replay.time_s, *communication_bounds(case, lost, replay.time_s)
        whose = "its" if replay.record.trial_id == case.record.trial_id else "another trial's"
        facts.append(
            f"{whose} transfers alone, {ms(replay_s)}, say that communication is "
            f"{least / case.step_s:.0%} (what compute is too short to hide) to {most / case.step_s:.0%} of "
            "it (all of them, if they and compute do not slow each other down)"
        )
        values |= {"least_communication_s": least, "most_communication_s": most}
    return facts, values


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


def _base_words(case: Case) -> str:
    baseline = case.scaling.baseline
    size = baseline.world_size if baseline else 1
    return "one device" if size == 1 else f"{size} devices"

"""What is lost where a trial did not measure to what, in bounds; and devices slower than one."""

from __future__ import annotations

from raybench.analysis.diagnosis.case import Case
from raybench.analysis.diagnosis.evenness import uneven
from raybench.analysis.diagnosis.findings import Finding, FindingName, Severity
from raybench.analysis.diagnosis.words import factor, ms, pct
from raybench.analysis.estimates.statistics import Estimate


def undivided(case: Case) -> Finding | None:
    """A loss of 5% of the step of which only the whole is known, with what it must hold of communication."""
    lost = case.lost_s if case.waterfall is None else case.parts.undivided
    devices = case.finding(uneven)
    if lost is not None and devices is not None and devices.explains is not None:
        known_s = devices.explains.value
        lost = Estimate(lost.value - known_s, lost.low - known_s, lost.high - known_s, lost.n, lost.starts)
    if lost is None or not case.is_worth_telling(lost):
        return None
    negative, speedup = is_negative(case), case.scaling.speedup
    facts = [f"{ms(lost)} of the step, {pct(case.share(lost))}, are lost"]
    values = {"lost_s": lost.value, "lost_share": lost.value / case.step_s}
    if negative and speedup is not None:
        facts.insert(0, _negative_words(case, speedup))
    replay_s = replayed(case)
    if replay_s is not None:
        least, most = communication_bounds(case, lost, replay_s)
        facts.append(
            f"another trial's transfers alone, {ms(replay_s)}, say that communication is "
            f"{least / case.step_s:.0%} (what "
            f"compute is too short to hide) to {most / case.step_s:.0%} of it (all of them, if they and "
            "compute do not "
            "slow each other down)"
        )
        values |= {"least_communication_s": least, "most_communication_s": most}
    name = FindingName.NEGATIVE_SCALING if negative else FindingName.NOT_DIVIDED
    return Finding(
        name,
        Severity.WARNING if negative else case.severity(lost),
        case.record.trial_id,
        "; ".join(facts),
        f"use {_base_words(case)} until the loss is cured"
        if negative
        else "measure it with all variants, as a curve is",
        values,
        explains=lost,
    )


def replayed(case: Case) -> Estimate | None:
    """The same transfers alone, measured in another trial: they take as long whatever the batch."""
    number = len(case.steps.bucket_bytes)
    return next((each.time_s for each in case.replays if each.num_buckets == number), None)


def communication_bounds(case: Case, lost: Estimate, replay_s: Estimate) -> tuple[float, float]:
    """Between what exposed communication lies, in s, where nothing but the whole loss was measured.

    At least the transfers less all compute of one device, which could hide them; at most all of them, unless
    compute and transfers slow each other down. Neither more than what is lost.
    """
    compute = case.alone_s.get(case.samples)
    hidden_s = compute.high if compute else case.step_s
    return min(max(replay_s.low - hidden_s, 0.0), lost.low), min(replay_s.high, lost.high)


def negative_scaling(case: Case) -> Finding | None:
    """Slower than fewer devices, certainly, where the parts of the step say why: those explain the time."""
    speedup = case.scaling.speedup
    if speedup is None or not is_negative(case) or case.finding(undivided) is not None:
        return None
    return Finding(
        FindingName.NEGATIVE_SCALING,
        Severity.WARNING,
        case.record.trial_id,
        _negative_words(case, speedup),
        f"use {_base_words(case)} until what takes the time is cured",
        {"speedup": speedup.value},
    )


def is_negative(case: Case) -> bool:
    """Whether the speed-up is below 1 with its whole interval."""
    speedup = case.scaling.speedup
    return speedup is not None and case.config.world_size > 1 and speedup.high < 1


def _negative_words(case: Case, speedup: Estimate) -> str:
    efficiency = case.scaling.efficiency
    known = f", an efficiency of {pct(efficiency)}" if efficiency else ""
    return f"{case.config.world_size} devices are slower than {_base_words(case)}: {factor(speedup)}{known}"


def _base_words(case: Case) -> str:
    baseline = case.scaling.baseline
    size = baseline.world_size if baseline else 1
    return "one device" if size == 1 else f"{size} devices"

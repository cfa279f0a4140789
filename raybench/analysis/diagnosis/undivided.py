"""What is lost where a trial did not measure to what, in bounds; and more devices that are slower than one."""

from __future__ import annotations

from raybench.analysis.diagnosis.case import Case
from raybench.analysis.diagnosis.evenness import uneven
from raybench.analysis.diagnosis.findings import Finding, FindingName, Severity
from raybench.analysis.diagnosis.words import factor, ms, pct
from raybench.analysis.estimates.statistics import Estimate


def undivided(case: Case) -> Finding | None:
    """A loss of 5% of the step of which only the whole is known, with what it must hold of communication."""
    lost = case.lost_s if case.waterfall is None else case.parts.undivided
    devices = uneven(case)
    if lost is not None and devices is not None and devices.explains is not None:
        known_s = devices.explains.value
        lost = Estimate(lost.value - known_s, lost.low - known_s, lost.high - known_s, lost.n, lost.starts)
    if lost is None or not case.is_worth_telling(lost):
        return None
    negative, speedup = is_negative(case), case.scaling.speedup
    facts = [f"{ms(lost)} of the step, {pct(case.share(lost))}, are lost, and were not taken apart"]
    values = {"lost_s": lost.value, "lost_share": lost.value / case.step_s}
    if negative and speedup is not None:
        facts.insert(0, _negative_words(case, speedup))
    least_s = least_communication(case, lost)
    if least_s is not None:
        bounds = (least_s.value / case.step_s, lost.high / case.step_s)
        facts.append(
            f"communication is {bounds[0]:.0%} to {min(bounds[1], 1.0):.0%} of the step: alone its transfers take longer "
            "than the compute that could hide them"
        )
        values["least_communication_s"] = least_s.value
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


def least_communication(case: Case, lost: Estimate) -> Estimate | None:
    """The transfers alone, as another trial replayed them, less all compute that could hide them; in s.

    The same bytes on the same devices take as long whatever the batch. None where that leaves nothing.
    """
    number = len(case.steps.bucket_bytes)
    replay = next((each.time_s for each in case.replays if each.num_buckets == number), None)
    compute = case.alone_s.get(case.samples)
    if replay is None or compute is None:
        return None
    value, low = replay.value - compute.value, replay.low - compute.high
    if low <= 0:
        return None
    return Estimate(min(value, lost.value), min(low, lost.low), lost.high, min(replay.n, lost.n))


def negative_scaling(case: Case) -> Finding | None:
    """Slower than fewer devices, certainly, where the parts of the step say why: those explain the time."""
    speedup = case.scaling.speedup
    if speedup is None or not is_negative(case) or undivided(case) is not None:
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

"""What an interval says of a change: better, worse, as good, or not known yet."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum

from raybench.analysis.stats.statistics import Estimate, t_quantile

MOST = 1000  # visits, starts, seeds: more would not be made to tell


class Verdict(StrEnum):
    """What the interval of a gain says."""

    #: a gain of `search.minimum_gain` at least, whose whole interval is above 0
    BETTER = "better"
    #: the same below 0
    WORSE = "worse"
    #: the whole interval is within `search.minimum_gain` of 0
    AS_GOOD = "as good"
    #: none of these: more visits would tell
    UNKNOWN = "not known yet"


def verdict(gain: Estimate, margin: float) -> Verdict:
    """Of a relative gain, 0 for none; what lies within ``margin`` of it makes no difference."""
    if -margin <= gain.low and gain.high <= margin:
        return Verdict.AS_GOOD
    if gain.low > 0 and gain.value >= margin:
        return Verdict.BETTER
    return Verdict.WORSE if gain.high < 0 and gain.value <= -margin else Verdict.UNKNOWN


def slower_by(speed: Estimate, share: float) -> Verdict:
    """Whether a speed, 1 for equal, has lost more than this share: worse, as good, or not known yet."""
    found = verdict(speed.plus(share - 1), 0.0)
    return Verdict.AS_GOOD if found is Verdict.BETTER else found


def times_to_tell(gain: Estimate, margin: float, measured: int = 1) -> int | None:
    """How many times as much measuring would tell, with the value as it is; None: more than is possible.

    The half-width falls with the root of the measuring. ``measured``: how much there was, in starts, say.
    """
    room = _room(gain, margin)
    if room <= 0 or not math.isfinite(gain.half_width):
        return None
    times = math.ceil(measured * (gain.half_width / room) ** 2)
    return times if times <= MOST else None


def values_to_tell(mean: Estimate, margin: float) -> int | None:
    """How many values would tell, with mean and spread as they are, by Student's interval of more of them.

    ``mean``: of ``n`` values, with that interval. None: more than anyone makes.
    """
    room = _room(mean, margin)
    enough = (n for n in range(mean.n + 1, MOST) if half_width_of(mean, n) < room)
    return next(enough, None)


def half_width_of(mean: Estimate, number: int) -> float:
    """Of Student's 95% interval of a mean of ``number`` values that spread as those of ``mean`` do."""
    spread = mean.half_width * math.sqrt(mean.n) / t_quantile(mean.n - 1)
    return t_quantile(number - 1) * spread / math.sqrt(number)


def _room(gain: Estimate, margin: float) -> float:
    """What the half-width must fit into: between the value and 0, or within the margin to its end."""
    return abs(gain.value) if abs(gain.value) >= margin else margin - abs(gain.value)


@dataclass(frozen=True, slots=True)
class Gain:
    """One setting's throughput over another's, less one."""

    gain: Estimate  # relative: 0.14 is 14% more
    verdict: Verdict
    to_tell: int | None = None  # times as much measuring, where it is not known yet


def gain_of(ratio: Estimate, margin: float) -> Gain:
    """What a ratio of throughputs says."""
    found = ratio.plus(-1)
    said = verdict(found, margin)
    return Gain(found, said, times_to_tell(found, margin) if said is Verdict.UNKNOWN else None)

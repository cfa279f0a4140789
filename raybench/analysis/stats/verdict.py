"""What an interval says of a change: better, worse, as good, or not known yet."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from enum import StrEnum

from raybench.analysis.stats.statistics import Estimate

MOST_VISITS = 1000  # more would not be made to tell


class Verdict(StrEnum):
    """What the interval of a gain says."""

    #: the whole interval is above 0, and not within the margin
    BETTER = "better"
    #: the whole interval is below 0, and not within the margin
    WORSE = "worse"
    #: the whole interval is within `search.minimum_gain` of 0
    AS_GOOD = "as good"
    #: the interval holds both: more visits would tell
    UNKNOWN = "not known yet"


def verdict(gain: Estimate, margin: float) -> Verdict:
    """Of a relative gain, 0 for none; what lies within ``margin`` of it makes no difference."""
    if -margin <= gain.low and gain.high <= margin:
        return Verdict.AS_GOOD
    if gain.low > 0:
        return Verdict.BETTER
    return Verdict.WORSE if gain.high < 0 else Verdict.UNKNOWN


def times_to_tell(gain: Estimate, margin: float) -> int | None:
    """How many times as much measuring would tell, with the value as it is; None: more than is possible.

    The half-width falls with the root of the measuring. It must fit between the value and 0, or between the
    value and the end of the margin.
    """
    room = max(abs(gain.value), margin - abs(gain.value))
    if room <= 0 or not math.isfinite(gain.half_width):
        return None
    times = math.ceil((gain.half_width / room) ** 2)
    return times if times <= MOST_VISITS else None


@dataclass(frozen=True, slots=True)
class Gain:
    """One setting's throughput over another's, less one."""

    gain: Estimate  # relative: 0.14 is 14% more
    verdict: Verdict
    to_tell: int | None = None  # times as much measuring, where it is not known yet


def gain_of(ratio: Estimate, margin: float) -> Gain:
    """What a ratio of throughputs says."""
    again = ratio.again and (ratio.again[0] - 1, ratio.again[1] - 1)
    found = replace(ratio, value=ratio.value - 1, low=ratio.low - 1, high=ratio.high - 1, again=again)
    said = verdict(found, margin)
    return Gain(found, said, times_to_tell(found, margin) if said is Verdict.UNKNOWN else None)

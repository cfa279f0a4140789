"""When the messages of one place have been measured for long enough."""

from __future__ import annotations

from collections.abc import Sequence

from raybench.analysis.collectives.messages import messages
from raybench.analysis.estimates.stopping import DEFAULT_HALF_WIDTH, LEAST_MEASURED
from raybench.records.record import TrialRecord
from raybench.spec.sweep import SweepMeasureSpec


def seconds_left(records: Sequence[TrialRecord], measure: SweepMeasureSpec, device: str) -> float:
    """For the next part of a place's rounds, after the parts in ``records``; 0: it is measured.

    Nothing is left when every message's interval is as narrow as asked, or when not even the fewest rounds
    would end in time.
    """
    results = [record.collectives for record in records if record.collectives is not None]
    left_s = measure.max_seconds - sum(each.measure_s for each in results)
    num_rounds = sum(len(each.rounds) for each in results)
    if not num_rounds:
        return left_s
    round_s = (measure.max_seconds - left_s) / num_rounds
    if left_s < LEAST_MEASURED * round_s:
        return 0.0
    asked = measure.half_width or DEFAULT_HALF_WIDTH[device]
    widest = max((each.time_s.log_half_width for each in messages(records)), default=float("inf"))
    return 0.0 if widest <= asked else left_s

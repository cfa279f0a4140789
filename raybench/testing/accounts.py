"""What became of the trials that a study asked for: lost, counted twice, or with a false figure.

Of studies whose steps take a known time, and to whose processes, disk or clock something has happened.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from raybench.analysis.estimates.efficiency import step_time
from raybench.records.record import TrialRecord

EXACT_S = 1e-4  # a wait does not end before its time, but the clocks that say so may differ by this


@dataclass(frozen=True)
class Accounts:
    """Trials in words; none of the tuples has an entry where all is well."""

    asked: int
    complete: int  # of those asked, in the end
    lost: tuple[str, ...]  # asked, and not complete in the end
    doubled: tuple[str, ...]  # complete more than once
    false: tuple[str, ...]  # complete, and what the record says cannot be
    states: Mapping[str, int]  # of all records, also of those that were tried again
    errors_s: tuple[float, ...]  # step time less its truth, of each complete trial


def accounts(
    records: Sequence[TrialRecord],
    batches: Iterable[int],
    truth_s: Callable[[int], float],
    *,
    tolerance_s: float,
    longest_s: float,
) -> Accounts:
    """Of a study that asked for every one of ``batches``, each in a trial of its curve.

    A step of batch ``n`` truly takes ``truth_s(n)``. False is a step time below that, and one whose 95%
    interval begins more than ``tolerance_s`` above it: disturbed is not false where the interval says so. No
    trial may take more than ``longest_s``.
    """
    complete = [record for record in records if record.steps is not None]
    times = Counter(map(question, complete))
    asked = [f"scaling of batch {batch}" for batch in batches]
    errors_s = {id(each): step_time(each).value - truth_s(each.config.batch_size) for each in complete}
    false = list[str]()
    for record in complete:
        words, error_s = question(record), errors_s[id(record)]
        if error_s < -EXACT_S or step_time(record).low > truth_s(record.config.batch_size) + tolerance_s:
            false.append(f"{words}: a step time {1e3 * error_s:+.2f} ms from the truth")
        if record.steps is not None and record.steps.batch_size != record.config.batch_size:
            false.append(f"{words}: the answer is of batch {record.steps.batch_size}")
        if not 0 < record.wall_time_s <= longest_s:
            false.append(f"{words}: it took {record.wall_time_s:.1f} s")
    return Accounts(
        asked=len(asked),
        complete=sum(times[each] > 0 for each in asked),
        lost=tuple(each for each in asked if not times[each]),
        doubled=tuple(f"{each}: {number} times" for each, number in times.items() if number > 1),
        false=tuple(false),
        states=Counter(record.state for record in records),
        errors_s=tuple(errors_s.values()),
    )


def question(record: TrialRecord) -> str:
    """What was asked, in words; the same only where it is the same trial, whatever its id."""
    request = record.study_request
    words = f"{request.role} of batch {record.config.batch_size}"
    if request.kind != "steps":
        return words
    if request.versus is not None:
        words += f" against {request.versus.batch_size}"
    return f"{words}, again {request.again}" if request.again else words

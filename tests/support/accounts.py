"""What became of the trials that a study asked for: lost, counted twice, or with a false figure.

Of studies whose steps take a known time, and to whose processes or disk something has happened.
"""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from raybench.analysis.stats.rounds import level, series
from raybench.analysis.stats.statistics import Estimate
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
    errors_s: tuple[float, ...]  # step time less its wait, of each complete trial
    own_s: float  # what every step takes beside its wait: the median of these


def accounts(
    records: Sequence[TrialRecord],
    batches: Iterable[int],
    wait_s: Callable[[int], float],
    *,
    tolerance_s: float,
    longest_s: float,
) -> Accounts:
    """Of a study that asked for every one of ``batches``, each in a trial of its curve.

    A step of batch ``n`` waits for ``wait_s(n)``, and takes a while beside that for the all-reduce and the
    optimizer, as long for every batch: the truth is the wait and the median of what the trials take beside
    theirs, which itself must not be more than ``tolerance_s``. False is a step time below the wait, and one
    whose 95% interval begins more than ``tolerance_s`` above the truth: disturbed is not false where the
    interval says so. No trial may take more than ``longest_s``.
    """
    complete = [record for record in records if record.steps is not None]
    times = Counter(map(question, complete))
    asked = [f"scaling of batch {batch}" for batch in batches]
    errors_s = [step_time(each).value - wait_s(each.config.batch_size) for each in complete]
    own_s = statistics.median(errors_s) if errors_s else 0.0
    false = list[str]()
    if own_s > tolerance_s:
        false.append(f"every step: {1e3 * own_s:+.2f} ms beside its wait")
    for record, error_s in zip(complete, errors_s, strict=True):
        words, time_s = question(record), step_time(record)
        truth_s = wait_s(record.config.batch_size) + own_s
        if error_s < -EXACT_S or time_s.low > truth_s + tolerance_s:
            false.append(f"{words}: a step time {1e3 * error_s:+.2f} ms from its wait")
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
        errors_s=tuple(errors_s),
        own_s=own_s,
    )


def question(record: TrialRecord) -> str:
    """What was asked, in words; the same only where it is the same trial, whatever its id."""
    request = record.study_request
    words = f"{request.role} of batch {record.config.batch_size}"
    return f"{words}, visit {request.visit}" if request.kind == "steps" and request.visit else words


def step_time(record: TrialRecord) -> Estimate:
    """The typical step of a complete record by its own rounds, in s."""
    assert record.steps is not None
    values = series(record.steps, "ddp" if record.config.world_size > 1 else "plain")
    assert values is not None
    return level(values)

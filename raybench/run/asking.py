"""A trial asked of a worker group, however often groups die before it begins."""

from __future__ import annotations

from collections.abc import Callable

from raybench.errors import GroupLostError
from raybench.records.messages import Outcome

MAX_LOST_STARTS = 3  # groups in a row that do not start, before the study gives up


def outcome_of(start: Callable[[], object], run: Callable[[], Outcome]) -> Outcome:
    """What ``run`` gives in the group that ``start`` has started.

    Raises ``GroupLostError`` when no group starts, after so many in a row, and what else the two raise.
    """
    lost = 0
    while True:
        try:
            start()
            return run()
        except GroupLostError:
            lost += 1
            if lost >= MAX_LOST_STARTS:
                raise

"""A trial asked of a worker group, however often groups die before it begins."""

from __future__ import annotations

from collections.abc import Callable

from raybench.errors import ClusterBusyError, GroupLostError, NoRoomError
from raybench.launch.runner import TrialRunner
from raybench.records.messages import GroupInfo, Outcome

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
        except ClusterBusyError:  # it was waited for
            raise
        except GroupLostError:
            lost += 1
            if lost >= MAX_LOST_STARTS:
                raise


class FittingGroup:
    """The worker group of a run: of its whole size, or since nodes were lost the largest that fits."""

    def __init__(self, runner: TrialRunner, size: int) -> None:
        self._runner, self._size = runner, size
        self._fitting: int | None = None  # since nodes were lost

    def start(self, environment: dict[str, str], least: int, *, anew: bool = False) -> GroupInfo:
        """A group of ``least`` workers or more; the whole size again where the smaller one is too small.

        Raises ``NoRoomError`` where not even ``least`` fit, and what the runner's ``start`` raises.
        """
        size = self._size if self._fitting is None or self._fitting < least else self._fitting
        try:
            return self._runner.start(size, environment, anew=anew)
        except NoRoomError as lost:
            if lost.places < least:
                raise
            self._fitting = lost.places
            return self._runner.start(lost.places, environment, anew=anew)

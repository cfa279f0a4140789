"""Workers on this node that are gone, whether or not Ray has noticed.

Ray sees a worker's death by its connections, which end with the last process that holds them: a child that
the user's code forked keeps them, and the trial would last until its time is over.
"""

from __future__ import annotations

from collections.abc import Mapping
from time import monotonic

import psutil

DEATH_NOTICE_S = 15.0  # Ray needs 1 to 3 s to see a death
LOOK_AGAIN_S = 1.0


class Deaths:
    """Which of the processes, by rank, are there, of those that can be seen from this one's container."""

    def __init__(self, pids: Mapping[int, int]) -> None:
        self._pids = {rank: pid for rank, pid in pids.items() if not _is_gone(pid)}
        self._gone_since = dict[int, float]()
        self._looked = monotonic()

    def alive(self) -> list[int]:
        """The ranks whose processes are there."""
        return [rank for rank, pid in self._pids.items() if not _is_gone(pid)]

    def unnoticed(self) -> int | None:
        """The rank that is gone for so long that Ray will not say so any more."""
        now = monotonic()
        if now - self._looked >= LOOK_AGAIN_S:
            self._looked, alive = now, self.alive()
            for rank in self._pids:
                if rank not in alive:
                    self._gone_since.setdefault(rank, now)
        late = (rank for rank, since in self._gone_since.items() if now - since >= DEATH_NOTICE_S)
        return next(late, None)


def _is_gone(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True

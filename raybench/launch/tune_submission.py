"""What Ray Tune is asked: places for trials, their resources, and their submission."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from time import monotonic
from typing import Any

import ray
from ray.tune.search import Searcher

from raybench.errors import GroupLostError
from raybench.launch.runner import Submitted
from raybench.records.messages import Lost, Outcome, Progress, Started, Task
from raybench.records.requests import TrialRequest
from raybench.spec.placement import workers_on


@dataclass(frozen=True)
class Taken:
    """What a trial was given."""

    nodes: tuple[str, ...]  # of each worker
    places: Mapping[str, int]  # that nobody else has meanwhile, by node


class Places:
    """The places of a cluster: how many workers fit on each node."""

    def __init__(self, of_node: Mapping[str, int], cluster: Mapping[str, int] | None = None) -> None:
        """``of_node``: those that others leave free; ``cluster``: all, where others may use some."""
        self._all = {node: places for node, places in of_node.items() if places > 0}
        self._cluster = {node: places for node, places in (cluster or of_node).items() if places > 0}
        self._free = dict(self._all)
        self._gone = frozenset[str]()

    @property
    def num_nodes(self) -> int:
        """The nodes of the cluster that have any."""
        return len(self._cluster)

    def untaken(self) -> Places:
        """The same while no trial has any."""
        return Places({n: p for n, p in self._all.items() if n not in self._gone}, self._cluster)

    def keep(self, there: Collection[str]) -> None:
        """Hand out places on these nodes alone: the others are gone."""
        self._gone = frozenset(self._cluster) - frozenset(there)

    def most(self, world_size: int, *, alone: bool, spread: bool = False) -> int:
        """How many trials of this size fit side by side, at least 1; see ``take``."""
        places, number = self.untaken(), 0
        while places.take(world_size, alone=alone, spread=spread) is not None:
            number += 1
        return max(number, 1)

    def take(self, world_size: int, *, alone: bool, spread: bool = False) -> Taken | None:
        """Places for a trial, on few nodes or ``spread`` over many; None where there are not enough.

        ``alone``: on nodes that no other trial has, and that no other gets until it gives them back. Such a
        trial, and one that is ``spread``, stands as it would with the cluster to itself, or not at all: over
        more or fewer nodes it would measure other links.
        """
        there = {node: places for node, places in self._free.items() if places and node not in self._gone}
        free = {node: places for node, places in there.items() if places == self._all[node] or not alone}
        if sum(free.values()) < world_size:
            return None
        used = workers_on(free, world_size, spread=spread)
        if alone or spread:
            meant = workers_on(self._cluster, world_size, spread=spread)
            if sorted(used.values()) != sorted(meant.values()):
                return None
        places = {node: free[node] if alone else number for node, number in used.items()}
        for node, number in places.items():
            self._free[node] -= number
        return Taken(tuple(sorted(used.elements())), places)

    def give_back(self, taken: Taken) -> None:
        """What ``take`` gave."""
        for node, number in taken.places.items():
            self._free[node] += number


Config = dict[str, Any]


class TuneRequests(Searcher):  # type: ignore[misc]
    """Tune's thread asks (``suggest``), the study's thread submits (``hand``)."""

    def __init__(self) -> None:
        super().__init__()
        self._changed = threading.Condition()
        self._waiting: deque[Submission] = deque()
        self._running: dict[str, Submission] = {}
        self._closed = self._parked = False

    def hand(self, trial: Submission) -> None:
        """A trial more."""
        with self._changed:
            self._waiting.append(trial)
            self._changed.notify_all()

    def withdraw(self, trial: Submission) -> bool:
        """Take a trial back; False where Tune has begun it."""
        with self._changed:
            if trial not in self._waiting:
                return False
            self._waiting.remove(trial)
            return True

    def close(self) -> None:
        """No more trials: Tune ends with those that run."""
        with self._changed:
            self._closed = True
            self._waiting.clear()
            self._changed.notify_all()

    def park(self) -> None:
        """Hold Tune's thread for ever when it asks next: Ray is about to be ended under it."""
        with self._changed:
            self._parked = True

    def suggest(self, trial_id: str) -> Config | str | None:
        """The oldest waiting trial; sleeps while there is nothing that Tune could do."""
        with self._changed:
            while True:
                if not self._parked:
                    if self._waiting and (config := self._waiting[0].take()) is not None:
                        trial = self._running[trial_id] = self._waiting.popleft()
                        trial.began = monotonic()
                        return config
                    if self._closed:
                        return str(self.FINISHED)
                    if self._running:
                        return None  # Tune looks for their events, and asks again
                self._changed.wait()

    def on_trial_complete(self, trial_id: str, result: Config | None = None, error: bool = False) -> None:
        """The trial is over, well or with an error of its process."""
        with self._changed:
            trial = self._running.pop(trial_id)
            trial.give_back()
            trial.over = monotonic()

    def save_to_dir(self, checkpoint_dir: str, session_str: str = "default") -> None:
        """Nothing: what a study goes on from are its records."""

    def __getstate__(self) -> Config:
        return {}  # Tune pickles it for a run that is restored; none ever is


LATE_MESSAGE_S = 2.0  # a trial tells its outcome before it ends: the message is on its way


@dataclass(eq=False)
class Submission:
    """A trial that Tune may begin once there is room; Tune's thread takes and gives back its places."""

    task: Task
    submitted: Submitted
    places: Places
    mailbox: Any
    taken: Taken | None = None
    began: float | None = None
    over: float | None = None
    has_begun: bool = False  # its workers have told of it
    ended: Outcome | GroupLostError | None = None  # by its own word
    process: Any = None  # Ray's handle of its process in Tune, once that has started
    killed: bool = False

    def take(self) -> Config | None:
        """Take its places; what Tune shows of it, None while there is no room."""
        request, config = self.task.request, self.task.request.config
        self.taken = taken_for(request, self.places)
        if self.taken is None:
            return None
        if self.places.num_nodes > 1:
            self.task = replace(self.task, nodes=self.taken.nodes)
        ray.get(self.mailbox.leave.remote(self.task))
        knobs = {} if request.kind == "collectives" else request.config.setting.model_dump(mode="json")
        about = {"trial": request.trial_id, "role": request.role, "world_size": config.world_size}
        return {"number": self.task.number, **about, **knobs, **config.environment}

    def give_back(self) -> None:
        """Give its places back."""
        assert self.taken is not None
        self.places.give_back(self.taken)

    @property
    def fits(self) -> bool:
        """Whether there is room for it once no other has any."""
        return taken_for(self.task.request, self.places.untaken()) is not None

    def hear(self, content: Started | Progress | Lost | Outcome) -> None:
        """Take in what it tells of itself."""
        if isinstance(content, Started):
            self.process = content.process
        elif isinstance(content, Progress):
            self.has_begun = True
            self.submitted.on_progress(content)
        else:
            self.ended = GroupLostError(content.reason) if isinstance(content, Lost) else content

    def end(self, now: float) -> Outcome | GroupLostError | None:
        """How it ended, once it is over for Tune too; None while that is open."""
        if self.over is None or (self.ended is None and now < self.over + LATE_MESSAGE_S):
            return None
        lost = "the process of its Tune trial died"
        if self.ended is None and self.has_begun:
            assert self.began is not None
            return Outcome("crashed", self.over - self.began, lost)
        return self.ended or GroupLostError(lost)


def taken_for(request: TrialRequest, places: Places) -> Taken | None:
    """What ``request`` takes of ``places``; None while there is no room for it."""
    config, alone = request.config, alone_on_nodes(request.kind)
    return places.take(config.world_size, alone=alone, spread=config.placement == "spread")


def alone_on_nodes(kind: str) -> bool:
    """Whether a trial of this kind shares its nodes with no other.

    What steps take is the result: two trials on one node share its memory's bandwidth, its links, its caches
    and what its cores may draw, and each would be measured under the other. Trainings are asked for what they
    learn, which does not depend on that; that their times do, the study is told.
    """
    return kind != "training"

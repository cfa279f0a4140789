"""A submitted trial on its way through Ray Tune: its places, what it tells, and how it ended."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import ray

from raybench.errors import GroupLostError
from raybench.launch.places import Places, Taken
from raybench.launch.runner import Submitted
from raybench.launch.tune_requests import Config
from raybench.records.messages import Lost, Outcome, Progress, Started, Task
from raybench.records.requests import TrialRequest

LATE_MESSAGE_S = 2.0  # a trial tells its outcome before it ends: the message is on its way


@dataclass(eq=False)
class Submission:
    """Implements ``tune_requests.Handed``."""

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

"""What the driver hears of a worker group late, and what it is called."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import ray

from raybench.launch import worker_group
from raybench.launch.mailbox import PostedTrial
from raybench.launch.worker_group import WorkerGroup
from raybench.records.messages import Begun, GroupInfo, Member, Message, Outcome, Progress, Task
from tests.unit.studies import request

TOLD = [Message(1, Begun()), Message(1, Progress("measure")), Message(1, Outcome("invalid", 3.0, "planted"))]


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


class LateRay:
    """Ray after the driver was stopped: messages are there a moment after they are asked for, not at once."""

    exceptions = ray.exceptions

    def __init__(self, told: list[Message], clock: Clock, stopped_s: float) -> None:
        self._told, self._clock, self._stopped_s = told, clock, stopped_s

    def wait(self, references: list[str], timeout: float) -> tuple[list[str], list[str]]:
        self._clock.now += timeout + self._stopped_s
        self._stopped_s, was_stopped = 0.0, self._stopped_s > 0
        is_there = bool(self._told) and timeout > 0 and not was_stopped
        return (references, []) if is_there else ([], references)

    def get(self, reference: str) -> Message:
        return self._told.pop(0)


def group(posted_at: float = 0.0) -> WorkerGroup:
    """One whose workers have a trial, and whose run goes on."""
    asked = request()
    found: Any = WorkerGroup.__new__(WorkerGroup)
    found._fit, found._waiting, found._pids = SimpleNamespace(done=lambda: False), None, []
    found._mailbox = SimpleNamespace(message=SimpleNamespace(remote=lambda: "the next one"))
    posted = PostedTrial(1, lambda progress: None), Task(1, asked, (0,), None), posted_at
    found._posted = posted
    made: WorkerGroup = found
    return made


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(worker_group, "monotonic", clock)
    return clock


def test_what_the_mailbox_has_counts_however_long_the_driver_was_stopped(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker_group, "ray", LateRay([*TOLD], clock, stopped_s=10_000.0))
    assert group(clock())._outcome().state == "invalid"
    monkeypatch.setattr(worker_group, "ray", LateRay(TOLD[:2], clock, stopped_s=10_000.0))
    assert group(clock())._outcome().state == "timeout"


@pytest.mark.parametrize(("ranks", "name"), [((0, 1), "T4"), ((0, 1, 2, 3), "T4, A100"), ((2,), "A100")])
def test_a_trial_over_unlike_devices_names_them_all(
    ranks: tuple[int, ...], name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    found: Any = group()
    names = ("T4", "T4", "A100", "T4")
    members = tuple(Member(rank, "node", "host", 1, name) for rank, name in enumerate(names))
    found.info, found._number = GroupInfo(members, 1), 1
    found._posted = found._posted[0], Task(1, request(), ranks, None), 0.0
    monkeypatch.setattr(found, "_outcome", lambda: Outcome("invalid", 1.0, "planted"))
    assert found.outcome().device_name == name

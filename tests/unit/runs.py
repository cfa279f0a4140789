"""Whole runs on fake hardware: where records go, who is told, and runners that fail or have a clock."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from raybench.analysis.scaling import Scaling
from raybench.driver import time_budget as budget
from raybench.driver.session import Session
from raybench.driver.stages import run_study
from raybench.plan.notes import Stage
from raybench.plan.trials import Plan
from raybench.records.messages import BlockStepTimes, Outcome, Progress, RankFile
from raybench.records.record import TrialRecord
from raybench.records.requests import TrialRequest
from raybench.records.results import StepsResult
from tests.support.planted import FakeRunner, Noise

QUIET_ENOUGH = Noise(block=0.005, step=0.002)


class MemoryStore:
    """Records in a list; of several with one id the last counts."""

    def __init__(self) -> None:
        self.records: list[TrialRecord] = []

    def append(self, record: TrialRecord, step_times: Sequence[BlockStepTimes] = ()) -> None:
        self.records.append(record)

    def add_traces(self, trial_id: str, files: Sequence[RankFile]) -> None:
        pass

    def latest(self) -> dict[str, TrialRecord]:
        return {record.trial_id: record for record in self.records}


@dataclass
class Watched:
    """What the user is told."""

    stages: list[tuple[Stage, int]] = field(default_factory=list)
    trials: list[tuple[TrialRequest, int, int | None, float | None]] = field(default_factory=list)
    done: list[tuple[TrialRecord, Scaling | None]] = field(default_factory=list)
    groups: list[int] = field(default_factory=list)

    def stage(self, stage: Stage, number: int) -> None:
        self.stages.append((stage, number))

    def trial(self, request: TrialRequest, *, done: int, total: int | None, left_s: float | None) -> None:
        self.trials.append((request, done, total, left_s))

    def progress(self, request: TrialRequest, progress: Progress) -> None:
        pass

    def trial_done(self, record: TrialRecord, scaling: Scaling | None) -> None:
        self.done.append((record, scaling))

    def group(self, num_workers: int, seconds: float | None) -> None:
        if seconds:
            self.groups.append(num_workers)


class ClockRunner(FakeRunner):
    """Trials take ``seconds`` on a clock that the execution reads, less where their rounds are cut short."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, seconds: float = 10.0) -> None:
        super().__init__(noise=QUIET_ENOUGH)
        self.now, self.seconds = 1000.0, seconds
        monkeypatch.setattr(budget, "monotonic", lambda: self.now)

    def run(self, request: TrialRequest, on_progress: Callable[[Progress], None]) -> Outcome:
        outcome = super().run(request, on_progress)
        seconds = self.seconds
        if request.kind == "steps":
            seconds = 0.3 * self.seconds + min(0.7 * self.seconds, request.measure.max_seconds)
        self.now += seconds
        told: dict[str, Any] = {"wall_time_s": seconds}
        if isinstance(outcome.result, StepsResult):
            rounds_s = min(0.7 * self.seconds, request.measure.max_seconds)
            told["result"] = outcome.result.model_copy(update={"measure_s": rounds_s})
        return Outcome(**{**vars(outcome), **told})


class Failing(FakeRunner):
    """Raises ``error`` in place of its ``after``-th trial and all later ones."""

    def __init__(self, after: int, error: Exception) -> None:
        super().__init__(noise=QUIET_ENOUGH)
        self.after, self.error = after, error

    def run(self, request: TrialRequest, on_progress: Callable[[Progress], None]) -> Outcome:
        if len(self.requests) >= self.after:
            raise self.error
        return super().run(request, on_progress)


def run(
    plan: Plan, runner: FakeRunner | None = None, store: MemoryStore | None = None, **fields: Any
) -> tuple[Session, MemoryStore, FakeRunner]:
    """The plan's whole study; ``fields`` are the session's."""
    runner, store = runner or FakeRunner(noise=QUIET_ENOUGH), store or MemoryStore()
    session = Session(plan, runner, store, **{"watcher": Watched(), **fields})
    run_study(session)
    return session, store, runner

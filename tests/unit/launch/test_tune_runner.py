"""What the driver makes of a trial's word and of Ray Tune's, without either."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

pytest.importorskip("ray.tune")

from raybench.analysis.estimates.efficiency import scaling
from raybench.errors import ClusterBusyError, GroupLostError
from raybench.launch import tune_runner
from raybench.launch.cluster import Cluster, Suffice
from raybench.launch.places import Places
from raybench.launch.tune_runner import TuneRunner
from raybench.launch.tune_submission import LATE_MESSAGE_S
from raybench.launch.tune_trial import metrics
from raybench.machine.resources import WorkerNeeds
from raybench.records.messages import Lost, Outcome, Progress
from raybench.testing import FakeRunner, to_record
from tests.unit.studies import request


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(tune_runner, "monotonic", clock)
    return clock


class Tuning:
    """Tune's thread."""

    alive = True

    def is_alive(self) -> bool:
        return self.alive


EIGHT, SEVEN_FREE = {"a": 4, "b": 4}, {"a": 3, "b": 4}


def seven_free(wanted: int, needs: WorkerNeeds, limit_s: float, suffice: Suffice) -> dict[str, int]:
    """Of eight places others use one."""
    if wanted > 7 or not suffice(SEVEN_FREE, EIGHT):
        raise ClusterBusyError("the cluster was busy")
    return SEVEN_FREE


@pytest.fixture
def runner(tmp_path: Path, clock: Clock) -> TuneRunner:
    cluster: Any = SimpleNamespace(
        connect=lambda: None,
        places=lambda needs: EIGHT,
        refuse_unplaceable=lambda world_size, needs: None,
        free_places=seven_free,
    )
    runner = TuneRunner(cast(Cluster, cluster), needs=WorkerNeeds("cpu", 1), storage=tmp_path)
    runner.places = Places({"a": 4, "b": 4})
    runner._tuning = cast(Any, Tuning())
    return runner


def submitted(runner: TuneRunner, clock: Clock) -> tuple[Any, Any]:
    """A trial that Tune has taken just now: as the session knows it, and as the runner does."""
    given = runner.submit(request(), lambda progress: None)
    trial = runner._trials[runner._number]
    trial.began = clock.now
    return given, trial


def test_a_trial_has_ended_when_both_say_so(runner: TuneRunner, clock: Clock) -> None:
    given, trial = submitted(runner, clock)
    outcome = FakeRunner().run(request(), lambda progress: None)
    trial.hear(outcome)
    runner._see(trial)
    assert given.ended is None  # its processes are still there
    trial.over = clock.now = 1000.0 + outcome.wall_time_s + 12.5
    runner._see(trial)
    assert given.outcome().result == outcome.result
    assert given.outcome().group == 1
    assert given.processes_s == pytest.approx(12.5)
    assert runner._trials == {}


def test_a_trial_whose_process_died_is_recorded_only_if_it_had_begun(
    runner: TuneRunner, clock: Clock
) -> None:
    (first, begun), (second, not_begun) = submitted(runner, clock), submitted(runner, clock)
    begun.hear(Progress("set up"))
    clock.now = begun.over = not_begun.over = 1005.0
    runner._see(begun)
    assert first.ended is None  # its outcome may be on its way
    clock.now += LATE_MESSAGE_S
    runner._see(begun)
    runner._see(not_begun)
    assert (first.outcome().state, first.outcome().wall_time_s) == ("crashed", 5.0)
    with pytest.raises(GroupLostError, match="died"):
        second.outcome()


def test_workers_that_died_before_the_trial_began_are_told_of(runner: TuneRunner, clock: Clock) -> None:
    given, trial = submitted(runner, clock)
    trial.hear(Lost("the worker group did not start: no place"))
    trial.over = clock.now
    runner._see(trial)
    with pytest.raises(GroupLostError, match="no place"):
        given.outcome()


def test_where_tune_has_ended_nothing_is_waited_for(runner: TuneRunner, clock: Clock) -> None:
    given, _ = submitted(runner, clock)
    runner._tuning, runner._error = cast(Any, Tuning()), RuntimeError("planted")
    cast(Any, runner._tuning).alive = False
    assert runner.wait([given]) is given
    with pytest.raises(GroupLostError, match="Ray Tune has ended: planted"):
        given.outcome()


def test_a_trial_that_keeps_no_deadline_is_ended(
    runner: TuneRunner, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    killed = list[int]()
    monkeypatch.setattr(runner, "_kill", killed.extend)
    given, trial = submitted(runner, clock)
    clock.now += 10_000
    runner._see(trial)
    runner._see(trial)
    assert killed == [1]
    trial.over = clock.now
    runner._see(trial)
    assert given.outcome().state == "timeout"


def test_steps_have_nodes_of_their_own_and_trainings_share_them(runner: TuneRunner) -> None:
    assert (runner.capacity("steps", 2), runner.capacity("training", 2)) == (2, 4)
    assert (runner.capacity("probe", 8), runner.capacity("training", 8)) == (1, 1)


def test_a_trial_waits_for_its_own_places_and_not_for_the_largest_groups(runner: TuneRunner) -> None:
    for size in (4, 7):
        runner.start(8, {})  # of all world sizes the largest
        runner.submit(request(world_size=size), lambda progress: None)
        runner._trials.clear()  # it has ended
    runner.start(8, {})
    with pytest.raises(ClusterBusyError):
        runner.submit(request(world_size=8), lambda progress: None)


def test_trials_are_begun_on_the_places_that_others_leave_free(runner: TuneRunner) -> None:
    given = [runner.submit(request(world_size=size), lambda progress: None) for size in (4, 4)]
    assert len(given) == 2
    first, second = (trial.places.take(4, alone=False) for trial in runner._trials.values())
    assert first is not None
    assert first.nodes == ("b",) * 4  # of its eight places the cluster has seven
    assert second is None  # and waits for the first one
    assert runner.capacity("training", 4) == 1


def test_what_tune_shows_of_a_trial() -> None:
    asked = request()
    record = to_record(asked, FakeRunner().run(asked, lambda progress: None))
    found, expected = metrics(record), scaling(record)
    assert expected.efficiency is not None
    assert found["efficiency"] == expected.efficiency.value
    assert found["step_time_s"] == expected.step_time_s.value
    failed = metrics(to_record(asked, Outcome("oom", 1.0, "planted")))
    assert failed == {"state": "oom", "wall_time_s": 1.0}

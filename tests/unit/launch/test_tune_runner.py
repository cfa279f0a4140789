"""What the driver makes of a trial's word and of Ray Tune's, without either."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import Mock

import pytest
import ray

from raybench.analysis.scaling import scaling
from raybench.errors import ClusterBusyError, GroupLostError
from raybench.launch import tune_runner, tune_trial
from raybench.launch.cluster import Cluster, Suffice
from raybench.launch.liveness import DEATH_NOTICE_S
from raybench.launch.tune_runner import TuneRunner
from raybench.launch.tune_submission import LATE_MESSAGE_S, Places, taken_for
from raybench.launch.tune_trial import metrics
from raybench.launch.worker_group import DRIVER_GRACE_S, START_TIMEOUT_S
from raybench.machine.host import WorkerNeeds
from raybench.records.messages import GroupInfo, Lost, Message, Outcome, Progress, Started, Task
from tests.support.planted import FakeRunner, to_record
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

    def join(self, timeout_s: float) -> None:
        """It does not end by itself."""


class FakeRay:
    """What the runner asks of Ray: messages that were told, and which processes it has ended."""

    exceptions = ray.exceptions

    def __init__(self) -> None:
        self.told = list[Message | ray.exceptions.RayError]()
        self.killed = list[str]()
        self.message = SimpleNamespace(remote=lambda: "the next one")  # of the mailbox

    def wait(self, references: list[str], timeout: float) -> tuple[list[str], list[str]]:
        return (references, []) if self.told else ([], references)

    def get(self, reference: str) -> Message:
        message = self.told.pop(0)
        if isinstance(message, ray.exceptions.RayError):
            raise message
        return message

    def kill(self, process: Any) -> None:
        self.killed.append("mailbox" if process is self else process)


@pytest.fixture
def fake_ray(monkeypatch: pytest.MonkeyPatch) -> FakeRay:
    found = FakeRay()
    monkeypatch.setattr(tune_runner, "ray", found)
    return found


EIGHT, SEVEN_FREE = {"a": 4, "b": 4}, {"a": 3, "b": 4}


def seven_free(wanted: int, needs: WorkerNeeds, limit_s: float, suffice: Suffice) -> dict[str, int]:
    """Of eight places others use one."""
    if wanted > 7 or not suffice(SEVEN_FREE, EIGHT):
        raise ClusterBusyError("the cluster was busy")
    return SEVEN_FREE


@pytest.fixture
def runner(tmp_path: Path, clock: Clock, fake_ray: FakeRay, monkeypatch: pytest.MonkeyPatch) -> TuneRunner:
    cluster: Any = SimpleNamespace(
        is_local=False,
        connect=lambda: None,
        abandon=lambda: None,
        await_places=lambda world_size, needs, limit_s: None,
        places=lambda needs: EIGHT,
        refuse_unplaceable=lambda world_size, needs: None,
        free_places=seven_free,
    )
    runner = TuneRunner(cast(Cluster, cluster), needs=WorkerNeeds("cpu", 1), storage=tmp_path)
    runner.places = Places({"a": 4, "b": 4})
    runner._tuning, runner.mailbox = cast(Any, Tuning()), fake_ray
    monkeypatch.setattr(runner, "_start_tune", lambda: setattr(runner, "_tuning", Tuning()))
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


def late_by(seconds: float, clock: Clock) -> None:
    """Let time pass until a trial that has begun just now is so late."""
    deadlines_s = START_TIMEOUT_S + DRIVER_GRACE_S + DEATH_NOTICE_S
    clock.now += request().timeout_s + deadlines_s + seconds


def test_a_trial_that_keeps_no_deadline_is_ended(runner: TuneRunner, clock: Clock, fake_ray: FakeRay) -> None:
    given, trial = submitted(runner, clock)
    late_by(1.0, clock)
    runner._see(trial)
    assert fake_ray.killed == []  # its process in Tune has not told of itself
    trial.hear(Started("its process"))
    runner._see(trial)
    runner._see(trial)
    assert fake_ray.killed == ["its process"]
    trial.over = clock.now
    runner._see(trial)
    assert given.outcome().state == "timeout"


def test_an_outcome_that_is_heard_late_counts(runner: TuneRunner, clock: Clock, fake_ray: FakeRay) -> None:
    given, trial = submitted(runner, clock)
    fake_ray.told = [Message(trial.task.number, Progress("measure"))]
    fake_ray.told.append(Message(trial.task.number, Outcome("invalid", 3.0, "planted")))
    late_by(1.0, clock)  # as after a stop of the driver
    runner._see(trial)
    trial.over = clock.now
    runner._see(trial)
    assert given.outcome().state == "invalid"


def test_a_trial_that_nothing_ends_is_given_up_and_tune_with_it(
    runner: TuneRunner, clock: Clock, fake_ray: FakeRay
) -> None:
    (given, _), tuning = submitted(runner, clock), runner._tuning
    waits = runner.submit(request(), lambda progress: None)  # for places that will never be given back
    late_by(tune_runner.CLOSE_S + 1.0, clock)
    assert runner.wait([given]).outcome().state == "timeout"
    assert runner.wait([waits]) is waits
    with pytest.raises(GroupLostError, match="its places are not free"):
        waits.outcome()
    runner.start(2, {})
    assert runner._tuning is not tuning
    assert fake_ray.killed == ["mailbox"]  # what starts late finds none


def test_trials_of_a_tune_that_has_ended_end_before_the_next_one(
    runner: TuneRunner, clock: Clock, fake_ray: FakeRay
) -> None:
    (first, died), (second, told) = submitted(runner, clock), submitted(runner, clock)
    died.over = told.over = clock.now  # their word may still come
    outcome = FakeRunner().run(request(), lambda progress: None)
    fake_ray.told.append(Message(told.task.number, outcome))
    cast(Any, runner._tuning).alive = False
    runner.start(2, {})
    assert runner.wait([first]) is first
    with pytest.raises(GroupLostError, match="Ray Tune has ended"):
        first.outcome()
    assert second.outcome().result == outcome.result


def test_without_a_mailbox_the_trials_are_ended(runner: TuneRunner, clock: Clock, fake_ray: FakeRay) -> None:
    """Their groups would measure on beside whatever comes next."""
    (first, begun), (second, trial) = submitted(runner, clock), submitted(runner, clock)
    begun.hear(Progress("set up"))
    for number, each in enumerate((begun, trial)):
        fake_ray.told.append(Message(each.task.number, Started(f"process {number}")))
    fake_ray.told.append(ray.exceptions.RayActorError(error_msg="planted"))
    runner.wait([first])
    assert first.outcome().state == "crashed"
    with pytest.raises(GroupLostError, match="the mailbox of the trials died"):
        second.outcome()
    assert fake_ray.killed[:2] == ["process 0", "process 1"]
    assert runner._tuning is None


@pytest.mark.parametrize("is_local", [True, False])
def test_an_interrupt_frees_the_devices_of_a_joined_cluster_at_once(
    is_local: bool, runner: TuneRunner, clock: Clock, fake_ray: FakeRay
) -> None:
    cast(Any, runner._cluster).is_local = is_local  # all processes of a local one are ended anyway
    _, trial = submitted(runner, clock)
    fake_ray.told.append(Message(trial.task.number, Started("its process")))  # not heard yet
    runner.abandon()
    assert fake_ray.killed == ([] if is_local else ["its process", "mailbox"])


def test_a_node_that_is_gone_is_waited_for_while_no_trial_is_under_way(
    runner: TuneRunner, clock: Clock
) -> None:
    asked, cluster = list[str](), cast(Any, runner._cluster)

    def wait(world_size: int, needs: WorkerNeeds, limit_s: float) -> None:
        asked.append("wait")
        clock.now += 30.0

    cluster.await_places = wait
    cluster.refuse_unplaceable = lambda world_size, needs: asked.append("refuse")
    assert runner.start(8, {}).waited_s == 30.0
    assert asked == ["wait", "refuse"]
    submitted(runner, clock)
    assert runner.start(8, {}).waited_s == 0.0
    assert asked == ["wait", "refuse", "refuse"]


def test_beside_others_no_trial_is_begun_on_a_node_that_is_gone(runner: TuneRunner, clock: Clock) -> None:
    (_, on_b), (_, on_a) = submitted(runner, clock), submitted(runner, clock)
    on_b.taken, on_a.taken = runner.places.take(4, alone=True), runner.places.take(3, alone=True)
    cast(Any, runner._cluster).places = lambda needs: {"a": 4}
    on_b.give_back()
    on_b.over, on_b.ended = clock.now, GroupLostError("planted")
    runner._see(on_b)
    given = runner.submit(request(world_size=3), lambda progress: None)
    again = runner._trials[runner._number]
    assert taken_for(again.task.request, again.places) is None  # b is free, and gone
    assert again.fits  # and is waited for until a is free
    large = runner.submit(request(world_size=4), lambda progress: None)
    on_a.over, on_a.ended = clock.now, GroupLostError("planted")
    runner._see(on_a)
    assert runner.wait([given, large]) is large  # not even then: it is asked again
    with pytest.raises(GroupLostError, match="its places are not free"):
        large.outcome()


def test_a_trial_whose_node_is_gone_while_its_workers_start_is_told_of(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Starting:
        """A worker group that asks once whether it still can start."""

        def __init__(self, *_: Any, nodes: tuple[str, ...], **rest: Any) -> None:
            assert nodes == ("b", "b")

        def await_ready(self, still_fits: Callable[[], bool]) -> GroupInfo:
            there.append(still_fits())
            raise GroupLostError("planted")

        def stop(self, *, at_once: bool) -> None:
            assert at_once

    there, nodes = list[bool](), [SimpleNamespace(node_id="a"), SimpleNamespace(node_id="b")]
    monkeypatch.setattr(tune_trial, "WorkerGroup", Starting)
    monkeypatch.setattr(tune_trial, "alive_nodes", lambda: nodes)
    task, tell = Task(1, request(), (), nodes=("b", "b")), Mock()
    for _ in range(2):
        with pytest.raises(GroupLostError):
            tune_trial._outcome(task, tell, needs=WorkerNeeds("cpu", 1), storage=Path(), name="x")
        del nodes[1:]
    assert there == [True, False]


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
    failed = metrics(to_record(asked, Outcome("oom", 1.0, "planted")))
    assert failed == {"state": "oom"}

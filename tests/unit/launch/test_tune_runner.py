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
from raybench.launch import group_runner, tune_runner
from raybench.launch.cluster import Cluster, Suffice
from raybench.launch.liveness import DEATH_NOTICE_S
from raybench.launch.tune_runner import TuneRunner, TuneTrial, metrics, nodes_of
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
    for module in (group_runner, tune_runner):
        monkeypatch.setattr(module, "monotonic", clock)
    return clock


class FakeRay:
    """What the runner asks of Ray: messages that were told, and which processes it has ended."""

    exceptions = ray.exceptions

    def __init__(self) -> None:
        self.told = list[Message | ray.exceptions.RayError]()
        self.killed = list[str]()
        self.tasks = list[Task]()  # that the mailbox was given
        self.message = SimpleNamespace(remote=lambda: "the next one")
        self.trial = SimpleNamespace(options=lambda name: SimpleNamespace(remote=self.tasks.append))
        self.meanwhile: Callable[[], None] = lambda: None  # while nothing was told

    def wait(self, references: list[str], timeout: float) -> tuple[list[str], list[str]]:
        if not self.told:
            self.meanwhile()
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
        refuse_unplaceable=lambda world_size, needs: None,
        await_free=seven_free,
    )
    runner = TuneRunner(cast(Cluster, cluster), needs=WorkerNeeds("cpu", 1), storage=tmp_path)
    monkeypatch.setattr(tune_runner, "wait", lambda calls, limit_s: None)  # Tune does not end on its own
    runner._tuning, runner.mailbox = tune_runner.Future(), fake_ray
    monkeypatch.setattr(runner, "_start_tune", lambda: setattr(runner, "_tuning", tune_runner.Future()))
    return runner


def under_way(runner: TuneRunner, clock: Clock) -> TuneTrial:
    """A trial that Tune was handed just now."""
    runner._trial = TuneTrial(Task(1, request(), ()), lambda progress: None, clock.now)
    return runner._trial


def test_a_trial_has_ended_when_both_say_so(runner: TuneRunner, clock: Clock, fake_ray: FakeRay) -> None:
    outcome = FakeRunner().run(request(), lambda progress: None)

    def play() -> None:
        trial = runner._trial
        assert trial is not None
        if trial.ended is None:
            fake_ray.told.append(Message(trial.task.number, outcome))
        else:  # its processes were still there
            trial.over = clock.now = 1000.0 + outcome.wall_time_s + 12.5

    fake_ray.meanwhile = play
    ended = runner.run(request(), lambda progress: None)
    assert (ended.result, ended.group) == (outcome.result, 1)
    assert ended.processes_s == pytest.approx(12.5)
    (task,) = fake_ray.tasks
    assert task.nodes == ("a", "a")


@pytest.mark.parametrize("has_begun", [True, False])
def test_a_trial_whose_process_died_is_recorded_only_if_it_had_begun(
    has_begun: bool, runner: TuneRunner, clock: Clock
) -> None:
    trial = under_way(runner, clock)
    if has_begun:
        trial.hear(Progress("set up"))
    clock.now = trial.over = 1005.0
    ended = runner._ended(trial)
    if has_begun:
        assert isinstance(ended, Outcome)
        assert (ended.state, ended.wall_time_s) == ("crashed", 5.0)
    else:
        assert isinstance(ended, GroupLostError)


def test_an_outcome_that_comes_after_tunes_word_counts(
    runner: TuneRunner, clock: Clock, fake_ray: FakeRay
) -> None:
    trial = under_way(runner, clock)
    trial.over = clock.now
    fake_ray.told = [Message(1, Progress("measure")), Message(1, Outcome("invalid", 3.0, "planted"))]
    assert runner._ended(trial) == Outcome("invalid", 3.0, "planted")


def test_workers_that_died_before_the_trial_began_are_told_of(
    runner: TuneRunner, clock: Clock, fake_ray: FakeRay
) -> None:
    def play() -> None:
        assert runner._trial is not None
        fake_ray.told.append(Message(1, Lost("the worker group did not start: no place")))
        runner._trial.over = clock.now

    fake_ray.meanwhile = play
    with pytest.raises(GroupLostError, match="no place"):
        runner.run(request(), lambda progress: None)


def test_where_tune_has_ended_nothing_is_waited_for(runner: TuneRunner, clock: Clock) -> None:
    assert runner._tuning is not None
    runner._tuning.set_exception(RuntimeError("planted"))
    with pytest.raises(GroupLostError, match="Ray Tune has ended: planted"):
        runner.run(request(), lambda progress: None)


def late_by(seconds: float, clock: Clock) -> None:
    """Let time pass until a trial that has begun just now is so late."""
    deadlines_s = START_TIMEOUT_S + DRIVER_GRACE_S + DEATH_NOTICE_S
    clock.now += request().timeout_s + deadlines_s + seconds


def test_a_trial_that_keeps_no_deadline_is_ended_and_tune_with_it(
    runner: TuneRunner, clock: Clock, fake_ray: FakeRay
) -> None:
    tuning = runner._tuning

    def play() -> None:
        assert runner._trial is not None
        runner._trial.hear(Started("its process"))
        late_by(1.0, clock)

    fake_ray.meanwhile = play
    assert runner.run(request(), lambda progress: None).state == "timeout"
    assert fake_ray.killed == ["its process", "mailbox"]  # what starts late finds none
    runner.start(2, {})
    assert runner._tuning is not tuning


def test_an_outcome_that_is_heard_late_counts(runner: TuneRunner, clock: Clock, fake_ray: FakeRay) -> None:
    trial = under_way(runner, clock)
    fake_ray.told = [Message(1, Progress("measure")), Message(1, Outcome("invalid", 3.0, "planted"))]
    late_by(1.0, clock)  # as after a stop of the driver
    ended = runner._ended(trial)
    assert isinstance(ended, Outcome)
    assert ended.state == "invalid"


@pytest.mark.parametrize("has_begun", [True, False])
def test_without_a_mailbox_the_trial_is_ended(
    has_begun: bool, runner: TuneRunner, clock: Clock, fake_ray: FakeRay
) -> None:
    """Its group would measure on beside whatever comes next."""
    fake_ray.told = [Message(1, Started("its process"))]
    if has_begun:
        fake_ray.told.append(Message(1, Progress("set up")))
    dead = ray.exceptions.RayActorError(error_msg="planted")
    fake_ray.told += [dead, dead]  # whenever it is asked
    if has_begun:
        assert runner.run(request(), lambda progress: None).state == "crashed"
    else:
        with pytest.raises(GroupLostError, match="the mailbox of the trials died"):
            runner.run(request(), lambda progress: None)
    assert fake_ray.killed[0] == "its process"
    assert runner._tuning is None


@pytest.mark.parametrize("is_local", [True, False])
def test_an_interrupt_frees_the_devices_of_a_joined_cluster_at_once(
    is_local: bool, runner: TuneRunner, clock: Clock, fake_ray: FakeRay
) -> None:
    cast(Any, runner.cluster).is_local = is_local  # all processes of a local one are ended anyway
    under_way(runner, clock)
    fake_ray.told.append(Message(1, Started("its process")))  # not heard yet
    runner.abandon()
    assert fake_ray.killed == ([] if is_local else ["its process", "mailbox"])


def test_a_node_that_is_gone_is_waited_for(runner: TuneRunner, clock: Clock) -> None:
    asked, cluster = list[str](), cast(Any, runner.cluster)

    def wait(world_size: int, needs: WorkerNeeds, limit_s: float) -> None:
        asked.append("wait")
        clock.now += 30.0

    cluster.await_places = wait
    cluster.refuse_unplaceable = lambda world_size, needs: asked.append("refuse")
    assert runner.start(8, {}).waited_s == 30.0
    assert asked == ["wait", "refuse"]


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
    monkeypatch.setattr(tune_runner, "WorkerGroup", Starting)
    monkeypatch.setattr(tune_runner, "alive_nodes", lambda: nodes)
    task, tell = Task(1, request(), (), nodes=("b", "b")), Mock()
    for _ in range(2):
        with pytest.raises(GroupLostError):
            tune_runner._outcome(task, tell, needs=WorkerNeeds("cpu", 1), storage=Path(), name="x")
        del nodes[1:]
    assert there == [True, False]


def test_a_trial_waits_for_its_own_places_and_not_for_the_largest_groups(
    runner: TuneRunner, clock: Clock, fake_ray: FakeRay
) -> None:
    fake_ray.meanwhile = lambda: late_by(1.0, clock)
    for size in (4, 7):
        runner.start(8, {})  # of all world sizes the largest
        runner.run(request(world_size=size), lambda progress: None)
    runner.start(8, {})
    with pytest.raises(ClusterBusyError):
        runner.run(request(world_size=8), lambda progress: None)


@pytest.mark.parametrize(
    ("free", "there", "world_size", "placement", "nodes"),
    [
        ({"a": 8, "b": 2, "c": 4}, None, 2, "pack", "bb"),  # one node where it can, the smallest
        ({"a": 8, "b": 2, "c": 4}, None, 3, "pack", "ccc"),
        ({"a": 8, "b": 2, "c": 4}, None, 9, "pack", "aaaaaaaab"),
        ({"a": 3, "b": 1, "c": 3}, None, 5, "spread", "aabcc"),
        (SEVEN_FREE, EIGHT, 4, "pack", "bbbb"),  # of its eight places the cluster has seven
        ({"a": 1, "b": 1}, {"a": 2, "b": 2}, 2, "pack", None),  # over the network
        ({"a": 1, "b": 1}, {"a": 2, "b": 2}, 2, "spread", "ab"),
        ({"a": 0, "b": 2}, {"a": 2, "b": 2}, 2, "spread", None),  # without the network
    ],
)
def test_on_which_nodes_a_trial_stands_whatever_others_use(
    free: dict[str, int], there: dict[str, int] | None, world_size: int, placement: Any, nodes: str | None
) -> None:
    asked = request(world_size=world_size, placement=placement)
    assert nodes_of(asked, free, there or free) == (None if nodes is None else tuple(nodes))


def test_what_tune_shows_of_a_trial() -> None:
    asked = request()
    record = to_record(asked, FakeRunner().run(asked, lambda progress: None))
    found, expected = metrics(record), scaling(record)
    assert expected.efficiency is not None
    assert found["efficiency"] == expected.efficiency.value
    failed = metrics(to_record(asked, Outcome("oom", 1.0, "planted")))
    assert failed == {"state": "oom"}

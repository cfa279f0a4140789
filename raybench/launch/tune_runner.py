"""The second runner: one ``Tuner.fit()`` of Ray Tune, with a TorchTrainer inside each of its trials.

Tune starts and ends the trials, one after the other; which they are, how long they may take and what is made
of them is decided where it is for the other runner. Tune's placement group does not count the Train workers
inside it (with Train V2; ray issues 47440, 54305): a trial is handed out when its places are free.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, wait
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from queue import SimpleQueue
from time import monotonic
from typing import Any

import ray
from ray.tune.search import Searcher

from raybench.analysis.labels import task_words
from raybench.analysis.scaling import scaling
from raybench.errors import GroupLostError
from raybench.launch import signals as interrupt
from raybench.launch import worker_group
from raybench.launch.group_runner import RayRunner
from raybench.launch.liveness import DEATH_NOTICE_S, LOOK_S, in_thread
from raybench.launch.mailbox import new_mailbox
from raybench.launch.nodes import alive_nodes
from raybench.launch.runtime_env import import_path
from raybench.launch.worker_group import DRIVER_GRACE_S, KILL_S, START_TIMEOUT_S, WorkerGroup
from raybench.machine.host import WorkerNeeds
from raybench.records.messages import GroupInfo, Lost, Message, OnProgress, Outcome, Progress, Started, Task
from raybench.records.record import State, TrialRecord
from raybench.records.requests import TrialRequest
from raybench.spec.placement import workers_on

# A Tune trial needs something to be placed by, and none of the cores that its workers will take.
SHARE_OF_DRIVER_NODE = 1e-4
CLOSE_S = 20.0
LATE_MESSAGE_S = 2.0  # a trial tells its outcome before it ends: the message is on its way

Config = dict[str, Any]


class TuneRequests(Searcher):  # type: ignore[misc]
    """Tune's thread asks (``suggest``), the study's thread hands it one trial after the other."""

    def __init__(self) -> None:
        super().__init__()
        self._next: SimpleQueue[TuneTrial | None] = SimpleQueue()
        self._running: TuneTrial | None = None

    def hand(self, trial: TuneTrial) -> None:
        """The next trial."""
        self._next.put(trial)

    def close(self) -> None:
        """No more trials: Tune ends with the one that runs."""
        self._next.put(None)

    def suggest(self, trial_id: str) -> Config | str | None:
        """The trial that waits; sleeps while there is nothing that Tune could do."""
        if self._running is not None:
            return None  # Tune looks for its events, and asks again
        self._running = self._next.get()
        return str(self.FINISHED) if self._running is None else self._running.config

    def on_trial_complete(self, trial_id: str, result: Config | None = None, error: bool = False) -> None:
        """The trial is over, well or with an error of its process."""
        assert self._running is not None
        self._running.over, self._running = monotonic(), None

    def save_to_dir(self, checkpoint_dir: str, session_str: str = "default") -> None:
        """Nothing: what a study goes on from are its records."""

    def __getstate__(self) -> Config:
        return {}  # Tune pickles it for a run that is restored; none ever is


@dataclass(eq=False)
class TuneTrial:
    """A trial that Tune was handed."""

    task: Task
    on_progress: OnProgress
    began: float
    over: float | None = None  # when Tune has seen its end
    has_begun: bool = False  # its workers have told of it
    ended: Outcome | GroupLostError | None = None  # by its own word
    process: Any = None  # Ray's handle of its process in Tune, once that has started

    @property
    def config(self) -> Config:
        """What Tune shows of it."""
        request, config = self.task.request, self.task.request.config
        knobs = {} if request.kind == "collectives" else request.config.setting.model_dump(mode="json")
        about = {"trial": request.trial_id, "role": request.role, "world_size": config.world_size}
        return {"number": self.task.number, **about, **knobs, **config.environment}

    def hear(self, content: Started | Progress | Lost | Outcome) -> None:
        """Take in what it tells of itself."""
        if isinstance(content, Started):
            self.process = content.process
        elif isinstance(content, Progress):
            self.has_begun = True
            self.on_progress(content)
        else:
            self.ended = GroupLostError(content.reason) if isinstance(content, Lost) else content

    def lost(self, state: State, reason: str) -> Outcome | GroupLostError:
        """How it ends without a word of its own: its own failure once its workers have begun it."""
        seconds = (self.over or monotonic()) - self.began
        return Outcome(state, seconds, reason) if self.has_begun else GroupLostError(reason)

    def kill(self) -> None:
        """End its process, its workers with it, where it is known to have one."""
        if self.process is not None:
            ray.kill(self.process)


@dataclass(eq=False)
class TuneRunner(RayRunner):
    """Implements ``TrialRunner`` on Ray Tune."""

    def __post_init__(self) -> None:
        self.mailbox: Any = None
        self._requests = TuneRequests()
        self._tuning: Future[object] | None = None
        self._trial: TuneTrial | None = None  # under way
        self._number = self._num_tuners = 0
        self._waiting: Any = None

    def start(self, world_size: int, environment: dict[str, str], *, anew: bool = False) -> GroupInfo:
        """Tune, ready for a trial, which has new processes anyway; its workers are not known yet.

        Raises ``NoRoomError`` where ``world_size`` workers cannot be placed.
        """
        waited_s = self.make_room(world_size)
        if self._tuning is None or self._tuning.done():
            self._leave_tune()
            self._start_tune()
        return GroupInfo((), self._number + 1, waited_s)

    def run(self, request: TrialRequest, on_progress: OnProgress) -> Outcome:
        """Have Tune measure a trial, once its places are free; until Tune too says that it is over.

        Raises ``ClusterBusyError`` where others use them: its own, and not those of the largest group.
        """
        free = self.cluster.await_free(
            request.config.world_size,
            self.needs,
            self.wait_s,
            lambda free, there: nodes_of(request, free, there) is not None,
        )
        nodes = nodes_of(request, free, free) or ()
        self._number += 1
        task = Task(self._number, request, (), str(self.results) if self.results else None, nodes)
        trial = self._trial = TuneTrial(task, on_progress, monotonic())
        self.mailbox.trial.options(name=task_words(request)).remote(task)
        self._requests.hand(trial)
        try:
            while (ended := self._ended(trial)) is None:
                interrupt.check()
                self._hear(LOOK_S)
        except ray.exceptions.RayError as error:
            interrupt.check()  # where Ray itself has died nothing more is asked of it
            # the mailbox is gone, as after Ray's memory monitor took it: the trial cannot tell its outcome
            state: State = "oom" if worker_group.ran_out_of_memory(error) else "crashed"
            ended = trial.lost(state, f"the mailbox of the trials died: {worker_group.reason(error)}")
            self._leave_tune()
        self._trial = None
        if isinstance(ended, GroupLostError):
            raise ended
        processes_s = 0.0 if trial.over is None else trial.over - trial.began - ended.wall_time_s
        return replace(ended, group=task.number, processes_s=max(processes_s, 0.0))

    def close(self) -> None:
        """End Tune, whatever of it still runs, and what this process started of Ray."""
        self._leave_tune()
        self.cluster.close()

    def abandon(self) -> None:
        """End every process at once, whatever it is doing; afterwards only ``os._exit`` ends this one."""
        if self.mailbox is not None and not self.cluster.is_local:
            # else they would hold a joined cluster's devices until this process is gone
            wait([in_thread("raybench-kill", self._kill)], KILL_S)
        self.cluster.abandon()

    def _ended(self, trial: TuneTrial) -> Outcome | GroupLostError | None:
        """How ``trial`` has ended, by its word and by Tune's; None while that is open."""
        if trial.over is not None:
            while trial.ended is None and self._hear(LATE_MESSAGE_S):
                pass
            return trial.ended or trial.lost("crashed", "the process of its Tune trial died")
        assert self._tuning is not None
        if self._tuning.done():
            interrupt.check()
            trial.kill()
            why = self._tuning.exception() or "without an error"
            return trial.ended or GroupLostError(f"Ray Tune has ended: {why}")
        timeout_s = trial.task.request.timeout_s
        limit_s = START_TIMEOUT_S + timeout_s + DRIVER_GRACE_S + DEATH_NOTICE_S
        if monotonic() - trial.began <= limit_s:
            return None
        self._leave_tune()  # which would keep the trial's places; what the mailbox still has is heard
        return trial.ended or Outcome("timeout", timeout_s, f"not done after {timeout_s:g} s")

    def _hear(self, timeout_s: float) -> bool:
        """Tell the trial its next message; whether there was one of any within ``timeout_s``."""
        if self._waiting is None:
            self._waiting = self.mailbox.message.remote()
        ready, _ = ray.wait([self._waiting], timeout=timeout_s)
        if not ready:
            return False
        waiting, self._waiting = self._waiting, None
        message: Message = ray.get(waiting)
        if self._trial is not None and message.task == self._trial.task.number:
            assert isinstance(message.content, Started | Progress | Lost | Outcome)
            self._trial.hear(message.content)
        return True

    def _leave_tune(self) -> None:
        """End Tune and whatever of it still runs."""
        tuning, self._tuning = self._tuning, None
        if tuning is None:
            return
        self._requests.close()
        self._kill()
        wait([tuning], CLOSE_S)

    def _kill(self) -> None:
        """End the trial's processes; one that starts yet ends for want of a mailbox."""
        if self._trial is not None:
            with suppress(ray.exceptions.RayError):
                while self._hear(LOOK_S):
                    pass
            self._trial.kill()
        ray.kill(self.mailbox)

    def _start_tune(self) -> None:
        from ray import tune
        from ray.air.execution import PlacementGroupResourceManager

        # freed by the collector it calls Ray, and waits where that is gone; the places of a job go with it
        PlacementGroupResourceManager.__del__ = lambda manager: None

        self._num_tuners += 1
        self._waiting = None
        self._requests = TuneRequests()
        self.mailbox = new_mailbox(f"{self.name}-tune-{self._num_tuners}-mailbox")
        # files of each trial beside ours; its results are in Tune's table, which goes to ray.log
        os.environ.setdefault("TUNE_DISABLE_AUTO_CALLBACK_LOGGERS", "1")
        trainable = tune.with_parameters(
            measure,
            mailbox=self.mailbox,
            needs=self.needs,
            storage=str(self.storage),
            name=self.name,
            sys_path=import_path(),
        )
        # on the driver's node, as a worker group's own driver is; 0 cores and nothing else Tune refuses
        here = {f"node:{ray.util.get_node_ip_address()}": SHARE_OF_DRIVER_NODE}
        tuner = tune.Tuner(
            tune.with_resources(trainable, tune.PlacementGroupFactory([here])),
            tune_config=tune.TuneConfig(
                search_alg=self._requests,
                num_samples=-1,  # until the searcher has finished
                trial_name_creator=_name,
                trial_dirname_creator=_name,
            ),
            run_config=tune.RunConfig(
                name=f"{self.name}-tune-{self._num_tuners}", storage_path=str(self.storage), verbose=1
            ),
        )
        interrupt.check()  # as before a worker group begins
        self._tuning = in_thread("raybench-tune", tuner.fit)


def nodes_of(
    request: TrialRequest, free: Mapping[str, int], there: Mapping[str, int]
) -> tuple[str, ...] | None:
    """The node of each worker, on the places that are ``free`` on each.

    As with the whole cluster, all places that are ``there``, to itself; None where others use too many. Over
    more or fewer nodes steps would measure other links, and Ray itself would begin with the fullest node.
    """
    config = request.config
    there = free if request.kind == "training" else there
    used, meant = (
        workers_on(places, config.world_size, spread=config.placement == "spread") for places in (free, there)
    )
    return tuple(sorted(used.elements())) if sorted(used.values()) == sorted(meant.values()) else None


def _name(trial: Any) -> str:
    """Of a Tune trial: unique, and to be found again in trials.jsonl."""
    return f"{trial.config['trial']}-{trial.config['number']}"


# --- inside a Tune trial: a worker group of its own, which serves this trial alone
# Same workers, same measuring code, same outcome as in the group that serves a whole study; only its size and
# its life are the trial's. So this is the driver's part for one trial, in a process of Tune's.

Metrics = dict[str, float | str]


def measure(
    config: dict[str, Any],
    *,
    mailbox: Any,
    needs: WorkerNeeds,
    storage: str,
    name: str,
    sys_path: list[str],
) -> Metrics:
    """Measure the task that ``config["number"]`` names; what Tune is to show of it.

    The outcome itself, step times included, goes to the driver by ``mailbox``.
    """
    sys.path += [path for path in sys_path if path not in sys.path]
    number: int = config["number"]

    def tell(content: Started | Progress | Outcome | Lost) -> Any:
        return mailbox.tell.remote(Message(number, content))

    ray.get(tell(Started(ray.get_runtime_context().current_actor)))
    task: Task = ray.get(mailbox.take.remote())
    while task.number != number:  # of a process that died before it took its own
        task = ray.get(mailbox.take.remote())
    try:
        outcome = _outcome(task, tell, needs=needs, storage=Path(storage), name=name)
    except GroupLostError as lost:
        ray.get(tell(Lost(str(lost))))
        return {"state": "lost"}
    ray.get(tell(outcome))
    return metrics(outcome.to_record(task.request, study="", started_at=""))


def _outcome(task: Task, tell: Any, *, needs: WorkerNeeds, storage: Path, name: str) -> Outcome:
    """Start the workers, measure, and end them. Raises ``GroupLostError`` where the trial never began."""
    config = task.request.config
    group, whole = None, False
    try:
        group = WorkerGroup(
            config.world_size,
            config.environment,
            task.number,
            name=name,
            needs=needs,
            storage=storage,
            nodes=task.nodes,
        )
        info = group.await_ready(lambda: _are_there(task.nodes))
        everyone = tuple(member.rank for member in info.members)
        group.post(task.request, everyone, Path(task.results) if task.results else None, tell)
        outcome = group.outcome()
        whole = not outcome.ends_group
        return outcome
    finally:
        if group is not None:
            group.stop(at_once=not whole)


def _are_there(nodes: Sequence[str]) -> bool:
    """Whether Ray still has all of these: it waits for a place on a node that is gone."""
    return {*nodes} <= {node.node_id for node in alive_nodes()}


def metrics(record: TrialRecord) -> Metrics:
    """What Tune shows of a trial: its state, and its efficiency with its interval."""
    found: Metrics = {"state": record.state}
    efficiency = scaling(record).efficiency if record.steps is not None else None
    if efficiency is not None:
        found["efficiency"] = efficiency.value
        found["efficiency_low"], found["efficiency_high"] = efficiency.low, efficiency.high
    return found

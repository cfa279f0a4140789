"""The second runner: one ``Tuner.fit()`` of Ray Tune, with a TorchTrainer inside each of its trials.

Tune starts, counts and ends the trials, several at once; which they are, how long they may take and what is
made of them is decided where it is for the other runner. Tune's placement group does not count the Train
workers inside it (with Train V2; ray issues 47440, 54305), so as many trials as Tune likes would wait for
each other's places for ever: a trial is handed out when its places are free, and not before.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from time import monotonic
from typing import Any

import ray

from raybench.errors import GroupLostError
from raybench.launch import failures
from raybench.launch import signals as interrupt
from raybench.launch.cluster import NAME, Cluster
from raybench.launch.mailbox import new_mailbox
from raybench.launch.places import Places
from raybench.launch.runner import OnProgress, Submitted
from raybench.launch.travel import import_path
from raybench.launch.tune_requests import TuneRequests
from raybench.launch.tune_submission import Submission, alone_on_nodes, taken_for
from raybench.launch.tune_trial import measure
from raybench.launch.worker_group import DEATH_NOTICE_S, DRIVER_GRACE_S, POLL_S, START_TIMEOUT_S
from raybench.machine.resources import Resources, WorkerNeeds
from raybench.records.messages import GroupInfo, Lost, Message, Outcome, Progress, Task
from raybench.records.record import State
from raybench.records.requests import TrialRequest

# A Tune trial needs something to be placed by, and none of the cores that its workers will take.
SHARE_OF_DRIVER_NODE = 1e-4
CLOSE_S = 20.0
QUICK_POLL_S = 0.02  # between a trial's outcome and Tune's word that it is over


class TuneRunner:
    """Implements ``TrialRunner`` on Ray Tune."""

    def __init__(
        self,
        cluster: Cluster,
        *,
        needs: WorkerNeeds,
        storage: Path,
        name: str = NAME,  # of the study, where Ray's dashboard shows it
        wait_s: float = 0.0,  # for places that others use
        results: Path | None = None,  # the results directory, where rank 0 can write
    ) -> None:
        self._cluster, self._needs = cluster, needs
        self._storage, self.results, self._name = storage, results, name
        self._wait_s, self.places = wait_s, Places({})
        self.mailbox: Any = None
        self._requests = TuneRequests()
        self._tuning: threading.Thread | None = None
        self._error: BaseException | None = None
        self._trials: dict[int, Submission] = {}  # under way, by number
        self._number = self._num_tuners = 0
        self._waiting: Any = None

    def resources(self) -> Resources:
        """What the cluster has."""
        return self._cluster.resources(self._needs)

    def capacity(self, kind: str, world_size: int, *, spread: bool = False) -> int:
        """As many as there are free places for; of steps, as many as there are nodes for."""
        if self._tuning is None:
            self._cluster.connect()
            self.places = Places(self._cluster.places(self._needs))
        return self.places.most(world_size, alone=alone_on_nodes(kind), spread=spread)

    def start(self, world_size: int, environment: dict[str, str], *, anew: bool = False) -> GroupInfo:
        """Tune, ready for trials, each of which has new processes anyway; its workers are not known yet.

        Raises ``NoRoomError`` where ``world_size`` workers cannot be placed.
        """
        self._cluster.connect()
        self._cluster.refuse_unplaceable(world_size, self._needs)
        if self._tuning is None or not self._tuning.is_alive():
            self._start_tune()
        return GroupInfo((), self._number + 1)

    def submit(self, request: TrialRequest, on_progress: OnProgress) -> Submitted:
        """Hand a trial to Tune, which begins it when its places are free.

        Raises ``ClusterBusyError`` where others use them: its own, and not those of the largest group.
        """
        if not self._trials:  # else some of the places are ours; nodes, and what others use, may have changed
            free = self._cluster.free_places(
                request.config.world_size,
                self._needs,
                self._wait_s,
                lambda free, cluster: taken_for(request, Places(free, cluster)) is not None,
            )
            self.places = Places(free, self._cluster.places(self._needs))
        self._number += 1
        submitted = Submitted(request, on_progress)
        task = Task(self._number, request, (), str(self.results) if self.results else None)
        trial = self._trials[self._number] = Submission(task, submitted, self.places, self.mailbox)
        self._requests.hand(trial)
        return submitted

    def wait(self, submitted: Sequence[Submitted]) -> Submitted:
        """Wait until one of these has ended, and Tune with it: its processes are gone, its places free."""
        while True:
            for trial in list(self._trials.values()):
                self._see(trial)
            ended = next((each for each in submitted if each.ended is not None), None)
            if ended is not None:
                return ended
            message = self._message()
            if message is not None and message.task in self._trials:
                content = message.content
                assert isinstance(content, Progress | Lost | Outcome)
                self._trials[message.task].hear(content)

    def run(self, request: TrialRequest, on_progress: OnProgress) -> Outcome:
        """One trial from its submission to its outcome."""
        return self.wait([self.submit(request, on_progress)]).outcome()

    def close(self) -> None:
        """End Tune, whatever of it still runs, and what this process started of Ray."""
        if self._tuning is not None:
            self._requests.close()
            self._kill([*self._trials])
            self._tuning.join(CLOSE_S)
            self._tuning = None
        self._trials.clear()
        self._cluster.close()

    def abandon(self) -> None:
        """End every process at once, whatever it is doing; afterwards only ``os._exit`` ends this one."""
        self._requests.park()
        self._cluster.abandon()

    def _see(self, trial: Submission) -> None:
        """Whether ``trial`` has ended, by its word and by Tune's."""
        now, timeout_s = monotonic(), trial.task.request.timeout_s
        if trial.over is None:
            if self._tuning is not None and not self._tuning.is_alive():
                lost = GroupLostError(f"Ray Tune has ended: {self._error or 'without an error'}")
                self._end(trial, trial.ended or lost)
                return
            longest_s = START_TIMEOUT_S + timeout_s + DRIVER_GRACE_S + DEATH_NOTICE_S
            if trial.began is not None and now > trial.began + longest_s and not trial.killed:
                self._kill([trial.task.number])  # its own deadlines have failed
                trial.killed = True
                trial.ended = Outcome("timeout", timeout_s, f"not done after {timeout_s:g} s")
            return
        ended = trial.end(now)
        if ended is not None:
            self._end(trial, ended)

    def _end(self, trial: Submission, ended: Outcome | GroupLostError) -> None:
        submitted = trial.submitted
        if isinstance(ended, Outcome):
            ended = replace(ended, group=trial.task.number)
            if trial.began is not None and trial.over is not None:
                submitted.processes_s = max(trial.over - trial.began - ended.wall_time_s, 0.0)
        submitted.ended = ended
        del self._trials[trial.task.number]

    def _message(self) -> Message | None:
        """The next message of any trial; None when there is none for a moment."""
        interrupt.check()
        if self._waiting is None:
            self._waiting = self.mailbox.message.remote()
        nearly = any(trial.ended is not None for trial in self._trials.values())
        ready, _ = ray.wait([self._waiting], timeout=QUICK_POLL_S if nearly else POLL_S)
        if not ready:
            return None
        waiting, self._waiting = self._waiting, None
        try:
            message: Message = ray.get(waiting)
        except ray.exceptions.RayError as error:
            self._lose_all(error)
            return None
        return message

    def _lose_all(self, error: BaseException) -> None:
        """The mailbox is gone, as after Ray's memory monitor took it: no trial can tell its outcome."""
        state: State = "oom" if failures.ran_out_of_memory(error) else "crashed"
        for trial in list(self._trials.values()):
            reason = f"the mailbox of the trials died: {failures.reason(error)}"
            has_begun, began = trial.has_begun, trial.began or monotonic()
            lost = Outcome(state, monotonic() - began, reason) if has_begun else GroupLostError(reason)
            self._end(trial, lost)
        self._requests.close()
        if self._tuning is not None:
            self._tuning.join(CLOSE_S)  # its trials fail, as they have nobody to tell
            self._tuning = None

    def _kill(self, numbers: Sequence[int]) -> None:
        """End the processes of Tune trials; their workers end with them."""
        if not numbers:
            return
        try:
            known = ray.get(self.mailbox.workers.remote(), timeout=1.0)
        except ray.exceptions.RayError:
            return
        for number in numbers:
            if number in known:
                ray.kill(known[number])

    def _start_tune(self) -> None:
        from ray import tune

        self._num_tuners += 1
        self._error, self._waiting = None, None
        self._requests, self._trials = TuneRequests(), {}
        self.places = Places(self._cluster.places(self._needs))
        self.mailbox = new_mailbox(f"{self._name}-tune-{self._num_tuners}-mailbox")
        # files of each trial beside ours; its results are in Tune's table, which goes to ray.log
        os.environ.setdefault("TUNE_DISABLE_AUTO_CALLBACK_LOGGERS", "1")
        trainable = tune.with_parameters(
            measure,
            mailbox=self.mailbox,
            needs=self._needs,
            storage=str(self._storage),
            name=self._name,
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
                name=f"{self._name}-tune-{self._num_tuners}", storage_path=str(self._storage), verbose=1
            ),
        )
        self._tuning = threading.Thread(target=self._tune, args=(tuner,), daemon=True, name="raybench-tune")
        self._tuning.start()

    def _tune(self, tuner: Any) -> None:
        try:
            tuner.fit()
        except BaseException as error:
            self._error = error


def _name(trial: Any) -> str:
    """Of a Tune trial: unique, and to be found again in trials.jsonl."""
    return f"{trial.config['trial']}-{trial.config['number']}"

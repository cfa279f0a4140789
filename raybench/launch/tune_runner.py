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
from raybench.launch import signals as interrupt
from raybench.launch import worker_group
from raybench.launch.cluster import NAME, Cluster
from raybench.launch.liveness import DEATH_NOTICE_S
from raybench.launch.mailbox import new_mailbox
from raybench.launch.runner import Submitted
from raybench.launch.runtime_env import import_path
from raybench.launch.tune_submission import Places, Submission, TuneRequests, alone_on_nodes, taken_for
from raybench.launch.tune_trial import measure
from raybench.launch.worker_group import DRIVER_GRACE_S, KILL_S, POLL_S, START_TIMEOUT_S
from raybench.machine.host import WorkerNeeds
from raybench.records.messages import GroupInfo, Lost, Message, OnProgress, Outcome, Progress, Started, Task
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
        self._is_stuck = False  # a trial did not end, and has its places for Tune

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
        asked = monotonic()
        if not self._trials:  # else nobody would hear of those meanwhile
            self._cluster.await_places(world_size, self._needs, self._wait_s)
        waited_s = monotonic() - asked
        self._cluster.refuse_unplaceable(world_size, self._needs)
        is_over = self._tuning is None or not self._tuning.is_alive()
        if is_over or (self._is_stuck and not self._trials):
            self._leave_tune()
            self._start_tune()
        return GroupInfo((), self._number + 1, waited_s)

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
        else:
            self.places.keep(self._cluster.places(self._needs))
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
            interrupt.check()
            nearly = any(trial.ended is not None for trial in self._trials.values())
            self._hear(QUICK_POLL_S if nearly else POLL_S)

    def close(self) -> None:
        """End Tune, whatever of it still runs, and what this process started of Ray."""
        self._leave_tune()
        self._cluster.close()

    def abandon(self) -> None:
        """End every process at once, whatever it is doing; afterwards only ``os._exit`` ends this one."""
        self._requests.park()
        if self.mailbox is not None and not self._cluster.is_local:
            # else they would hold a joined cluster's devices until this process is gone
            killing = threading.Thread(target=self._kill_all, daemon=True, name="raybench-kill")
            killing.start()
            killing.join(KILL_S)
        self._cluster.abandon()

    def _see(self, trial: Submission) -> None:
        """Whether ``trial`` has ended, by its word and by Tune's."""
        if trial.over is not None:
            ended = trial.end(monotonic())
            if ended is not None:
                self._end(trial, ended)
        elif self._tuning is not None and not self._tuning.is_alive():
            interrupt.check()
            self._kill([trial])
            lost = GroupLostError(f"Ray Tune has ended: {self._error or 'without an error'}")
            self._end(trial, trial.ended or lost)
        elif trial.began is None:
            self._see_waiting(trial)
        else:
            self._see_late(trial, monotonic() - trial.began)

    def _see_waiting(self, trial: Submission) -> None:
        """Whether ``trial`` waits for places that none under way will give back: then it is asked again."""
        if any(each.began is not None for each in self._trials.values()):
            return
        if (self._is_stuck or not trial.fits) and self._requests.withdraw(trial):
            self._end(trial, GroupLostError("its places are not free: nodes are gone, or others use them"))

    def _see_late(self, trial: Submission, seconds: float) -> None:
        """Whether ``trial``, begun so long ago, has kept no deadline: it is ended, and soon given up."""
        timeout_s = trial.task.request.timeout_s
        late_s = seconds - (START_TIMEOUT_S + timeout_s + DRIVER_GRACE_S + DEATH_NOTICE_S)
        if late_s <= 0:
            return
        while self._hear(POLL_S):  # this process may have been stopped, and the mailbox has the outcome
            pass
        trial.ended = trial.ended or Outcome("timeout", timeout_s, f"not done after {timeout_s:g} s")
        trial.killed = trial.killed or self._kill([trial])
        if late_s > CLOSE_S:
            self._is_stuck = True
            self._end(trial, trial.ended)

    def _end(self, trial: Submission, ended: Outcome | GroupLostError) -> None:
        submitted = trial.submitted
        if isinstance(ended, Outcome):
            ended = replace(ended, group=trial.task.number)
            if trial.began is not None and trial.over is not None:
                submitted.processes_s = max(trial.over - trial.began - ended.wall_time_s, 0.0)
        submitted.ended = ended
        del self._trials[trial.task.number]

    def _hear(self, timeout_s: float) -> bool:
        """Tell a trial its next message; whether there was one of any within ``timeout_s``."""
        if self._waiting is None:
            self._waiting = self.mailbox.message.remote()
        ready, _ = ray.wait([self._waiting], timeout=timeout_s)
        if not ready:
            return False
        waiting, self._waiting = self._waiting, None
        try:
            message: Message = ray.get(waiting)
        except ray.exceptions.RayError as error:
            interrupt.check()  # where Ray itself has died nothing more is asked of it
            self._lose_all(error)
            return False
        if message.task in self._trials:
            assert isinstance(message.content, Started | Progress | Lost | Outcome)
            self._trials[message.task].hear(message.content)
        return True

    def _lose_all(self, error: BaseException) -> None:
        """The mailbox is gone, as after Ray's memory monitor took it: no trial can tell its outcome."""
        state: State = "oom" if worker_group.ran_out_of_memory(error) else "crashed"
        self._kill([*self._trials.values()])  # they measure on, each with a mailbox of its group
        for trial in list(self._trials.values()):
            reason = f"the mailbox of the trials died: {worker_group.reason(error)}"
            has_begun, began = trial.has_begun, trial.began or monotonic()
            lost = Outcome(state, monotonic() - began, reason) if has_begun else GroupLostError(reason)
            self._end(trial, lost)
        self._leave_tune()

    def _leave_tune(self) -> None:
        """End Tune and whatever of it still runs."""
        tuning, self._tuning = self._tuning, None
        if tuning is None:
            return
        self._requests.close()
        self._kill_all()
        tuning.join(CLOSE_S)
        for trial in list(self._trials.values()):  # nobody will tell of them any more
            self._end(trial, trial.ended or GroupLostError(f"Ray Tune has ended: {self._error or 'by us'}"))

    def _kill_all(self) -> None:
        """End the processes of every trial; one that starts yet ends for want of a mailbox."""
        while self._trials and self._hear(POLL_S):
            pass
        self._kill([*self._trials.values()])
        ray.kill(self.mailbox)

    def _kill(self, trials: Sequence[Submission]) -> bool:
        """End the processes of Tune trials, their workers with them; whether any was known to have one."""
        known = [trial.process for trial in trials if trial.process is not None]
        for process in known:
            ray.kill(process)
        return bool(known)

    def _start_tune(self) -> None:
        from ray import tune

        self._num_tuners += 1
        self._error, self._waiting, self._is_stuck = None, None, False
        self._requests = TuneRequests()
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
        interrupt.check()  # as before a worker group begins
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

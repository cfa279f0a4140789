"""The default runner: one Ray Train run whose workers serve all trials of the study."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from time import monotonic, sleep
from typing import Any, cast

import psutil
import ray
from ray.train import FailureConfig, RunConfig, ScalingConfig
from ray.train.torch import TorchConfig, TorchTrainer

from raybench.errors import GroupLostError
from raybench.launch import failures
from raybench.launch import signals as interrupt
from raybench.launch.cluster import Cluster, import_path
from raybench.launch.mailbox import Event, Mailbox
from raybench.machine.resources import Resources
from raybench.records.messages import GroupInfo, Outcome, Progress
from raybench.records.record import State
from raybench.records.requests import TrialRequest

POLL_S = 0.25
START_TIMEOUT_S = 180.0  # from an empty machine to workers that answer
DRIVER_GRACE_S = 5.0  # after the workers' own deadline
DEATH_NOTICE_S = 15.0  # Ray needs 1 to 3 s to see a death
STOP_S = 5.0


class WorkerGroupRunner:
    """Implements ``TrialRunner`` on Ray Train's TorchTrainer."""

    def __init__(
        self,
        cluster: Cluster,
        *,
        device: str,
        cpus_per_worker: int,
        storage: Path,
        checkpoints: Path | None = None,  # of training trials, where rank 0 can write
    ) -> None:
        self._cluster, self._device, self._cpus = cluster, device, cpus_per_worker
        self._storage, self.checkpoints = storage, checkpoints
        self._group: _Group | None = None
        self._started = 0

    def resources(self) -> Resources:
        """What the cluster has."""
        return self._cluster.resources()

    def start(self, world_size: int, environment: dict[str, str]) -> GroupInfo:
        """A running group of exactly this size with these variables.

        Raises ``RequestError`` where it cannot be placed, ``GroupLostError`` where it dies while starting.
        """
        group = self._group
        if group is not None and group.alive and group.wants == (world_size, environment):
            return group.info
        self._stop_group()
        self._cluster.connect()
        self._cluster.refuse_unplaceable(world_size)
        self._started += 1
        # kept before it is ready: an interrupt while it starts must find it, to end it
        self._group = _Group(self, world_size, environment, self._started)
        return self._group.await_ready()

    def run(self, request: TrialRequest, on_progress: Callable[[Progress], None]) -> Outcome:
        """Measure one trial; a group that dies under it is an outcome, and is replaced by ``start``."""
        group = self._group
        if group is None or not group.alive:
            raise GroupLostError("no worker group is running")
        try:
            ranks = group.info.ranks_for(request.config.world_size, request.config.placement)
        except ValueError as error:
            return Outcome("invalid", 0.0, str(error), group=group.info.number)
        began = monotonic()
        try:
            outcome = group.run(request, ranks, self.checkpoints, on_progress)
        except GroupLostError as lost:
            self._stop_group()
            outcome = Outcome(cast(State, lost.state), monotonic() - began, str(lost), ranks=ranks)
        return replace(
            outcome,
            ranks=ranks,
            nodes=group.info.nodes_of(ranks),
            device_name=group.info.members[ranks[0]].device_name,
            group=group.info.number,
        )

    def close(self) -> None:
        """End the workers and what this process started of Ray."""
        self._stop_group()
        self._cluster.close()

    def abandon(self) -> None:
        """End every process at once, whatever it is doing; afterwards only ``os._exit`` ends this one."""
        self._group = None
        self._cluster.abandon()

    def _stop_group(self) -> None:
        group, self._group = self._group, None
        if group is not None:
            group.stop()


class _Group:
    """One ``TorchTrainer.fit()``, in a thread of its own: the main thread keeps the signals."""

    def __init__(
        self, runner: WorkerGroupRunner, world_size: int, environment: dict[str, str], number: int
    ) -> None:
        self.wants = (world_size, dict(environment))
        self._number = number
        self._info: GroupInfo | None = None
        self._error: BaseException | None = None
        self._pids: list[int] = []
        self._mailbox: Any = Mailbox.remote()  # type: ignore[attr-defined]
        self._waiting: Any = None
        trainer = self._trainer(runner, world_size, environment, number)
        self._thread = threading.Thread(target=self._fit, args=(trainer,), daemon=True, name="raybench-fit")
        self._thread.start()

    @property
    def info(self) -> GroupInfo:
        """The workers, once they are ready."""
        assert self._info is not None
        return self._info

    @property
    def alive(self) -> bool:
        """Whether the run goes on."""
        return self._thread.is_alive()

    def await_ready(self) -> GroupInfo:
        """Wait for the workers. Raises ``GroupLostError`` where they do not answer."""
        deadline = monotonic() + START_TIMEOUT_S
        while (event := self._event(deadline)) is not None:
            if event[0] == "hello":
                self._info = GroupInfo(event[1], self._number)
                here = ray.get_runtime_context().get_node_id()
                self._pids = [member.pid for member in self._info.members if member.node == here]
                return self._info
        self._thread.join(DEATH_NOTICE_S if not self.alive else 0)
        reason = (
            failures.reason(self._error) if self._error else f"no worker answered in {START_TIMEOUT_S:g} s"
        )
        self.stop(at_once=True)
        raise GroupLostError(f"the worker group did not start: {reason}")

    def run(
        self,
        request: TrialRequest,
        ranks: tuple[int, ...],
        checkpoints: Path | None,
        on_progress: Callable[[Progress], None],
    ) -> Outcome:
        """Post the trial and wait for its outcome. Raises ``GroupLostError``."""
        deadline = monotonic() + request.timeout_s + DRIVER_GRACE_S
        task = {
            "request": request.model_dump(mode="json"),
            "ranks": ranks,
            "checkpoints": str(checkpoints) if checkpoints else None,
        }
        self._mailbox.post.remote(task)
        began = monotonic()
        while True:
            event = self._event(deadline)
            if event is None:
                late = monotonic() - began >= request.timeout_s
                raise self._lost(late, request.timeout_s)
            kind, value = event
            if kind == "progress":
                on_progress(value)
            elif kind == "outcome":
                return cast(Outcome, value)

    def stop(self, *, at_once: bool = False) -> None:
        """End the workers, kindly unless ``at_once``, and wait until their processes are gone."""
        if self.alive and not at_once:
            self._mailbox.post.remote(None)
            self._thread.join(STOP_S)
        if self.alive:
            self._kill_workers()
            self._thread.join(STOP_S)
        gone_by = monotonic() + STOP_S
        while any(psutil.pid_exists(pid) for pid in self._pids) and monotonic() < gone_by:
            sleep(0.05)  # Ray may call their cores free while they still run
        ray.kill(self._mailbox)

    def _event(self, deadline: float) -> Event | None:
        """The next event; None when the deadline has passed or the run is over."""
        while True:
            if self._waiting is None:
                self._waiting = self._mailbox.event.remote()
            interrupt.check()
            left = deadline - monotonic()
            ready, _ = ray.wait([self._waiting], timeout=max(min(left, POLL_S), 0.0))
            if ready:
                waiting, self._waiting = self._waiting, None
                try:
                    return cast(Event, ray.get(waiting))
                except ray.exceptions.RayError:
                    return None
            if left <= 0 or not self.alive:
                return None

    def _lost(self, late: bool, timeout_s: float) -> GroupLostError:
        if late:
            return GroupLostError(f"not done after {timeout_s:g} s", "timeout")
        self._thread.join(DEATH_NOTICE_S)
        if self._error is None:
            return GroupLostError("the worker group ended by itself")
        return GroupLostError(
            failures.reason(self._error), "oom" if failures.ran_out_of_memory(self._error) else "crashed"
        )

    def _kill_workers(self) -> None:
        try:
            workers = ray.get(self._mailbox.workers.remote(), timeout=1.0)
        except ray.exceptions.RayError:
            workers = {}
        for worker in workers.values():
            ray.kill(worker)

    def _fit(self, trainer: TorchTrainer) -> None:
        try:
            trainer.fit()
        except BaseException as error:
            self._error = error

    def _trainer(
        self, runner: WorkerGroupRunner, world_size: int, environment: dict[str, str], number: int
    ) -> TorchTrainer:
        from raybench.worker.serve import serve

        cuda = runner._device == "cuda"
        per_worker: dict[str, float] = {"CPU": runner._cpus}
        if cuda:
            per_worker["GPU"] = 1
        variables = {"OMP_NUM_THREADS": str(runner._cpus), **environment}
        return TorchTrainer(
            serve,
            train_loop_config={
                "mailbox": self._mailbox,
                "device": runner._device,
                "sys_path": import_path(),
            },
            torch_config=TorchConfig(backend="nccl" if cuda else "gloo"),
            scaling_config=ScalingConfig(
                num_workers=world_size,
                use_gpu=cuda,
                resources_per_worker=per_worker,
                placement_strategy="PACK",
            ),
            run_config=RunConfig(
                name=f"group-{number}",
                storage_path=str(runner._storage),
                # a silent restart would falsify a timing; the last two are unlimited by default
                failure_config=FailureConfig(
                    max_failures=0, controller_failure_limit=0, max_preemption_failures=0
                ),
                worker_runtime_env={"env_vars": variables},
            ),
        )

"""One Ray Train run: workers that serve trials, one after the other, until they are told to stop."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from concurrent.futures import Future, wait
from dataclasses import replace
from ipaddress import ip_address
from pathlib import Path
from time import monotonic, sleep
from typing import TYPE_CHECKING, Any, cast

import ray

from raybench.analysis.labels import task_words
from raybench.errors import GroupLostError
from raybench.launch import signals as interrupt
from raybench.launch.liveness import DEATH_NOTICE_S, LOOK_S, await_end, in_thread, is_there
from raybench.launch.mailbox import PostedTrial, new_mailbox
from raybench.launch.nodes import LONGEST_ERROR
from raybench.launch.runtime_env import import_path, own_code_path
from raybench.machine.host import WorkerNeeds
from raybench.machine.network import loopback_interface
from raybench.records.messages import GroupInfo, Message, Outcome, Progress, Ready, Task
from raybench.records.record import State
from raybench.records.requests import TrialRequest
from raybench.worker.failures import chain_of, is_echo, says_out_of_memory

if TYPE_CHECKING:
    from ray.train.torch import TorchTrainer


_ERROR_LINE = re.compile(r"(\w+\.)*\w*(Error|Exception)\b")
_EXIT_DETAIL = re.compile(r"Worker exit detail: (.*?)(?:\. |\.$|\n|$)")


def reason(error: BaseException) -> str:
    """One line: the rank that died first and what became of it, rather than who noticed."""
    failures: dict[int, BaseException] = getattr(error, "worker_failures", None) or {}
    lines = {rank: _line(failure) for rank, failure in sorted(failures.items())}
    telling = {rank: line for rank, line in lines.items() if not is_echo(line)} or lines
    if not telling:
        return _line(error)
    rank, line = next(iter(telling.items()))
    return f"rank {rank}: {line}"


def ran_out_of_memory(error: BaseException) -> bool:
    """Whether Ray's memory monitor ended a worker, or one ended with an error that says so.

    Of a worker's error there may be no more than its text: of that the message counts, not the code that a
    traceback quotes.
    """
    return any(
        isinstance(part, ray.exceptions.OutOfMemoryError | MemoryError) or _says_so(str(part))
        for part in chain_of(error)
    )


def _says_so(text: str) -> bool:
    """Whether the message at the end of an error's text says that memory ran out."""
    message = _message(text) or [""]
    return message[0].split(":")[0].endswith("MemoryError") or says_out_of_memory("\n".join(message))


def _line(error: BaseException) -> str:
    text = str(error)
    died = _EXIT_DETAIL.search(text)
    if died:
        return f"its process died ({died[1]})"
    name, line = type(error).__name__, next(iter(_message(text)), "")
    if not _ERROR_LINE.match(line):
        line = f"{name}: {line}" if line else name
    return line[:LONGEST_ERROR]


def _message(text: str) -> list[str]:
    """The lines of an error's text from the last that names an error; the first where none does."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    errors = [place for place, line in enumerate(lines) if _ERROR_LINE.match(line)]
    return lines[errors[-1] :] if errors else lines[:1]


NODE_LABEL = "ray.io/node-id"  # which Ray gives every node
START_TIMEOUT_S = 180.0  # from an empty machine to workers that answer
DRIVER_GRACE_S = 5.0  # after the workers' own deadline
OTHERS_FAIL_S = 0.5
STOP_S = 5.0
KILL_S = 5.0
LOOK_AGAIN_S = 2.0  # whether the nodes are still there
GLOO_INTERFACE = "GLOO_SOCKET_IFNAME"


class WorkerGroup:
    """One ``TorchTrainer.fit()``, in a thread of its own: the main thread keeps the signals."""

    def __init__(
        self,
        world_size: int,
        environment: dict[str, str],
        number: int,
        *,
        name: str,
        needs: WorkerNeeds,
        storage: Path,
        nodes: Sequence[str] = (),
    ) -> None:
        """Start ``world_size`` workers with the variables of ``environment``; the ``number``-th of ``name``.

        ``nodes``: on which each worker is to stand, by Ray's ids; empty: packed. Raises ``Interrupted``.
        """
        self._needs, self._storage = needs, storage
        self.wants = (world_size, dict(environment))
        self._number, self._num_tasks = number, 0
        self._name = f"{name}-group-{number}"  # in Ray's dashboard
        self.info: GroupInfo  # the workers, once they are ready
        self._pids: list[int] = []  # of the workers on this node
        self._nodes = nodes
        self._posted: tuple[PostedTrial, Task, float]  # of the trial under way, and when it was posted
        self._mailbox: Any = new_mailbox(f"{self._name}-mailbox")
        self._waiting: Any = None
        trainer = self._trainer(world_size, environment)
        interrupt.check()  # a trainer's imports take seconds; its start ends this process where Ray has died
        self._fit: Future[object] = in_thread("raybench-fit", trainer.fit)

    @property
    def alive(self) -> bool:
        """Whether the run goes on."""
        return not self._fit.done()

    @property
    def _error(self) -> BaseException | None:
        """With which the run has ended."""
        return None if self.alive else self._fit.exception()

    def await_ready(self, still_fits: Callable[[], bool] = lambda: True) -> GroupInfo:
        """Wait for the workers. Raises ``GroupLostError`` where they do not answer, or fit no more."""
        deadline = monotonic() + START_TIMEOUT_S
        while self.alive and monotonic() < deadline and still_fits():
            message = self._message(min(deadline, monotonic() + LOOK_AGAIN_S))
            if message is not None and isinstance(message.content, Ready):
                self.info = GroupInfo(message.content.members, self._number)
                here = ray.get_runtime_context().get_node_id()
                self._pids = [member.pid for member in self.info.members if member.node == here]
                return self.info
        interrupt.check()
        late = monotonic() >= deadline
        silent = f"no worker answered in {START_TIMEOUT_S:g} s" if late else "a node is gone"
        why = reason(self._error) if self._error else silent
        self.stop(at_once=True)
        raise GroupLostError(f"the worker group did not start: {why}")

    def post(
        self,
        request: TrialRequest,
        ranks: tuple[int, ...],
        results: Path | None,
        on_progress: Callable[[Progress], None],
    ) -> None:
        """Hand the workers a trial; ``outcome`` waits for its end."""
        self._num_tasks += 1
        task = Task(self._num_tasks, request, ranks, str(results) if results else None)
        self._posted = PostedTrial(task.number, on_progress), task, monotonic()
        self._hand_over(task)

    def _hand_over(self, task: Task) -> None:
        self._mailbox.trial.options(name=task_words(task.request)).remote(task)

    def outcome(self) -> Outcome:
        """How the posted trial ended, and on which ranks. Raises ``GroupLostError`` if it never began."""
        outcome, ranks = self._outcome(), self._posted[1].ranks
        return replace(
            outcome,
            ranks=ranks,
            nodes=self.info.nodes_of(ranks),
            hostnames=tuple(self.info.members[rank].hostname for rank in ranks),
            device_name=", ".join(dict.fromkeys(self.info.members[rank].device_name for rank in ranks)),
            group=self._number,
        )

    def _outcome(self) -> Outcome:
        trial, task, began = self._posted
        timeout_s = task.request.timeout_s
        deadline = began + timeout_s + DRIVER_GRACE_S
        while True:
            message = self._message(deadline)
            if message is None:
                state, reason = self._why_lost(monotonic() - began, timeout_s)
                if not trial.begun:
                    raise GroupLostError(reason)
                return trial.lost(Outcome(state, monotonic() - began, reason, ends_group=True))
            trial.hear(message)
            if trial.failures:  # nobody will bring an outcome of all
                # other ranks fail in the same moment, and may know more of the cause
                deadline = min(deadline, monotonic() + OTHERS_FAIL_S)
                while (message := self._message(deadline)) is not None:
                    trial.hear(message)
            outcome = trial.outcome()
            if outcome is not None:
                return outcome

    def stop(self, *, at_once: bool = False) -> None:
        """End the workers, kindly unless ``at_once``, and wait until their processes are gone.

        Raises ``Interrupted``: whoever ends the run ends them too.
        """
        if self.alive and not at_once:
            self._mailbox.end.remote()
            await_end(self._fit, STOP_S)
        if self.alive:
            self._kill_workers()
            await_end(self._fit, STOP_S)
        gone_by = monotonic() + STOP_S
        while any(map(is_there, self._pids)) and monotonic() < gone_by:
            interrupt.check()
            sleep(0.05)  # Ray may call their cores free while they still run
        interrupt.check()
        ray.kill(self._mailbox)

    def _message(self, deadline: float) -> Message | None:
        """The next message; None when the deadline has passed or the run is over."""
        while True:
            if self._waiting is None:
                self._waiting = self._mailbox.message.remote()
            interrupt.check()
            left = deadline - monotonic()
            # also when it is late: this process may have been stopped, and the mailbox has the outcome
            ready, _ = ray.wait([self._waiting], timeout=LOOK_S)
            if ready:
                waiting, self._waiting = self._waiting, None
                try:
                    return cast(Message, ray.get(waiting))
                except ray.exceptions.RayError:
                    break
            if left <= 0 or not self.alive:
                break
        interrupt.check()  # where Ray itself has died nothing more is asked of it
        return None

    def _why_lost(self, seconds: float, timeout_s: float) -> tuple[State, str]:
        """How the trial ends after ``seconds`` without an outcome, and why."""
        if seconds >= timeout_s:
            return "timeout", f"not done after {timeout_s:g} s"
        await_end(self._fit, DEATH_NOTICE_S)
        if self._error is None:
            return "crashed", "the worker group ended on its own"
        state: State = "oom" if ran_out_of_memory(self._error) else "crashed"
        return state, reason(self._error)

    def abandon(self) -> None:
        """End the workers' processes, whatever they do, and let Ray Train see it and put its own actors away.

        Without that, a cluster that has no dashboard would keep Ray Train's ``PlacementGroupCleaner`` for
        ever: it asks the dashboard whether the driver lives.
        """
        if self._kill_workers():
            wait([self._fit], STOP_S)

    def _kill_workers(self) -> bool:
        """Whether Ray did so in time: a call may wait for the head of the cluster far beyond its limit."""
        return bool(wait([in_thread("raybench-kill", self._kill_each_worker)], KILL_S).done)

    def _kill_each_worker(self) -> None:
        try:
            workers = ray.get(self._mailbox.workers.remote(), timeout=1.0)
        except ray.exceptions.RayError:
            workers = {}
        for worker in workers.values():
            ray.kill(worker)

    def _trainer(self, world_size: int, environment: dict[str, str]) -> TorchTrainer:
        # on a local cluster imported by now, while Ray's processes started
        from ray.train import FailureConfig, RunConfig, ScalingConfig
        from ray.train.torch import TorchConfig, TorchTrainer

        from raybench.launch.gloo import GlooConfig, serve

        cuda = self._needs.device == "cuda"
        per_worker: dict[str, float] = {"CPU": self._needs.cpus}
        if cuda:
            per_worker["GPU"] = 1
        variables = {"OMP_NUM_THREADS": str(self._needs.cpus), **_on_loopback(), **environment}
        return TorchTrainer(
            serve,
            train_loop_config={
                "mailbox": self._mailbox,
                "device": self._needs.device,
                "sys_path": import_path(),
                "own_code": own_code_path(),
            },
            # Ray's own brings torch, and shows each worker the GPUs of its node; its group of all workers is
            # gloo's, as on CPUs: what travels by NCCL has groups of its own
            torch_config=TorchConfig(backend="gloo") if cuda else GlooConfig(),
            scaling_config=ScalingConfig(
                num_workers=world_size,
                use_gpu=cuda,
                resources_per_worker=per_worker,
                label_selector=[{NODE_LABEL: node} for node in self._nodes] or None,
            ),
            run_config=RunConfig(
                name=self._name,
                storage_path=str(self._storage),
                # a silent restart would falsify a timing; the last two are unlimited by default
                failure_config=FailureConfig(
                    max_failures=0, controller_failure_limit=0, max_preemption_failures=0
                ),
                worker_runtime_env={"env_vars": variables},
            ),
        )


def _on_loopback() -> dict[str, str]:
    """gloo's interface where Ray has the loopback address alone: then no worker is on another host.

    gloo would listen at the address that the host's name leads to. What is set already counts.
    """
    here = ip_address(ray.util.get_node_ip_address())
    name = loopback_interface() if here.is_loopback and GLOO_INTERFACE not in os.environ else None
    return {} if name is None else {GLOO_INTERFACE: name}

"""The default runner: Ray Train runs, one after the other, whose workers serve the trials of the study."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from time import monotonic

from raybench.errors import GroupLostError, Interrupted
from raybench.launch import signals
from raybench.launch.cluster import NAME, Cluster
from raybench.launch.worker_group import WorkerGroup
from raybench.machine.host import WorkerNeeds
from raybench.records.messages import GroupInfo, OnProgress, Outcome
from raybench.records.requests import TrialRequest


@dataclass(eq=False)
class RayRunner:
    """What both runners have: a cluster, and what their workers are started with."""

    cluster: Cluster
    needs: WorkerNeeds
    storage: Path
    name: str = NAME  # of the study, where Ray's dashboard shows it
    results: Path | None = None  # the results directory, where rank 0 can write
    wait_s: float = 0.0  # for nodes that are gone and may come back, for places that others use

    def make_room(self, world_size: int) -> float:
        """Connect, and wait for places of ``world_size`` workers; the seconds of the wait.

        Raises ``NoRoomError`` where there are too few.
        """
        self.cluster.connect()
        asked = monotonic()
        self.cluster.await_places(world_size, self.needs, self.wait_s)
        self.cluster.refuse_unplaceable(world_size, self.needs)
        return monotonic() - asked


@dataclass(eq=False)
class WorkerGroupRunner(RayRunner):
    """Implements ``TrialRunner`` on Ray Train's TorchTrainer."""

    def __post_init__(self) -> None:
        self._group: WorkerGroup | None = None
        self._started = 0

    def start(self, world_size: int, environment: dict[str, str], *, anew: bool = False) -> GroupInfo:
        """A running group of exactly this size with these variables; of new processes with ``anew``.

        Raises ``NoRoomError`` where it cannot be placed, ``ClusterBusyError`` where others use the places,
        ``GroupLostError`` where it dies while starting.
        """
        group = self._group
        if not anew and group is not None and group.alive and group.wants == (world_size, environment):
            return group.info
        self._stop_group()
        waited_s, asked = self.make_room(world_size), monotonic()
        self.cluster.await_free(world_size, self.needs, self.wait_s)
        waited_s += monotonic() - asked
        self._started += 1
        # kept before it is ready: an interrupt while it starts must find it, to end it
        self._group = WorkerGroup(
            world_size,
            environment,
            self._started,
            name=self.name,
            needs=self.needs,
            storage=self.storage,
        )
        try:
            return replace(self._group.await_ready(self._still_fits), waited_s=waited_s)
        except GroupLostError:
            self._group = None  # Ray may still try to start it; it must not be taken for a running one
            raise

    def _still_fits(self) -> bool:
        """Whether Ray can still place the group that starts: it waits for ever for a node that is gone."""
        assert self._group is not None
        return sum(self.cluster.places(self.needs).values()) >= self._group.wants[0]

    def run(self, request: TrialRequest, on_progress: OnProgress) -> Outcome:
        """Have the group measure a trial; one that dies under it is an outcome, and is replaced by ``start``.

        Raises ``GroupLostError`` where none is running, or it dies before the trial began.
        """
        group = self._group
        if group is None or not group.alive:
            raise GroupLostError("no worker group is running")
        ranks = group.info.ranks_for(request.config.world_size, request.config.placement)
        group.post(request, ranks, self.results, on_progress)
        try:
            outcome = group.outcome()
        except GroupLostError:
            self._stop_group(at_once=True)
            raise
        if outcome.ends_group or self._stays_profiled(request):  # before anything else is asked of it
            try:
                self._stop_group(at_once=outcome.ends_group)
            except Interrupted as ended:
                signals.ask(ended)  # once the trial is recorded
        return outcome

    def _stays_profiled(self, request: TrialRequest) -> bool:
        """Whether the profiler goes on slowing the processes of this trial.

        On GPUs CUPTI stays attached when torch.profiler has ended: 10 to 20% of a step, says pytorch issue
        144455.
        """
        return self.needs.device == "cuda" and request.kind == "steps" and request.measure.profile

    def close(self) -> None:
        """End the workers and what this process started of Ray."""
        self._stop_group()
        self.cluster.close()

    def abandon(self) -> None:
        """End every process at once, whatever it is doing; afterwards only ``os._exit`` ends this one."""
        group, self._group = self._group, None
        if group is not None and not self.cluster.is_local:
            group.abandon()  # else they would hold a joined cluster's devices until this process is gone
        self.cluster.abandon()

    def _stop_group(self, *, at_once: bool = False) -> None:
        group, self._group = self._group, None
        if group is not None:
            try:
                group.stop(at_once=at_once)
            except Interrupted:
                self._group = group  # for ``abandon``
                raise

"""The default runner: Ray Train runs, one after the other, whose workers serve the trials of the study."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from raybench.errors import GroupLostError
from raybench.launch.cluster import Cluster
from raybench.launch.worker_group import WorkerGroup
from raybench.machine.resources import Resources
from raybench.records.messages import GroupInfo, Outcome, Progress
from raybench.records.requests import TrialRequest


class WorkerGroupRunner:
    """Implements ``TrialRunner`` on Ray Train's TorchTrainer."""

    def __init__(
        self,
        cluster: Cluster,
        *,
        device: str,
        cpus_per_worker: int,
        storage: Path,
        results: Path | None = None,  # the results directory, where rank 0 can write
    ) -> None:
        self._cluster, self._device, self._cpus = cluster, device, cpus_per_worker
        self._storage, self.results = storage, results
        self._group: WorkerGroup | None = None
        self._started = 0

    def resources(self) -> Resources:
        """What the cluster has."""
        return self._cluster.resources()

    def start(self, world_size: int, environment: dict[str, str], *, anew: bool = False) -> GroupInfo:
        """A running group of exactly this size with these variables; of new processes with ``anew``.

        Raises ``RequestError`` where it cannot be placed, ``GroupLostError`` where it dies while starting.
        """
        group = self._group
        if not anew and group is not None and group.alive and group.wants == (world_size, environment):
            return group.info
        self._stop_group()
        self._cluster.connect()
        self._cluster.refuse_unplaceable(world_size)
        self._started += 1
        # kept before it is ready: an interrupt while it starts must find it, to end it
        self._group = WorkerGroup(
            world_size,
            environment,
            self._started,
            device=self._device,
            cpus_per_worker=self._cpus,
            storage=self._storage,
        )
        try:
            return self._group.await_ready()
        except GroupLostError:
            self._group = None  # Ray may still try to start it; it must not be taken for a running one
            raise

    def run(self, request: TrialRequest, on_progress: Callable[[Progress], None]) -> Outcome:
        """Measure one trial; a group that dies under it is an outcome, and is replaced by ``start``.

        Raises ``GroupLostError`` where the group dies before the trial began.
        """
        group = self._group
        if group is None or not group.alive:
            raise GroupLostError("no worker group is running")
        try:
            ranks = group.info.ranks_for(request.config.world_size, request.config.placement)
        except ValueError as error:
            return Outcome("invalid", 0.0, str(error), group=group.info.number)
        try:
            outcome = group.run(request, ranks, self.results, on_progress)
        except GroupLostError:
            self._stop_group(at_once=True)
            raise
        if outcome.ends_group or self._stays_profiled(request):  # before anything else is asked of it
            self._stop_group(at_once=outcome.ends_group)
        return replace(
            outcome,
            ranks=ranks,
            nodes=group.info.nodes_of(ranks),
            device_name=group.info.members[ranks[0]].device_name,
            group=group.info.number,
        )

    def _stays_profiled(self, request: TrialRequest) -> bool:
        """Whether the profiler goes on slowing the processes of this trial.

        On GPUs CUPTI stays attached when torch.profiler has ended: 10 to 20% of a step, says pytorch issue
        144455.
        """
        return self._device == "cuda" and request.kind == "steps" and request.measure.profile

    def close(self) -> None:
        """End the workers and what this process started of Ray."""
        self._stop_group()
        self._cluster.close()

    def abandon(self) -> None:
        """End every process at once, whatever it is doing; afterwards only ``os._exit`` ends this one."""
        self._group = None
        self._cluster.abandon()

    def _stop_group(self, *, at_once: bool = False) -> None:
        group, self._group = self._group, None
        if group is not None:
            group.stop(at_once=at_once)

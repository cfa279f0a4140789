"""The plan of a sweep of collectives: which places are measured on what there is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from raybench.analysis.labels import devices_words
from raybench.errors import RequestError
from raybench.machine.host import Resources
from raybench.plan.make_plan import powers_of_two, refuse_too_many
from raybench.records.requests import CollectivesRequest, Place
from raybench.spec.plural import plural
from raybench.spec.sweep import NodePlacement, Sweep

# Without GPUs' links to each other and memory that they share NCCL has the adapters left.
THROUGH_ADAPTERS = {"NCCL_P2P_DISABLE": "1", "NCCL_SHM_DISABLE": "1"}


@dataclass(frozen=True)
class SweepPlan:
    """A sweep with its world sizes resolved for what there is."""

    sweep: Sweep
    world_sizes: tuple[int, ...]  # ascending
    placements: tuple[NodePlacement, ...]
    device: Literal["cpu", "cuda"]
    num_devices: int
    num_nodes: int = 1

    @property
    def group_size(self) -> int:
        """Workers of the group: the largest world size; every device where some are spread over nodes."""
        is_spread = self.num_nodes > 1 and "spread" in self.placements
        return max(self.sweep.least_workers, self.num_devices if is_spread else 0)

    @property
    def oversubscribed(self) -> bool:
        """Whether the group has more workers than there are devices."""
        return self.group_size > self.num_devices

    @property
    def requests(self) -> tuple[CollectivesRequest, ...]:
        """One for each place, the largest world size first: it is what is asked about most."""
        return tuple(
            CollectivesRequest(
                config=Place(
                    environment=THROUGH_ADAPTERS if self.sweep.loopback_nic else {},
                    world_size=world_size,
                    placement=placement,
                    device=self.device,
                    cpus_per_worker=self.sweep.resources.cpus_per_worker,
                    oversubscribed=self.oversubscribed,
                    seed=self.sweep.seed,
                ),
                collectives=self.sweep.collectives,
                message_bytes=self.sweep.message_bytes,
                measure=self.sweep.measure,
            )
            for world_size in reversed(self.world_sizes)
            for placement in self.placements
        )


def make_sweep_plan(sweep: Sweep, resources: Resources) -> SweepPlan:
    """Resolve ``sweep`` for what there is. Raises ``RequestError`` for what cannot be run there."""
    devices = resources.num_devices
    if sweep.world_sizes == "all":
        sizes = tuple(size for size in powers_of_two(max(devices, resources.num_gpus, 1)) if size > 1)
        if not sizes:
            raise RequestError(f"--world-sizes: two devices or more (received {devices_words(devices)})")
    else:
        sizes = sweep.world_sizes
    refuse_too_many(max(sizes), resources, sweep.resources, "--world-sizes")
    if sweep.loopback_nic and (resources.device == "cpu" or resources.num_nodes > 1):
        there = f"{plural(resources.num_nodes, 'node')}, --device {resources.device}"
        raise RequestError(f"--loopback-nic: of one node of GPUs (received {there})")
    kind = resources.device
    resolved = {"world_sizes": sizes, "resources": sweep.resources.model_copy(update={"device": kind})}
    placements = sweep.placement if resources.num_nodes > 1 else sweep.placement[:1]
    return SweepPlan(sweep.model_copy(update=resolved), sizes, placements, kind, devices, resources.num_nodes)

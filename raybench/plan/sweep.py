"""A sweep of collectives resolved for what there is, and its requests."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, cast

from raybench.analysis.labels import devices_words
from raybench.errors import RequestError
from raybench.machine.host import Resources
from raybench.plan.resolve import powers_of_two, refuse_far_too_many
from raybench.records.requests import CollectivesRequest, Place
from raybench.spec.sweep import NodePlacement, Sweep


@dataclass(frozen=True)
class SweepPlan:
    """A sweep with its world sizes resolved for what there is."""

    sweep: Sweep
    world_sizes: tuple[int, ...]  # ascending
    placements: tuple[NodePlacement, ...]
    num_devices: int
    num_nodes: int = 1

    @property
    def device(self) -> Literal["cpu", "cuda"]:
        """The kind of device."""
        return cast(Literal["cpu", "cuda"], self.sweep.resources.device)

    @property
    def group_size(self) -> int:
        """Workers of the group: the largest world size; every device where some are spread over nodes."""
        everyone = [self.num_devices] if self.num_nodes > 1 and "spread" in self.placements else []
        return max([*self.world_sizes, *everyone])

    @property
    def oversubscribed(self) -> bool:
        """Whether the group has more workers than there are devices."""
        return self.group_size > self.num_devices

    @property
    def places(self) -> tuple[Place, ...]:
        """Where messages go, the largest world size first: it is what is asked about most."""
        return tuple(
            Place(
                world_size=world_size,
                placement=placement,
                device=self.device,
                cpus_per_worker=self.sweep.resources.cpus_per_worker,
                oversubscribed=self.oversubscribed,
                seed=self.sweep.seed,
            )
            for world_size in reversed(self.world_sizes)
            for placement in self.placements
        )

    def request(self, place: Place, part: int, left_s: float) -> CollectivesRequest:
        """The next part of a place's rounds."""
        return CollectivesRequest(
            config=place,
            collectives=self.sweep.collectives,
            message_bytes=self.sweep.message_bytes,
            measure=self.sweep.measure,
            part=part,
            left_s=left_s,
        )

    @property
    def notes(self) -> list[str]:
        """What is not measured as it was asked for."""
        alike = [name for name in self.sweep.placement if name not in self.placements]
        return [
            f"placement {name}: on one node the same as {self.placements[0]}, not measured" for name in alike
        ]


def make_sweep_plan(sweep: Sweep, resources: Resources) -> SweepPlan:
    """Resolve ``sweep`` for what there is. Raises ``RequestError`` for what cannot be run there."""
    devices = resources.num_devices
    if resources.device == "cuda" and not devices:
        raise RequestError("--device: cuda needs GPUs, there are none (received 'cuda')")
    if sweep.world_sizes == "all":
        sizes = tuple(size for size in powers_of_two(max(devices, 1)) if size > 1)
        if not sizes:
            raise RequestError(
                f"--world-sizes: two devices or more to talk to each other ({_there(resources)})"
            )
    else:
        sizes = sweep.world_sizes
    _refuse_too_many(sweep, sizes, resources)
    resolved = {
        "world_sizes": sizes,
        "resources": sweep.resources.model_copy(update={"device": resources.device}),
    }
    placements = sweep.placement if resources.num_nodes > 1 else sweep.placement[:1]
    return SweepPlan(sweep.model_copy(update=resolved), sizes, placements, devices, resources.num_nodes)


def _refuse_too_many(sweep: Sweep, sizes: tuple[int, ...], resources: Resources) -> None:
    if max(sizes) <= resources.num_devices:
        return
    if resources.device == "cuda":
        raise RequestError(
            f"--world-sizes: at most {resources.num_devices}, the GPUs that there are (received {max(sizes)})"
        )
    if not sweep.resources.oversubscribe:
        raise RequestError(
            f"--world-sizes: at most {resources.num_devices}, with {sweep.resources.cpus_per_worker} cores "
            f"for each worker, unless --oversubscribe (received {max(sizes)})"
        )
    refuse_far_too_many(max(sizes), resources.num_devices, "--world-sizes")


def _there(resources: Resources) -> str:
    number = resources.num_devices
    return f"received {devices_words(number)}, all that there {'is' if number == 1 else 'are'}"

"""A sweep of collectives: its plan, and the rounds of every place, in parts that are on disk one by one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol, cast

from raybench.analysis.collectives import seconds_left
from raybench.analysis.labels import devices_words
from raybench.driver.groups import Groups
from raybench.driver.session import Store
from raybench.driver.time_budget import TimeBudget
from raybench.errors import NoRoomError, RequestError
from raybench.launch import signals
from raybench.launch.runner import TrialRunner
from raybench.machine.host import Resources
from raybench.plan.resolve import powers_of_two, refuse_too_many
from raybench.records.messages import Progress
from raybench.records.record import State, TrialRecord
from raybench.records.requests import CollectivesRequest, Place
from raybench.spec.sweep import NodePlacement, Sweep

# Without GPUs' links to each other and memory that they share NCCL has the adapters left.
THROUGH_ADAPTERS = {"NCCL_P2P_DISABLE": "1", "NCCL_SHM_DISABLE": "1"}
PART_SECONDS = 20.0  # of rounds: an interrupt costs no more


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
                environment=THROUGH_ADAPTERS if self.sweep.loopback_nic else {},
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


def make_sweep_plan(sweep: Sweep, resources: Resources) -> SweepPlan:
    """Resolve ``sweep`` for what there is. Raises ``RequestError`` for what cannot be run there."""
    devices = resources.num_devices
    if sweep.world_sizes == "all":
        sizes = tuple(size for size in powers_of_two(max(devices, 1)) if size > 1)
        if not sizes:
            raise RequestError(f"--world-sizes: two devices or more (received {devices_words(devices)})")
    else:
        sizes = sweep.world_sizes
    refuse_too_many(max(sizes), resources, sweep.resources, "--world-sizes")
    if sweep.loopback_nic and resources.device == "cpu":
        raise RequestError(
            "--loopback-nic: of GPUs; gloo's ranks of one node meet in its kernel, which no variable changes "
            "(received --device cpu)"
        )
    if sweep.loopback_nic and resources.num_nodes > 1:
        raise RequestError(
            "--loopback-nic: of one node; between several --placement spread measures their network "
            f"(received {resources.num_nodes} nodes)"
        )
    resolved = {
        "world_sizes": sizes,
        "resources": sweep.resources.model_copy(update={"device": resources.device}),
    }
    placements = sweep.placement if resources.num_nodes > 1 else sweep.placement[:1]
    return SweepPlan(sweep.model_copy(update=resolved), sizes, placements, devices, resources.num_nodes)


class SweepWatcher(Protocol):
    """What follows a sweep: ``commands.communication_run.SweepProgress``, or nothing.

    ``part``: one of a place's rounds begins, ``done`` of ``total`` places came before it. ``part_done``: it
    has ended; ``records`` are all of its place, itself the last.
    """

    def part(self, request: CollectivesRequest, *, done: int, total: int, left_s: float) -> None: ...
    def progress(self, progress: Progress) -> None: ...
    def part_done(self, records: Sequence[TrialRecord]) -> None: ...


@dataclass
class SweepSession:
    """One run of a sweep's plan."""

    plan: SweepPlan
    runner: TrialRunner
    store: Store
    watcher: SweepWatcher
    retry: frozenset[State] = frozenset()  # parts that ended so are measured again
    lost: list[tuple[Place, str]] = field(default_factory=list)  # not measured since nodes are gone, and why

    def __post_init__(self) -> None:
        self._groups = Groups(self.runner, TimeBudget(), self.plan)

    def run(self) -> None:
        """Every place that is not measured yet.

        Raises ``Interrupted``, ``RequestError`` for what cannot be placed or written, ``GroupLostError`` when
        no worker group starts.
        """
        for done, place in enumerate(self.plan.places):
            try:
                self._measure(place, done)
            except NoRoomError as lost:
                self.lost.append((place, str(lost)))

    def _measure(self, place: Place, done: int) -> None:
        """Parts until the place is measured, or one fails: what came before it counts."""
        known = self._known(place)
        while (left_s := self._left_s(known)) > 0:
            request = self.plan.request(place, len(known), min(left_s, PART_SECONDS))
            after_s = sum(self._left_s(self._known(each)) for each in self.plan.places[done + 1 :])
            self.watcher.part(request, done=done, total=len(self.plan.places), left_s=left_s + after_s)
            signals.check()
            outcome, at, _ = self._groups.run(request, self.watcher.progress)
            record = outcome.to_record(request, study=Sweep.name, suggestion=None, started_at=at)
            self.store.append(record)
            known.append(record)
            self.watcher.part_done(known)

    def _known(self, place: Place) -> list[TrialRecord]:
        """The parts of a place that are not measured again."""
        latest, known = self.store.latest(), list[TrialRecord]()
        while (record := latest.get(self.plan.request(place, len(known), 0.0).trial_id)) is not None:
            if record.state in self.retry:
                break
            known.append(record)
        return known

    def _left_s(self, known: Sequence[TrialRecord]) -> float:
        """For the next part after these; 0: the place is measured, or the last one has failed."""
        if known and known[-1].state != "complete":
            return 0.0
        return seconds_left(known, self.plan.sweep.measure, self.plan.device)

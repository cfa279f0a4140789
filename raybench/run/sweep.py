"""A sweep of collectives: the rounds of every place, in parts, each on the disk when the next begins."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Protocol

from raybench.analysis.collectives.stopping import seconds_left
from raybench.errors import NoRoomError
from raybench.launch import signals
from raybench.launch.runner import TrialRunner
from raybench.plan.sweep import SweepPlan
from raybench.records.messages import Progress
from raybench.records.record import State, TrialRecord
from raybench.records.requests import CollectivesRequest, Place
from raybench.run.in_flight import FittingGroup, outcome_of
from raybench.run.ledger import Store
from raybench.spec.counted import counted
from raybench.spec.placement import placement_words

PART_SECONDS = 20.0  # of rounds: an interrupt costs no more


class SweepWatcher(Protocol):
    """Who is told what goes on: ``commands.communication_run.SweepProgress``, or nobody."""

    def stage(self, text: str) -> None:
        """What the sweep is at."""
        ...

    def part(self, request: CollectivesRequest, *, done: int, total: int, left_s: float) -> None:
        """A part of a place's rounds begins; ``done`` of ``total`` places came before it."""
        ...

    def progress(self, progress: Progress) -> None:
        """What it is doing."""
        ...

    def part_done(self, records: Sequence[TrialRecord]) -> None:
        """A part has ended; ``records`` are all of its place, itself the last."""
        ...


@dataclass
class SweepSession:
    """One run of a sweep's plan."""

    plan: SweepPlan
    runner: TrialRunner
    store: Store
    watcher: SweepWatcher
    retry: frozenset[State] = frozenset()  # parts that ended so are measured again
    notes: list[str] = field(default_factory=list)
    _retried: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self._group = FittingGroup(self.runner, self.plan.group_size)

    def run(self) -> None:
        """Every place that is not measured yet.

        Raises ``Interrupted``, ``RequestError`` for what cannot be placed or written, ``GroupLostError`` when
        no worker group starts.
        """
        sweep = self.plan.sweep
        self.watcher.stage(
            f"Sweeping {counted(len(sweep.collectives), 'collective')} over "
            f"{counted(len(sweep.message_bytes), 'size')}"
        )
        for done, place in enumerate(self.plan.places):
            try:
                self._measure(place, done)
            except NoRoomError as lost:
                where = f"{place.world_size} devices, {placement_words(place.placement)}"
                self.notes.append(f"not measured, since nodes are gone: {where} ({lost})")

    def _measure(self, place: Place, done: int) -> None:
        """Parts until the place is measured, or one fails: what came before it counts."""
        measure, known = self.plan.sweep.measure, list[TrialRecord]()
        while (left_s := seconds_left(known, measure, self.plan.device)) > 0:
            request = self.plan.request(place, len(known), min(left_s, PART_SECONDS))
            record = self._known(request)
            if record is None:
                places_after_s = (len(self.plan.places) - done - 1) * measure.max_seconds
                self.watcher.part(
                    request, done=done, total=len(self.plan.places), left_s=left_s + places_after_s
                )
                record = self._measure_part(request)
                known.append(record)
                self.watcher.part_done(known)
            else:
                known.append(record)
            if record.state != "complete":
                return

    def _known(self, request: CollectivesRequest) -> TrialRecord | None:
        """The record of a part that is not to be measured again."""
        known = self.store.latest().get(request.trial_id)
        if known is not None and known.state in self.retry and known.trial_id not in self._retried:
            return None
        return known

    def _measure_part(self, request: CollectivesRequest) -> TrialRecord:
        signals.check()
        self._retried.add(request.trial_id)
        place = request.config
        # few workers are spread over the nodes of all
        least = self.plan.group_size if place.placement == "spread" else place.world_size
        started = datetime.now(UTC).isoformat(timespec="seconds")
        outcome = outcome_of(
            lambda: self._group.start(place.environment, least),
            lambda: self.runner.wait([self.runner.submit(request, self.watcher.progress)]).outcome(),
        )
        record = outcome.to_record(request, study=self.plan.sweep.name, suggestion=None, started_at=started)
        self.store.append(record)
        return record

"""All that the report of a sweep draws, and the one function that makes it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from raybench.analysis.collectives.link import Link, links
from raybench.analysis.collectives.messages import LeftOut, Message, SweptPlace, left_out, messages
from raybench.records.record import TrialRecord
from raybench.spec.sweep import Collective, Sweep


@dataclass(frozen=True)
class SweepResults:
    """A sweep with what its records say; of several records with one id the last is given."""

    sweep: Sweep
    records: tuple[TrialRecord, ...]
    messages: tuple[Message, ...]  # by place, collective and size
    links: tuple[Link, ...]
    left_out: tuple[LeftOut, ...]

    @property
    def places(self) -> tuple[SweptPlace, ...]:
        """Those with numbers, in the order in which they were measured."""
        return tuple(dict.fromkeys(each.place for each in self.messages))

    @property
    def headline(self) -> SweptPlace | None:
        """The place to speak of: the largest world size, of its placements the first."""
        return max(self.places, key=lambda place: place.world_size, default=None)

    @property
    def complete(self) -> tuple[TrialRecord, ...]:
        """The parts with numbers."""
        return tuple(record for record in self.records if record.collectives is not None)

    @property
    def failed(self) -> tuple[TrialRecord, ...]:
        """The parts without."""
        return tuple(record for record in self.records if record.state != "complete")

    def at(self, place: SweptPlace, collective: Collective | None = None) -> tuple[Message, ...]:
        """The messages at a place, of one collective or of all."""
        return tuple(
            each for each in self.messages if each.place == place and collective in (None, each.collective)
        )

    def line(self, place: SweptPlace, collective: Collective) -> Link | None:
        """The line of a collective at a place; None where there are too few messages."""
        found = (each for each in self.links if (each.place, each.collective) == (place, collective))
        return next(found, None)


def analyse_sweep(sweep: Sweep, records: Sequence[TrialRecord]) -> SweepResults:
    """Everything that the records of a sweep say."""
    found = messages(records)
    return SweepResults(sweep, tuple(records), found, links(found), left_out(records))

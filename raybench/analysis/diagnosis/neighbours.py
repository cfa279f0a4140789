"""Configurations that differ in one knob, variable or placement: found without comparing every pair."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence

from raybench.records.record import TrialRecord
from raybench.records.requests import Configuration


class Neighbours:
    """``records``, of one world size and different configurations, by what is left of each without one knob.

    So each is looked for among those that share the rest with it: n records with k neighbours each take n k
    comparisons and not n squared.
    """

    def __init__(self, records: Sequence[TrialRecord]) -> None:
        self._groups: dict[Hashable, list[TrialRecord]] = {}
        # what all have alike need not be left out: no two differ in it
        every = [_knobs(record.config) for record in records]
        self._names = [
            name
            for name in dict.fromkeys(name for knobs in every for name in knobs)
            if len({knobs.get(name) for knobs in every}) > 1
        ]
        for record, knobs in zip(records, every, strict=True):
            for name in self._names:
                for key in self._keys(record.config, knobs, name):
                    self._groups.setdefault(key, []).append(record)

    def of(self, record: TrialRecord) -> Iterator[tuple[str, TrialRecord]]:
        """Those that differ from ``record`` in one change, with its name."""
        knobs, seen = _knobs(record.config), {record.trial_id}
        for name in self._names:
            for key in self._keys(record.config, knobs, name):
                for other in self._groups[key]:
                    if other.trial_id not in seen:
                        seen.add(other.trial_id)
                        yield name, other

    def _keys(self, config: Configuration, knobs: Mapping[str, Hashable], name: str) -> Iterator[Hashable]:
        """What one is that differs in ``name`` alone has too.

        Of a step of a given batch (strong scaling) more accumulation of the same passes is one change.
        """
        yield name, *(knobs.get(each) for each in self._names if each != name)
        if name == "gradient_accumulation" and config.scaling == "strong" and "batch_size" in self._names:
            rest = (knobs.get(each) for each in self._names if each not in (name, "batch_size"))
            yield name, "passes", config.samples_per_pass, *rest


def _knobs(config: Configuration) -> dict[str, Hashable]:
    variables = {f"${name}": value for name, value in config.environment.items()}
    return {**vars(config.setting), **variables, "placement": config.placement}

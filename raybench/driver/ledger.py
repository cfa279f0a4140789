"""What a run plans and knows: its plan, the records on disk, which trials are open, the best so far."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from raybench.analysis import choice
from raybench.analysis.largest_batch import largest_fits_of
from raybench.analysis.objectives import Candidate
from raybench.analysis.reference import known_buckets
from raybench.analysis.resolve import resolve
from raybench.analysis.scaling import alongside
from raybench.plan.trials import Plan, StepsTrials, failing, searched
from raybench.records.messages import BlockStepTimes, RankFile
from raybench.records.record import State, TrialRecord
from raybench.records.requests import COMPARED_ROLES, StudyRequest
from raybench.spec.study import Study


class Store(Protocol):
    """Where records go: ``records.store.ResultsDirectory``, or a list in tests."""

    def append(self, record: TrialRecord, step_times: Sequence[BlockStepTimes] = ()) -> None: ...
    def add_traces(self, trial_id: str, files: Sequence[RankFile]) -> None: ...
    def latest(self) -> dict[str, TrialRecord]: ...  # the record that counts for each trial id


@dataclass
class Ledger:
    """The plan and the records of a study, those of earlier runs among them."""

    plan: Plan  # what "max" stands for is in it once that is found
    store: Store
    retry: frozenset[State] = frozenset()  # trials that ended so are measured again, once
    cut: dict[str, StudyRequest] = field(default_factory=dict)  # trials that the time budget ended, by id
    _begun: set[str] = field(default_factory=set)
    _candidates: dict[str, tuple[TrialRecord, Candidate | None]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._buckets = known_buckets(self.plan.study, self.store.latest().values())

    @property
    def study(self) -> Study:
        """The study, with what is known in the place of "max"."""
        return self.plan.study_in_numbers

    def records(self) -> list[TrialRecord]:
        """The record that counts of each trial, in the order of their first attempts."""
        return list(self.store.latest().values())

    def record_of(self, request: StudyRequest) -> TrialRecord | None:
        """The record that counts of a trial; None where there is none."""
        return self.store.latest().get(request.trial_id)

    def learn_largest_batches(self) -> None:
        """Put what the probes have found in the place of "max"."""
        fits = largest_fits_of(self.plan.study, self.records(), self.plan.world_sizes)
        self.plan = replace(self.plan, fits=tuple(fits))

    def is_open(self, request: StudyRequest) -> bool:
        """Whether the trial is to be measured: it is not known, or ended in a state to try again."""
        known = self.record_of(request)
        return known is None or (known.state in self.retry and known.trial_id not in self._begun)

    def stand_in(self, request: StudyRequest) -> StudyRequest | None:
        """The trial of equal buckets that is measured in the place of ``request``, or to be measured."""
        return self._buckets.stand_in(request)

    def visits(self, winners: Iterable[TrialRecord]) -> StepsTrials:
        """The visits of default and ``winners`` that follow the first; not of what has only failed there."""
        failed = failing(self.records())
        return [each for each in self.plan.visits(winners) if each.request.config not in failed]

    def without_failing_anchor(self, request: StudyRequest) -> StudyRequest:
        """``request``, which tries no anchor where the default has failed: that may end its processes."""
        if request.kind != "steps" or request.role not in COMPARED_ROLES or request.anchor is None:
            return request
        default = self.record_of(self.plan.default_curve()[0].request)
        if default is None or default.steps is not None:
            return request
        return request.model_copy(update={"anchor_failure": f"{default.state}: {default.reason}"})

    def begin(self, request: StudyRequest) -> None:
        """A trial begins: it is tried once in a run."""
        self._begun.add(request.trial_id)
        self.cut.pop(request.trial_id, None)

    def add(self, record: TrialRecord, step_times: Sequence[BlockStepTimes]) -> None:
        """Keep a record."""
        self.store.append(record, step_times)
        self._buckets.learn(record)

    def cut_of(self, requests: Sequence[StudyRequest]) -> list[StudyRequest]:
        """Those that had begun and the time budget ended; what was not begun again since."""
        return [each for each in requests if each.trial_id in self.cut]

    def searched(self) -> list[TrialRecord]:
        """The suggestions of a search that were measured, failed ones included; the default is the first."""
        return searched(self.plan, self.records())

    def best_searched(self) -> list[TrialRecord]:
        """The best suggestion so far, or the Pareto front; each record's value is worked out once."""
        found, tried = [], self.searched()
        default = next((each for each in tried if choice.is_default(self.study, each.config)), None)
        for record in tried:
            known = self._candidates.get(record.trial_id)
            if known is None or known[0] is not record:
                found_there = alongside(record, default) if record.steps else None
                candidate = choice.candidate(self.study, record, found_there) if found_there else None
                known = self._candidates[record.trial_id] = record, candidate
            if known[1] is not None:
                found.append(known[1])
        return [each.record for each in choice.winners(self.study, found)]

    def winners(self) -> list[TrialRecord]:
        """The trials of the best suggestion, or of the Pareto front for several objectives."""
        found = {each.trial_id for each in resolve(self.study, self.records()).winners}
        return [record for record in self.records() if record.trial_id in found]

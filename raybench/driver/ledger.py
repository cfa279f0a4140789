"""What is known of a study and what is open: its plan and its records, those of earlier runs among them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from raybench.analysis.largest_batch import largest_fits_of
from raybench.analysis.reference import known_buckets
from raybench.analysis.resolve import Facts, resolve
from raybench.analysis.scaling import Fit, Scaling
from raybench.machine.environment import Environment
from raybench.plan.trials import Plan
from raybench.records.messages import BlockStepTimes
from raybench.records.record import State, TrialRecord
from raybench.records.requests import COMPARED_ROLES, StudyRequest
from raybench.records.store import ResultsDirectory
from raybench.spec.study import Study


@dataclass
class Ledger:
    """The plan and the records of a study, those of earlier runs among them."""

    plan: Plan  # what "max" stands for is in it once that is found
    store: ResultsDirectory
    retry: frozenset[State] = frozenset()  # trials that ended so are measured again, once in a run
    environment: Environment | None = None  # the machine
    _measured: set[str] = field(default_factory=set)  # ids, in this run

    def __post_init__(self) -> None:
        self._buckets = known_buckets(self.plan.study, self.store.latest().values())

    @property
    def study(self) -> Study:
        """The study, with what is known in the place of "max"."""
        return self.plan.study_in_numbers

    def records(self) -> list[TrialRecord]:
        """The record that counts of each trial, in the order of their first attempts."""
        return list(self.store.latest().values())

    def known(self) -> list[TrialRecord]:
        """Those of trials that are not to be measured again."""
        return [each for each in self.records() if not self.is_open(each.study_request)]

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
        return known is None or (known.state in self.retry and known.trial_id not in self._measured)

    def stand_in(self, request: StudyRequest) -> StudyRequest | None:
        """The trial of equal buckets that is measured in the place of ``request``, or to be measured."""
        return self._buckets.stand_in(request)

    def without_failing_anchor(self, request: StudyRequest) -> StudyRequest:
        """``request``, which tries no anchor where the default has failed: that may end its processes."""
        if request.kind != "steps" or request.role not in COMPARED_ROLES or request.anchor is None:
            return request
        default = self.record_of(self.plan.curve(self.plan.default())[0])
        if default is None or default.steps is not None:
            return request
        return request.model_copy(update={"anchor_failure": f"{default.state}: {default.reason}"})

    def add(self, record: TrialRecord, step_times: Sequence[BlockStepTimes]) -> None:
        """Keep a record."""
        self._measured.add(record.trial_id)
        self.store.append(record, step_times)
        self._buckets.learn(record)

    def facts(self) -> Facts:
        """The records with their estimates, which are those of the report."""
        return resolve(self.study, self.records(), self.environment)

    def scaling(self, record: TrialRecord) -> Scaling | None:
        """How the setting of one of the records scales, by all so far; None without steps."""
        if record.steps is None:
            return None
        spreads = self.environment.spreads if self.environment else None
        return Fit(self.records(), known=spreads).scaling(record)

    def winners(self) -> list[TrialRecord]:
        """The trials of the best suggestion, or of the Pareto front for several objectives."""
        found = {each.trial_id for each in self.facts().winners}
        return [record for record in self.records() if record.trial_id in found]

"""What the diagnosis of one trial may look at, and when a part of its step is worth a finding."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeAlias

from raybench.analysis.findings.finding import Finding, FindingName, Severity
from raybench.analysis.phases import phase_times
from raybench.analysis.scaling import Fit, Scaling
from raybench.analysis.stats.statistics import Estimate, simultaneous
from raybench.analysis.units import baseline_unit, level_unit, plain_unit
from raybench.analysis.waterfall import Parts, Waterfall
from raybench.machine.environment import Environment
from raybench.records.record import TrialRecord
from raybench.records.requests import Configuration
from raybench.records.results import Phase, Round, StepsResult
from raybench.spec.knobs import KnobValue

# A part of less than this share of the step is not worth a finding: studies on CPUs ask for efficiencies to
# 5%, and what is found must be more than what a study is content not to know.
LEAST_SHARE = 0.05
NUM_PARTS = 5  # small batch, contention, wrapper, skew, exposed communication
MUCH = 0.10  # of the step: from here on a finding is a warning


@dataclass(frozen=True)
class Around:
    """What surrounds the trials of a study; empty where not known.

    The machine, what was requested and not measured, and the command that goes on with it.
    """

    environment: Environment | None = None
    goes_on: str = ""
    left_out: tuple[str, ...] = ()  # in words

    @cached_property
    def described(self) -> dict[str, Any]:
        """What environment.json holds."""
        return self.environment.model_dump(mode="json") if self.environment else {}


def _of_batches(config: Configuration) -> Hashable:
    """All that a step on one device alone depends on, but for the batch."""
    return config.key(1, (*config.ANY_WORKLOAD, "batch_size", "world_size", "placement"))


def _sent(config: Configuration, steps: StepsResult) -> Hashable:
    """All that the transfers of a step depend on, but for the number of buckets."""
    setting = config.setting
    how = (setting.strategy, setting.gradient_compression, tuple(config.environment.items()))
    return how, steps.gradient_bytes


@dataclass(frozen=True)
class Case:
    """One complete trial of steps, and the others of its world size and placement."""

    record: TrialRecord
    fit: Fit  # of which its figures are
    there: tuple[TrialRecord, ...] = ()  # itself among them; of several equal ones the first counts
    around: Around = field(default_factory=Around)
    _findings: dict[Rule, Finding | None] = field(default_factory=dict, compare=False, repr=False)

    def finding(self, rule: Rule) -> Finding | None:
        """What a rule finds, worked out once: some look at what others have found."""
        if rule not in self._findings:
            self._findings[rule] = rule(self)
        return self._findings[rule]

    def found(
        self, name: FindingName, severity: Severity, values: Mapping[str, float], **more: Any
    ) -> Finding:
        """A finding on this trial; ``more``: further fields of ``Finding``."""
        return Finding(name, severity, self.record.trial_id, dict(values), step_s=self.step_s, **more)

    def part(
        self,
        name: FindingName,
        part_s: Estimate | None,
        called: str,
        values: Mapping[str, float] | None = None,
        fix: Mapping[str, KnobValue] | None = None,
        **more: Any,
    ) -> Finding | None:
        """A finding that explains a part of the step, if it is notable: a warning from a tenth of it on.

        ``called``: the part among its values, as ``wrapper_s`` and ``wrapper_share``; ``values``: what else
        shows it; ``fix``: a change that takes away this part, or some of it.
        """
        if part_s is None or not self.is_notable(part_s):
            return None
        share = part_s.scaled(1 / self.step_s).value
        every = {f"{called}_s": part_s.value, f"{called}_share": share, **(values or {})}
        severity = Severity.WARNING if part_s.value >= MUCH * self.step_s else Severity.NOTE
        if fix:
            more |= {"change": fix, "predicted": self.without(part_s)}
        return self.found(name, severity, every, explains=part_s, **more)

    @property
    def steps(self) -> StepsResult:
        """What was measured."""
        assert self.record.steps is not None
        return self.record.steps

    @property
    def visits(self) -> tuple[StepsResult, ...]:
        """The trial, and its setting's other visits."""
        others = (each for each in self.fit.visits(self.record) if each is not self.record)
        return self.steps, *(each.steps for each in others if each.steps)

    @property
    def rounds(self) -> tuple[Round, ...]:
        """Those of every visit: of all of them its figures are."""
        return tuple(each for visit in self.visits for each in visit.rounds)

    @cached_property
    def scaling(self) -> Scaling:
        """How its setting scales."""
        return self.fit.figures(self.record)[0]

    @cached_property
    def waterfall(self) -> Waterfall | None:
        """Where the step of its setting goes."""
        return self.fit.figures(self.record)[1]

    @property
    def config(self) -> Configuration:
        """What was trained, and where."""
        return self.record.config

    @property
    def is_cuda(self) -> bool:
        """Whether the devices are GPUs."""
        return self.config.device == "cuda"

    @property
    def step_s(self) -> float:
        """The step time, in s."""
        return self.scaling.step_time_s.value

    @property
    def parts(self) -> Parts:
        """The parts of its step; all None where only the whole was measured."""
        return self.waterfall.parts if self.waterfall else Parts()

    @property
    def samples(self) -> int:
        """Samples of one device in an optimizer step."""
        return self.config.batch_size * self.config.setting.gradient_accumulation

    @property
    def _same_but_batch(self) -> Iterator[TrialRecord]:
        """The trials that differ in the batch only."""
        own = _of_batches(self.config)
        return (each for each in self.there if each.steps is not None and _of_batches(each.config) == own)

    @cached_property
    def alone(self) -> Mapping[int, Estimate]:
        """The step of one device alone by its samples in a step, in s, where it was measured."""
        found, pool = dict[int, Estimate](), self.fit.pool
        for config in (each.config for each in self._same_but_batch):
            samples = config.batch_size * config.setting.gradient_accumulation
            units = {samples: plain_unit(config, config.batch_size)}
            units |= {config.global_batch_size: baseline_unit(config)} if config.scaling == "strong" else {}
            for number, unit in units.items():
                if number not in found and pool.has(unit):
                    found[number] = pool.time(unit)
        return found

    @cached_property
    def replays(self) -> Mapping[int, Estimate]:
        """The transfers of the same bytes alone by their number of buckets, in s, its own among them."""
        found, own, pool = dict[int, Estimate](), _sent(self.config, self.steps), self.fit.pool
        for each in self.there:
            if each.steps is None or not each.steps.bucket_bytes or _sent(each.config, each.steps) != own:
                continue
            if pool.has(replay := level_unit(each.config, self.fit.buckets, "replay")):
                found.setdefault(len(each.steps.bucket_bytes), pool.time(replay))
        return found

    @property
    def larger_batches(self) -> list[float]:
        """Samples/s of trials that differ from it in the batch only, which is larger."""
        rates = dict[int, float]()
        for each in self._same_but_batch:
            found = self.fit.figures(each)[0]
            if found.efficiency is not None:
                rates.setdefault(each.config.batch_size, found.throughput_samples_per_s.value)
        return [rate for batch, rate in rates.items() if batch > self.config.batch_size]

    def phases(self) -> dict[Phase, Estimate]:
        """Its phases, in s; empty where they were not measured."""
        return phase_times(self.record, self.scaling.step_time_s, self.waterfall)

    def is_notable(self, part_s: Estimate | None, least_share: float = LEAST_SHARE) -> bool:
        """Whether a part of the step is a finding: ``least_share`` of it, and certainly more than 0.

        Certainly as one of all the parts that are looked at: a sound step must not be called faulty. For a
        part of a tenth of the step its own interval above 0 is enough, as then the answer names it as well.
        """
        if part_s is None or part_s.value < least_share * self.step_s:
            return False
        if part_s.value >= MUCH * self.step_s:
            return part_s.low > 0
        return simultaneous(part_s, NUM_PARTS).low > 0

    def without(self, part_s: Estimate) -> Estimate:
        """The throughput without a part, over that with it: between nothing gained and all of it."""
        most = self.step_s / max(self.step_s - part_s.high, self.step_s * 0.01)
        return Estimate(most**0.5, 1.0, most, part_s.n)


Rule: TypeAlias = Callable[[Case], Finding | None]

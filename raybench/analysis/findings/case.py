"""What the diagnosis of one trial may look at, and when a part of its step is worth a finding."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Self

from raybench.analysis.collectives import Link, LinkKey
from raybench.analysis.findings.finding import Finding, Kind, Need, Severity
from raybench.analysis.phases import phase_times
from raybench.analysis.resolve import Facts
from raybench.analysis.scaling import Measured, Scaling
from raybench.analysis.simulate.timeline import BucketCap
from raybench.analysis.stats.statistics import Estimate, simultaneous_difference
from raybench.analysis.units import baseline_unit, level_unit, one_device
from raybench.analysis.waterfall import Parts, Waterfall
from raybench.machine.environment import Environment
from raybench.records.record import TrialRecord
from raybench.records.requests import Configuration
from raybench.records.results import Phase, StepsResult

# A part of less than this share of the step is not worth a finding: studies on CPUs ask for efficiencies to
# 5%, and what is found must be more than what a study is content not to know.
LEAST_SHARE = 0.05
NUM_PARTS = 5  # small batch, contention, wrapper, skew, exposed communication
MUCH = 0.10  # of the step: from here on a finding is a warning


@dataclass(frozen=True)
class Around:
    """What surrounds the trials of a study; empty where not known.

    The links of a sweep, the machine, the command that goes on where the study stopped, and
    ``measure.max_seconds`` of the study: a trial that was given less was cut by the time budget.
    """

    links: Mapping[LinkKey, Link] = field(default_factory=dict)
    environment: Environment | None = None
    goes_on: str = ""
    max_seconds: float | None = None


@dataclass(frozen=True)
class Timed:
    """A time of one trial."""

    time_s: Estimate
    record: TrialRecord


@dataclass(frozen=True)
class Replay(Timed):
    """The transfers alone of one trial."""

    num_buckets: int


@dataclass(frozen=True)
class MeasuredBatch:
    """What a trial has, of those that are alike but for the batch."""

    samples: int  # of one device's pass
    knob: int
    efficiency: float
    samples_per_s: float


@dataclass(frozen=True)
class Beside:
    """What the trials of a study at one world size and placement say of each other, worked out once.

    ``alone`` is the step of one device alone by its samples in a step, for trials alike but for the batch;
    ``replays`` are the transfers of trials that send the same bytes, one for each number of buckets.
    """

    alone: Mapping[Hashable, Mapping[int, Timed]] = field(default_factory=dict)
    replays: Mapping[Hashable, tuple[Replay, ...]] = field(default_factory=dict)
    # alike in all but these
    batches: Mapping[Hashable, Sequence[MeasuredBatch]] = field(default_factory=dict)
    records: tuple[TrialRecord, ...] = ()  # all of them
    elsewhere: tuple[TrialRecord, ...] = ()  # of several devices: of all world sizes and placements

    @staticmethod
    def of(
        records: Iterable[TrialRecord], fit: Measured, scaling_of: Callable[[TrialRecord], Scaling]
    ) -> Beside:
        """Of complete trials of steps; of several alike the first counts."""
        records = tuple(records)
        alone: dict[Hashable, dict[int, Timed]] = {}
        replays: dict[Hashable, dict[int, Replay]] = {}
        batches: dict[Hashable, list[MeasuredBatch]] = {}
        for record in records:
            if record.steps is None or record.request.kind != "steps":
                continue
            found = scaling_of(record)
            if found.efficiency is not None:
                knob, rate = int(record.config.setting.batch_size), found.throughput_samples_per_s.value
                measured = MeasuredBatch(record.config.batch_size, knob, found.efficiency.value, rate)
                batches.setdefault(_of_batches(record.config), []).append(measured)
            of_batches = alone.setdefault(_but_for_batch(record.config), {})
            config = record.config
            own = config.batch_size * config.setting.gradient_accumulation
            units = {own: one_device(config, config.batch_size)}
            units |= {config.global_batch_size: baseline_unit(config)} if config.scaling == "strong" else {}
            for samples, unit in units.items():
                if samples not in of_batches and fit.pool.has(unit):
                    of_batches[samples] = Timed(fit.pool.time(unit), record)
            replay, number = level_unit(config, fit.buckets, "replay"), len(record.steps.bucket_bytes)
            if number and fit.pool.has(replay):
                of_bytes = replays.setdefault(_sent(record.config, record.steps), {})
                of_bytes.setdefault(number, Replay(fit.pool.time(replay), record, number))
        sent = {key: tuple(each.values()) for key, each in replays.items()}
        return Beside(alone, sent, batches, records)


def _but_for_batch(config: Configuration) -> Hashable:
    """All that a step on one device alone depends on, but for the batch."""
    others = ("batch_size", "gradient_accumulation", "world_size", "placement")
    return config.key(1, (*config.ANY_WORKLOAD, *others))


def _of_batches(config: Configuration) -> Hashable:
    return _but_for_batch(config), config.setting.gradient_accumulation


def _sent(config: Configuration, steps: StepsResult) -> Hashable:
    """All that the transfers of a step depend on, but for the number of buckets."""
    setting = config.setting
    how = (setting.strategy, setting.gradient_compression, tuple(config.environment.items()))
    return how, steps.gradient_bytes


@dataclass(frozen=True)
class Case:
    """One complete trial of steps; ``beside`` it others at its world size and placement were measured."""

    record: TrialRecord
    steps: StepsResult
    scaling: Scaling
    waterfall: Waterfall | None
    beside: Beside = field(default_factory=Beside)
    around: Around = field(default_factory=Around)
    further: tuple[StepsResult, ...] = ()  # of its setting's other visits
    _found: dict[type[OfTrial], Finding | None] = field(default_factory=dict, compare=False, repr=False)

    def finding(self, kind: type[OfTrial]) -> Finding | None:
        """The finding of a kind on this trial, worked out once: some look at what others have found."""
        if kind not in self._found:
            found = kind.condition(self)
            self._found[kind] = None if found is None else found.finding()
        return self._found[kind]

    @staticmethod
    def of(record: TrialRecord, steps: StepsResult, fit: Measured | None = None) -> Case:
        """A trial by itself, without the study around it."""
        has_step = any(each.block("ddp") or each.block("plain") for each in steps.rounds)
        assert has_step, "a complete trial has steps"
        fit = fit or Measured([record])
        beside = Beside.of([record], fit, fit.scaling)
        return Case(record, steps, fit.scaling(record), fit.waterfall(record), beside)

    @property
    def visits(self) -> tuple[StepsResult, ...]:
        """The trial, and its setting's other visits."""
        return self.steps, *self.further

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
        """The parts of its step; all None where it was not taken apart."""
        return self.waterfall.parts if self.waterfall else Parts()

    @property
    def samples(self) -> int:
        """Samples of one device in an optimizer step."""
        return self.config.batch_size * self.config.setting.gradient_accumulation

    @cached_property
    def alone(self) -> Mapping[int, Timed]:
        """The step of one device alone by its samples in a step, as far as it was measured."""
        return self.beside.alone.get(_but_for_batch(self.config), {})

    @cached_property
    def alone_s(self) -> Mapping[int, Estimate]:
        """The same, in s."""
        return {samples: each.time_s for samples, each in self.alone.items()}

    @property
    def replays(self) -> tuple[Replay, ...]:
        """The transfers of the same bytes alone, its own among them, one for each number of buckets."""
        return self.beside.replays.get(_sent(self.config, self.steps), ())

    @property
    def larger_batches(self) -> list[MeasuredBatch]:
        """Trials that differ from it in the batch alone, which is larger."""
        every = self.beside.batches.get(_of_batches(self.config), ())
        return [each for each in every if each.samples > self.config.batch_size]

    def bucket_caps(self) -> set[BucketCap]:
        """The sizes of buckets that were measured, whatever else those settings have."""
        return {each.config.setting.bucket_cap_mb for each in self.beside.records if each.steps is not None}

    @property
    def lost_s(self) -> Estimate | None:
        """What the step takes beyond the ideal one, in s: T (1 - efficiency)."""
        efficiency = self.scaling.efficiency
        if efficiency is None or self.config.world_size == 1:
            return None
        value, low, high = (
            (1 - end) * self.step_s for end in (efficiency.value, efficiency.high, efficiency.low)
        )
        return Estimate(value, low, high, efficiency.n, efficiency.starts)

    def needs_variants(self, *parts: Estimate | None) -> Need | None:
        """All variants, where one of these parts of a step on several devices is not known."""
        has_parts = self.config.setting.strategy == "ddp" and self.config.world_size > 1
        return Need.VARIANTS if has_parts and None in parts else None

    def phases(self) -> dict[Phase, Estimate]:
        """Its phases, in s; empty where they were not measured."""
        return phase_times(self.record, self.waterfall)

    def is_worth_telling(self, part_s: Estimate | None, least_share: float = LEAST_SHARE) -> bool:
        """Whether a part of the step is a finding: ``least_share`` of it, and certainly more than 0.

        Certainly as one of all the parts that are looked at: a sound step is to be called so. A part of a
        tenth of the step is told where its own interval is above 0, as then it stands in the answer as well.
        """
        if part_s is None or part_s.value < least_share * self.step_s:
            return False
        if part_s.value >= MUCH * self.step_s:
            return part_s.low > 0
        return simultaneous_difference(part_s, NUM_PARTS).low > 0

    def share(self, part_s: Estimate) -> Estimate:
        """A part as a share of the step."""
        return part_s.scaled(1 / self.step_s)

    def severity(self, part_s: Estimate) -> Severity:
        """A warning from a tenth of the step on."""
        return Severity.WARNING if part_s.value >= MUCH * self.step_s else Severity.NOTE


@dataclass(frozen=True)
class OfTrial(Kind):
    """A kind of finding on one complete trial of steps."""

    case: Case

    @classmethod
    @abstractmethod
    def condition(cls, case: Case) -> Self | None:
        """The finding, where the trial has it."""

    @classmethod
    def needs(cls, case: Case) -> Need | None:
        """What is missing to look for it in the trial; None: nothing."""
        return None

    @property
    def whole_s(self) -> float | None:
        return self.case.step_s

    @property
    def trial_id(self) -> str:
        return self.case.record.trial_id


@dataclass(frozen=True)
class PartOfStep(OfTrial):
    """One that explains a part of the step: more of it is more grave."""

    part_s: Estimate

    @property
    def severity(self) -> Severity:
        """A warning from a tenth of the step on."""
        return self.case.severity(self.part_s)

    @property
    def explains(self) -> Estimate | None:
        return self.part_s

    @property
    def share(self) -> Estimate:
        """The part as a share of the step."""
        return self.case.share(self.part_s)

    @property
    def without_it(self) -> Estimate:
        """The throughput without the part, over that with it: between nothing gained and all of it."""
        step_s = self.case.step_s
        most = step_s / max(step_s - self.part_s.high, step_s * 0.01)
        return Estimate(most**0.5, 1.0, most, self.part_s.n)


WORTH_NAMING = 0.01  # of a core
OURS = ("Ray", "raybench", "kernel")  # that cannot be stopped: without them there is no study


def programs_of(steps: StepsResult) -> dict[str, float]:
    """Cores' worth of time by program, of those that took a hundredth of a core, the most first."""
    named = {name: used for name, used in steps.other_programs.items() if used >= WORTH_NAMING}
    return dict(sorted(named.items(), key=lambda one: -one[1]))


def stoppable(steps: StepsResult) -> dict[str, float]:
    """Those that are neither the study's own nor the kernel's."""
    return {name: used for name, used in programs_of(steps).items() if name not in OURS}


@dataclass(frozen=True)
class WholeStudy:
    """A measured study with what is around it; empty where there is nothing of it."""

    results: Facts
    around: Around = field(default_factory=Around)
    left_out: Sequence[str] = ()  # what was asked and not measured, in words


@dataclass(frozen=True)
class OfStudy(Kind):
    """A kind of finding on a study: of several trials, or of none."""

    whole: WholeStudy

    @classmethod
    @abstractmethod
    def condition(cls, whole: WholeStudy) -> list[Self]:
        """Each time that the study has it."""

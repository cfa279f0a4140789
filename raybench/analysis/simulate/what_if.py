"""Step times under changes of one measured trial, with intervals; measured ones in the same table."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy.optimize import nnls

from raybench.analysis import choice
from raybench.analysis.collectives import Link, bus_factor
from raybench.analysis.labels import setting_words
from raybench.analysis.reference import bucket_sizes
from raybench.analysis.resolve import Facts
from raybench.analysis.scaling import Fit
from raybench.analysis.simulate.network import wire_of
from raybench.analysis.simulate.timeline import (
    MOST_SLOWDOWN,
    WAYS,
    BucketCap,
    Compute,
    StepModel,
    assign,
    best_caps,
    compressed_share,
    compute_of,
    factors,
)
from raybench.analysis.stats.rounds import level, series
from raybench.analysis.stats.statistics import Estimate, inverse
from raybench.analysis.units import with_setting
from raybench.errors import RequestError
from raybench.records.record import TrialRecord
from raybench.records.requests import Configuration
from raybench.records.results import GradientTimeline
from raybench.spec.knobs import KnobValue, Setting


@dataclass(frozen=True)
class Change:
    """Values in the place of the trial's own; None: its own."""

    bucket_cap_mb: BucketCap | None = None
    batch_size: int | None = None
    gradient_accumulation: int | None = None
    gradient_compression: str | None = None
    link_bits_per_s: float | None = None

    @property
    def knobs(self) -> dict[str, KnobValue]:
        """Those that are asked for."""
        named = vars(self).items()
        return {name: value for name, value in named if value is not None and name != "link_bits_per_s"}

    def setting(self, of: Setting) -> Setting:
        """The setting of the trial so changed."""
        return of.model_copy(update=self.knobs)

    def words(self, of: Setting) -> str:
        """The change of a trial of ``of``: "5 MiB buckets, 10 Gbit/s"; what is as in ``of`` is left out."""
        setting, rate = self.setting(of), self.link_bits_per_s
        differing = [name for name in self.knobs if name in setting.differences(of)]
        words = [setting_words(setting, differing)] if differing else []
        words += [f"{rate / 1e9:g} Gbit/s"] if rate is not None else []
        return ", ".join(words) or f"as it is ({setting_words(of, self.knobs)})"


@dataclass(frozen=True)
class Rates:
    """What a change is taken to do besides the schedule; alternatives of it make an interval."""

    passes: float  # forward and backward pass, by the batch
    s_per_byte: float | None  # of another link; None: the model's own
    casts: float  # that compressing makes, over copies of the gradients


FIXED_SHARE = 0.2  # of computing, that may not grow with the batch where one batch was measured
# in what configurations may differ whose bare step on one device is that of a batch
ANY_BATCH = ("batch_size", "scaling", "world_size", "placement", "oversubscribed", "seed")


def _passes_of_batch(
    record: TrialRecord, micro_batch: int, fixed_s: float, others: Iterable[TrialRecord]
) -> list[float]:
    """Forward and backward pass at ``micro_batch`` samples, over those of ``record``'s own; then its ends.

    From the steps of one device alone, of which ``fixed_s`` (the optimizer) are none of it, where
    ``others`` have them at a second batch; else in proportion.
    """
    own = record.config.batch_size
    if micro_batch == own:
        return [1.0]
    alone = _alone([record, *others], record.config)
    times = {batch: max(each.value - fixed_s, 0.1 * each.value) for batch, each in alone.items()}
    if own not in times or len(times) == 1:
        factor = micro_batch / own
        half = abs((FIXED_SHARE + (1 - FIXED_SHARE) * factor) / factor - 1)
    else:
        factor = times[micro_batch] / times[own] if micro_batch in times else _line(times, own, micro_batch)
        # what is measured, or between, is known as well as that
        outside = max(min(times) / micro_batch, micro_batch / max(times), 1.0)
        half = outside * max(each.relative_half_width for each in alone.values())
    return [factor, factor * (1 + half), factor * (1 - min(half, 0.9))]


def _line(times: Mapping[int, float], own: int, micro_batch: int) -> float:
    """The line through ``times`` (s by batch; relative least squares) at a batch, over what it is at ``own``.

    Neither the part that does not grow with the batch nor what each sample takes is below 0.
    """
    rows = np.array([[1 / time_s, batch / time_s] for batch, time_s in times.items()])
    (fixed_s, sample_s), _ = nnls(rows, np.ones(len(rows)))
    return float((fixed_s + sample_s * micro_batch) / (fixed_s + sample_s * own))


def _alone(records: Iterable[TrialRecord], config: Configuration) -> dict[int, Estimate]:
    """The step of one device alone by micro-batch, of configurations that compute the same but for it."""
    found: dict[int, Estimate] = {}
    for record in records:
        if record.steps is None or record.config.key(1, ANY_BATCH) != config.key(1, ANY_BATCH):
            continue
        values = series(record.steps, "plain")
        if values is not None:
            found.setdefault(record.config.batch_size, level(values))
    return found


# half an interval, relative: by how much one trial's simulated step over its measured one differs from that
# of another; 95% of 27 differences were below 2.8%, of 29 others those of two models in three below 3%;
# with it 27 of 27 intervals hold (benchmarks/what_if.py, benchmarks/README.md)
MODEL_ERROR = 0.03
CASTS = (2.0, 0.0, 4.0)  # copies of the gradients that compressing takes, and may take instead
PAYLOAD = 1448 / 1514  # of what a link's rate carries: TCP's and Ethernet's headers are the rest
LINK_WITHIN = 0.05  # half the interval of the logarithm of a link's rate


@dataclass(frozen=True)
class Predicted:
    """One change, and what it would bring."""

    change: Change
    words: str
    setting: Setting
    num_buckets: int
    step_time_s: Estimate  # with the interval for a new measurement
    exposed_s: float
    throughput_samples_per_s: Estimate
    gain: Estimate  # of throughput over the trial's own setting, less one
    measured_s: Estimate | None  # the step of that setting, where it was measured

    @property
    def error(self) -> float | None:
        """The predicted step over the measured one, less one."""
        return None if self.measured_s is None else self.step_time_s.value / self.measured_s.value - 1


@dataclass(frozen=True)
class ListedSizes:
    """The best list of bucket sizes, against the best that a single size could do."""

    point: Predicted
    single: BucketCap
    gain: Estimate  # of throughput over ``single``, less one

    @property
    def is_proposed(self) -> bool:
        """Whether it is certainly faster."""
        return self.gain.low > 0


@dataclass(frozen=True)
class WhatIf:
    """Predictions from one trial."""

    record: TrialRecord
    step_time_s: Estimate  # as measured
    simulated_s: float  # before what the simulation misses is carried along
    points: tuple[Predicted, ...]
    listed: ListedSizes | None = None  # one of ``points`` where it is proposed; None: not looked for


def what_if(
    record: TrialRecord,
    changes: Sequence[Change],
    fit: Fit,
    *,
    links: Sequence[Link] = (),
    with_list: bool = False,
) -> WhatIf | None:
    """What ``changes`` of the trial ``record`` would bring; None where it has no gradient timeline.

    ``with_list``: a list of bucket sizes is looked for, and added where it is proposed.

    ``fit`` has the measured steps, its own among them; other trials of it say more of wire and batches, and
    are compared with predicted ones. ``links`` are a sweep's lines. Raises ``RequestError`` for a global
    batch that devices and micro-batches do not divide.
    """
    trial = _Trial.of(record, fit, links)
    if trial is None:
        return None
    listed = trial.listed() if with_list else None
    if listed is not None and listed.is_proposed:
        changes = list(dict.fromkeys([*changes, listed.point.change]))
    return WhatIf(
        record=record,
        step_time_s=trial.step_s,
        simulated_s=trial.bare.simulated_s(record.config.setting.bucket_cap_mb),
        points=tuple(trial.predict(change) for change in changes),
        listed=listed,
    )


def step_models(record: TrialRecord, fit: Fit) -> tuple[StepModel, ...]:
    """Models of the step of ``record``, by its trial and the wire that others show, the reported one first.

    All say of it what was measured. Empty without a timeline.
    """
    trial = _Trial.of(record, fit)
    return () if trial is None else trial.models


def can_be_asked(record: TrialRecord) -> bool:
    """Whether a record has what a prediction from it needs, and a core for each of its workers."""
    is_known = compute_of(record) is not None and wire_of(record) is not None
    return is_known and not record.config.oversubscribed


@dataclass(frozen=True)
class _Trial:
    """A measured trial, and the models that all say of it what was measured."""

    record: TrialRecord
    fit: Fit
    timeline: GradientTimeline
    step_s: Estimate
    bare: StepModel  # as simulated
    models: tuple[StepModel, ...]  # the first is reported, the others are alternatives

    @classmethod
    def of(cls, record: TrialRecord, fit: Fit, links: Sequence[Link] = ()) -> _Trial | None:
        alone, known = compute_of(record), wire_of(record, fit.records, links)
        timeline = record.steps.gradient_timeline if record.steps else None
        if alone is None or known is None or timeline is None:
            return None
        cores, cap = timeline.communication_cores, record.config.setting.bucket_cap_mb
        step_s = fit.scaling(record).step_time_s
        most = step_s.value / alone.compute.step_s  # no step is shorter than the same without transfers
        bare = StepModel(
            alone.compute.scaled(min(1.0, most)),
            timeline.parameter_bytes,
            compressed_share(record.config.setting.gradient_compression, timeline.element_bytes),
            known.wire,
            most_slowdown=MOST_SLOWDOWN if cores is None else min(cores, MOST_SLOWDOWN),
        )
        bent = [replace(bare, wire=wire) for wire in known.bent()]
        bent += [replace(bare, compute=alone.compute.scaled(min(each, most))) for each in factors(alone.half)]
        models = [way(bare, cap, step_s.value) for way in WAYS]
        models += [WAYS[0](model, cap, step_s.value) for model in bent]
        return cls(record, fit, timeline, step_s, bare, tuple(models))

    def predict(self, change: Change) -> Predicted:
        config, first, is_own_link = self.record.config, self.models[0], change.link_bits_per_s is None
        setting = change.setting(config.setting)
        self._check(setting)
        changes, micro_batch = set(setting.differences(config.setting)), config.micro_batch(setting)
        # of each the value taken, then what else it may be
        passes = _passes_of_batch(self.record, micro_batch, first.compute.after_s, self.fit.records)
        links, casts = self._link(change), CASTS if "gradient_compression" in changes else CASTS[:1]
        rates = Rates(passes[0], links[0], casts[0])
        best_s, of_model = self._step_s(first, setting, rates), 0.0
        buckets, own_buckets = (
            assign(self.bare.parameter_bytes, each.bucket_cap_mb) for each in (setting, config.setting)
        )
        if is_own_link and changes <= {"bucket_cap_mb"} and buckets == own_buckets:
            # nothing changes but a cap that no bucket reaches: what was measured is no guess
            best_s = self.step_s.value
        else:
            may_be = [replace(rates, passes=each) for each in passes[1:]]
            may_be += [replace(rates, s_per_byte=each) for each in links[1:]]
            may_be += [replace(rates, casts=each) for each in casts[1:]]
            ends = [self._step_s(model, setting, rates) for model in self.models[1:]]
            ends += [self._step_s(first, setting, each) for each in may_be]
            of_model = math.hypot(MODEL_ERROR, *(math.log(end / best_s) for end in ends))
        of_trials = math.sqrt(2) * self.step_s.log_half_width  # the measured one, and another
        step_s = _within(best_s, math.hypot(of_model, of_trials), self.step_s.n)
        samples = with_setting(config, setting).global_batch_size
        ratio = samples / config.global_batch_size * self.step_s.value / best_s
        gain = _within(ratio, of_model, self.step_s.n)
        return Predicted(
            change=change,
            words=change.words(config.setting),
            setting=setting,
            num_buckets=len(buckets),
            step_time_s=step_s,
            exposed_s=max(best_s - self._changed(first, setting, rates).compute.step_s, 0.0),
            throughput_samples_per_s=inverse(step_s).scaled(samples),
            gain=gain.plus(-1),
            measured_s=self._measured(setting) if is_own_link else None,
        )

    def listed(self) -> ListedSizes | None:
        """The best list of bucket sizes; one that was tested before any other.

        None where DDP does not fill its buckets in the order of a list, or the compiler splits the backward
        pass by the largest size.
        """
        own = self.record.config.setting
        assert self.record.steps is not None
        sizes = bucket_sizes(self.bare.parameter_bytes, own.bucket_cap_mb)
        is_in_order = sizes == self.record.steps.bucket_bytes
        if own.find_unused_parameters or own.static_graph or own.compile or not is_in_order:
            return None
        single, found = best_caps(self.models[0])
        # sizes that were tested in the place of the trial's own, and no other change with them
        config = self.record.config
        tests = (each.config for each in self.fit.records if each.request.role == "verification")
        alone = (each for each in tests if each.differences(config).keys() == {"bucket_cap_mb"})
        cap = next((each.setting.bucket_cap_mb for each in alone if each.setting.has_bucket_list), found)
        logs = [math.log(model.step_s(single) / model.step_s(cap)) for model in self.models]
        of_model = math.hypot(MODEL_ERROR, *(each - logs[0] for each in logs[1:]))
        gain = _within(math.exp(logs[0]), of_model, self.step_s.n)
        return ListedSizes(self.predict(Change(bucket_cap_mb=cap)), single, gain.plus(-1))

    def _check(self, setting: Setting) -> None:
        config, own, passes = self.record.config, self.record.config.setting, setting.gradient_accumulation
        is_own = (setting.batch_size, passes) == (own.batch_size, own.gradient_accumulation)
        if config.scaling == "weak" or is_own or setting.batch_size % (config.world_size * passes) == 0:
            return
        times = f" x {passes} micro-batches" if passes > 1 else ""
        raise RequestError(
            f"batch_size: under strong scaling a multiple of {config.world_size} devices{times} "
            f"(received {setting.batch_size})"
        )

    def _step_s(self, model: StepModel, setting: Setting, rates: Rates) -> float:
        return self._changed(model, setting, rates).step_s(setting.bucket_cap_mb)

    def _changed(self, model: StepModel, setting: Setting, rates: Rates) -> StepModel:
        """``model`` under another ``setting``.

        Forward and backward pass follow the batch; copies and optimizer do not. Of k micro-batches the last
        one's gradients travel, so each further one is time before. Compressing is one more copy of the
        gradients before they are sent, and one when they are back; the step without transfers, from which the
        copies are known, has neither, whatever the trial's own compression.
        """
        own, compute = self.record.config.setting, model.compute
        more = setting.gradient_accumulation - own.gradient_accumulation
        is_first = own.gradient_compression == "none" != setting.gradient_compression
        wire = model.wire
        if rates.s_per_byte is not None:
            wire = replace(wire, s_per_byte=rates.s_per_byte)
        return replace(
            model,
            compute=Compute(
                max(compute.before_s + more * self._micro_batch_s(), 0.0) * rates.passes,
                tuple(ready_s * rates.passes for ready_s in compute.ready_s),
                compute.tail_s * (1 + rates.casts * is_first),
                compute.after_s,
            ),
            bytes_share=compressed_share(setting.gradient_compression, self.timeline.element_bytes),
            wire=wire,
        )

    def _link(self, change: Change) -> list[float | None]:
        """The time for a byte in s of the link in question, then what else it may be; None: its own.

        Whatever held the measured transfers back besides the link may hold them back over a faster one.
        """
        if change.link_bits_per_s is None:
            return [None]
        own, n = self.bare.wire.s_per_byte, self.record.config.world_size
        s_per_byte = bus_factor("all_reduce", n) / (PAYLOAD * change.link_bits_per_s / 8)
        bent = [s_per_byte * each for each in factors(LINK_WITHIN)]
        return [s_per_byte, *bent, *([own] if s_per_byte < own else [])]

    def _micro_batch_s(self) -> float:
        """A micro-batch whose gradients stay, in s: as measured, else the passes without the last copies."""
        compute, timed_s = self.models[0].compute, self.timeline.micro_batch_s
        if timed_s is not None:
            return timed_s * compute.before_s / self.timeline.before_s
        return compute.before_s + compute.ready_s[-1]

    def _measured(self, setting: Setting) -> Estimate | None:
        """The step of ``setting`` at the trial's place, as measured."""
        config = self.record.config
        if setting == config.setting:
            return self.step_s
        place = config.world_size, config.ANY_WORKERS
        asked = with_setting(config, setting).key(*place)
        found = next((each for each in self.fit.records if each.config.key(*place) == asked), None)
        return None if found is None else self.fit.scaling(found).step_time_s


def _within(value: float, half: float, n: int) -> Estimate:
    return Estimate(value, value * math.exp(-half), value * math.exp(half), n)


USUAL_CAPS: tuple[BucketCap, ...] = ("default", 1.0, 5.0, 25.0, 100.0)  # where a study has one


def trial_to_ask(results: Facts) -> TrialRecord | None:
    """The headline, else of the trials that can be predicted from one of the most devices; None without."""
    able = [record for record in results.measured if can_be_asked(record)]
    return max(able, key=lambda each: (each is results.headline, each.config.world_size), default=None)


def study_what_if(results: Facts) -> WhatIf | None:
    """What a trial of the default at the target world size says of the study's buckets; None without one.

    The trial whose figures the report has, else the first that can be predicted from.
    """
    for record in (*results.references, *results.measured):
        there = record.config.world_size == results.target_world_size
        if there and can_be_asked(record) and choice.is_default(results.study, record.config):
            explored = results.study.knobs.explored().get("bucket_cap_mb")
            caps = dict.fromkeys([record.config.setting.bucket_cap_mb, *(explored or USUAL_CAPS)])
            changes = [Change(bucket_cap_mb=cap) for cap in caps]
            return what_if(record, changes, results.fit, with_list=True)
    return None

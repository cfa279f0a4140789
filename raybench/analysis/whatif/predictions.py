"""Step times under changes, from one measured trial, with intervals; measured ones beside them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from raybench.analysis.collectives.link import Link, LinkKey
from raybench.analysis.estimates.efficiency import step_time
from raybench.analysis.estimates.statistics import Estimate
from raybench.analysis.same_setting import same_question, scaling_first
from raybench.analysis.whatif.batches import compute_of_batch
from raybench.analysis.whatif.buckets import BucketCap, assign
from raybench.analysis.whatif.changes import (
    COMPRESSED_BYTES,
    USUAL_BYTES,
    Change,
    ComputeOfBatch,
    Rates,
    changed,
)
from raybench.analysis.whatif.model import (
    MOST_SLOWDOWN,
    WAYS,
    StepModel,
    as_constant,
    compute_of,
)
from raybench.analysis.whatif.schedule import Wire
from raybench.analysis.whatif.shared_cores import SharedCores, shared_cores
from raybench.analysis.whatif.wire import KnownWire, wire_of
from raybench.errors import RequestError
from raybench.records.record import TrialRecord
from raybench.records.requests import Configuration
from raybench.spec.knobs import Setting

# half an interval, relative: by how much one trial's simulated step over its measured one differs from that
# of another; 95% of 27 differences were below 2.8% (benchmarks/what_if.py, benchmarks/README.md)
MODEL_ERROR = 0.03
WORTH_SAYING = 0.05  # of computing or transfers: what bends the prediction by as much is named
CASTS = (0.0, 3.0)  # copies, in place of one, that compressing a bucket may take


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
    notes: tuple[str, ...] = ()

    @property
    def error(self) -> float | None:
        """The predicted step over the measured one, less one."""
        return None if self.measured_s is None else self.step_time_s.value / self.measured_s.value - 1


@dataclass(frozen=True)
class WhatIf:
    """Predictions from one trial."""

    record: TrialRecord
    step_time_s: Estimate  # as measured
    simulated_s: float  # before what the simulation misses is carried along
    wire: KnownWire
    points: tuple[Predicted, ...]
    notes: tuple[str, ...]  # what holds for all of them


def what_if(
    record: TrialRecord,
    changes: Sequence[Change],
    *,
    others: Sequence[TrialRecord] = (),
    measured: Sequence[TrialRecord] = (),
    links: Mapping[LinkKey, Link] | None = None,
) -> WhatIf | None:
    """What ``changes`` of the trial ``record`` would bring; None where it was not taken apart.

    ``others`` may say more of wire and batches, ``links`` are a sweep's lines; ``measured`` is only looked
    at to put measured steps beside predicted ones. Raises ``RequestError`` for a global batch that devices
    and micro-batches do not divide.
    """
    for change in changes:
        _check(record.config, change.setting(record.config.setting))
    compute, wire = compute_of(record), wire_of(record, others, links)
    if compute is None or wire is None:
        return None
    trial = _Trial.of(record, wire)
    return WhatIf(
        record=record,
        step_time_s=trial.step_s,
        simulated_s=trial.bare.schedule(trial.cap).step_s,
        wire=wire,
        points=tuple(trial.predict(change, others, measured) for change in changes),
        notes=trial.notes(),
    )


def _check(config: Configuration, setting: Setting) -> None:
    own, passes = config.setting, setting.gradient_accumulation
    is_own = (setting.batch_size, passes) == (own.batch_size, own.gradient_accumulation)
    if config.scaling == "weak" or is_own or setting.batch_size % (config.world_size * passes) == 0:
        return
    times = f" x {passes} micro-batches" if passes > 1 else ""
    raise RequestError(
        f"batch_size: under strong scaling a multiple of {config.world_size} devices{times} "
        f"(received {setting.batch_size})"
    )


def can_be_asked(record: TrialRecord) -> bool:
    """Whether a record has what a prediction from it needs, and a core for each of its workers."""
    if record.steps is None or record.steps.gradient_timeline is None or record.config.oversubscribed:
        return False
    return compute_of(record) is not None and wire_of(record) is not None


@dataclass(frozen=True)
class _Trial:
    """A measured trial, and the models that all say of it what was measured."""

    record: TrialRecord
    step_s: Estimate
    bare: StepModel  # as simulated
    known: KnownWire
    shared: SharedCores | None  # None: not measured
    drift: float  # half the interval of computing's logarithm, of another trial
    models: tuple[StepModel, ...]  # the first is the one that is told, the others are alternatives
    drifted: tuple[StepModel, ...]  # the first as it may be in another trial: none is what was measured

    @classmethod
    def of(cls, record: TrialRecord, known: KnownWire) -> _Trial:
        alone, measurement = compute_of(record), record.steps
        assert alone is not None
        assert measurement is not None
        timeline = measurement.gradient_timeline
        assert timeline is not None
        cores, shared = timeline.communication_cores, None
        if timeline.contention is not None:
            shared = shared_cores(timeline.contention)
        share = _compressed(record) if record.config.setting.gradient_compression != "none" else 1.0
        most = MOST_SLOWDOWN if cores is None else min(cores, MOST_SLOWDOWN)
        wire, contended = known.wire, list[Wire]()
        if shared is not None:
            most = max(most, shared.computing.high)
            wire = _contended(wire, shared.computing.value, shared.transfers.value)
            contended = [
                _contended(wire, shared.computing.low, shared.transfers.low),
                _contended(wire, shared.computing.high, shared.transfers.high),
            ]
        bare = StepModel(alone.compute, timeline.parameter_bytes, share, wire, most_slowdown=most)
        step_s, cap = step_time(record), record.config.setting.bucket_cap_mb
        told = as_constant if shared is not None else WAYS[0]
        bent = [replace(bare, wire=_contended(each, wire.slowdown, wire.held_back)) for each in known.bent()]
        bent += [replace(bare, wire=each) for each in contended]
        bent += [replace(bare, compute=compute) for compute in alone.bent()]
        ways = [told, *(way for way in WAYS if way is not told)]
        models = [*(way(bare, cap, step_s.value) for way in ways)]
        models += [told(model, cap, step_s.value) for model in bent]
        drifted = [replace(models[0], compute=compute) for compute in alone.drifted()]
        return cls(record, step_s, bare, known, shared, alone.drift, tuple(models), tuple(drifted))

    @property
    def cap(self) -> BucketCap:
        return self.record.config.setting.bucket_cap_mb

    def predict(
        self, change: Change, others: Sequence[TrialRecord], measured: Iterable[TrialRecord]
    ) -> Predicted:
        config = self.record.config
        setting = change.setting(config.setting)
        told = self.models[0]
        at_batch = compute_of_batch(self.record, config.micro_batch(setting), told.compute.after_s, others)
        micro_s = self._micro_batch_s()
        link = self._link(change)
        rates = Rates(
            at_batch.forward,
            at_batch.backward,
            micro_s,
            compressed=_compressed(self.record),
            s_per_byte=link[0] if link else None,
        )
        is_the_same = self._same_buckets(change, setting)  # then what was measured is no guess
        best_s = self.step_s.value if is_the_same else self._step(told, setting, rates)
        ends = [self._step(model, setting, rates) for model in self.models[1:]]
        for factor in (1 + at_batch.half, 1 - min(at_batch.half, 0.9)) if at_batch.half else ():
            other = replace(rates, forward=rates.forward * factor, backward=rates.backward * factor)
            ends.append(self._step(told, setting, other))
        if setting.gradient_compression != config.setting.gradient_compression:
            ends += [self._step(told, setting, replace(rates, cast=cast)) for cast in CASTS]
        ends += [self._step(told, setting, replace(rates, s_per_byte=each)) for each in link[1:]]
        logs = [math.log(end / best_s) for end in ends]
        told_s = self._step(told, setting, rates)
        drift = max(abs(math.log(self._step(each, setting, rates) / told_s)) for each in self.drifted)
        is_own = setting == config.setting and change.link_bits_per_s is None
        of_model = 0.0 if is_the_same else math.hypot(MODEL_ERROR, *logs)
        noise = self.step_s.log_half_width
        # what the simulation misses may be of this one trial, so that there is nothing of it in another
        missed = 0.0 if is_the_same else math.log(self._step(self.bare, setting, rates) / best_s)
        of_trial = math.hypot(math.sqrt(2) * noise, drift, missed)
        step_s = _within(best_s, math.hypot(of_model, of_trial), self.step_s.n)
        samples = self._samples(setting)
        ratio = samples / self._samples(config.setting) * self.step_s.value / best_s
        gain = _within(ratio, of_model, self.step_s.n)
        model = changed(told, config, setting, rates)
        schedule = model.schedule(setting.bucket_cap_mb)
        return Predicted(
            change=change,
            words=change.words(config.setting),
            setting=setting,
            num_buckets=len(schedule.messages),
            step_time_s=step_s,
            exposed_s=max(best_s - model.compute.step_s, 0.0),
            throughput_samples_per_s=Estimate(
                samples / step_s.value, samples / step_s.high, samples / step_s.low, step_s.n
            ),
            gain=Estimate(gain.value - 1, gain.low - 1, gain.high - 1, gain.n),
            measured_s=self.step_s if is_own else self._measured(change, setting, measured),
            notes=self._notes_of(change, setting, at_batch),
        )

    def _same_buckets(self, change: Change, setting: Setting) -> bool:
        """Whether nothing changes but a cap that no bucket reaches."""
        caps = (setting.bucket_cap_mb, self.cap)
        buckets = {assign(self.bare.parameter_bytes, cap) for cap in caps}
        others = set(setting.differences(self.record.config.setting)) - {"bucket_cap_mb"}
        return len(buckets) == 1 and not others and change.link_bits_per_s is None

    def _measured(self, change: Change, setting: Setting, measured: Iterable[TrialRecord]) -> Estimate | None:
        if change.link_bits_per_s is not None:
            return None
        return _measured(self.record.config, setting, measured)

    def notes(self) -> tuple[str, ...]:
        """What holds for every prediction."""
        assert self.record.steps is not None
        found = [f"latency and bandwidth from {self.known.source}"]
        if (
            self.shared is not None
            and max(self.shared.computing.high, self.shared.transfers.high) > WORTH_SAYING
        ):
            found.append(self.shared.words)
        if self.drift > WORTH_SAYING:
            found.append(
                f"computing is known within ±{math.expm1(self.drift):.0%} for another trial: it varied "
                "between rounds, or had moved when it was timed again after them; that is in the interval"
            )
        sizes = [
            sum(self.bare.parameter_bytes[index] for index in each)
            for each in assign(self.bare.parameter_bytes, self.cap)
        ]
        if tuple(sizes) != self.record.steps.bucket_bytes:
            found.append("DDP's own buckets were others than the order of the gradients says: a rough guess")
        return tuple(found)

    def _step(self, model: StepModel, setting: Setting, rates: Rates) -> float:
        return changed(model, self.record.config, setting, rates).step_s(setting.bucket_cap_mb)

    def _link(self, change: Change) -> list[float]:
        """The time for a byte in s of the link that is asked for, then what else it may be; empty: its own.

        Whatever held the measured transfers back beside the link may hold them back over a faster one.
        """
        if change.link_bits_per_s is None:
            return []
        asked = self.known.at_rate(change.link_bits_per_s, self.record.config.world_size)
        s_per_byte, own = asked.wire.s_per_byte, self.known.wire.s_per_byte
        bent = [s_per_byte * math.exp(sign * asked.s_per_byte_half) for sign in (1, -1)]
        return [s_per_byte, *bent, *([own] if s_per_byte < own else [])]

    def _micro_batch_s(self) -> float:
        """A micro-batch whose gradients stay, in s: as measured, else the passes without the last copies."""
        assert self.record.steps is not None
        timeline = self.record.steps.gradient_timeline
        assert timeline is not None
        compute = self.models[0].compute
        if timeline.micro_batch_s is not None:
            return timeline.micro_batch_s * compute.before_s / timeline.before_s
        return compute.before_s + compute.ready_s[-1]

    def _samples(self, setting: Setting) -> float:
        """Of all devices in a step."""
        config = self.record.config
        return config.micro_batch(setting) * config.world_size * setting.gradient_accumulation

    def _notes_of(self, change: Change, setting: Setting, at_batch: ComputeOfBatch) -> tuple[str, ...]:
        own, found = self.record.config.setting, list[str]()
        if at_batch.words:
            found.append(at_batch.words)
        if setting.gradient_compression != own.gradient_compression:
            words = f"{_compressed(self.record):.0%} of the bytes"
            if _element_bytes(self.record) is None:
                words += ", as of fp32: the record does not say in which type gradients are"
            found.append(f"{words}; what compressing costs is assumed (a copy each way, within 0 to 3)")
        if change.link_bits_per_s is not None:
            found.append(
                "the link at its rate less headers, its latency as measured; no other limit is known"
            )
            if self.known.wire.s_per_byte in self._link(change):
                found.append("a faster link may carry no more than was measured: that is in the interval")
        return tuple(found)


def _contended(wire: Wire, slowdown: float, held_back: float) -> Wire:
    return replace(wire, slowdown=slowdown, held_back=held_back)


def _element_bytes(record: TrialRecord) -> int | None:
    """Of one gradient; None: an older record."""
    timeline = record.steps.gradient_timeline if record.steps else None
    return timeline.element_bytes if timeline else None


def _compressed(record: TrialRecord) -> float:
    """Bytes of compressed gradients over those of gradients as they are."""
    return COMPRESSED_BYTES / (_element_bytes(record) or USUAL_BYTES)


def _within(value: float, half: float, n: int) -> Estimate:
    return Estimate(value, value * math.exp(-half), value * math.exp(half), n)


def _measured(config: Configuration, setting: Setting, records: Iterable[TrialRecord]) -> Estimate | None:
    """The step of ``setting`` where ``config`` is, as measured: by the curve before the search."""
    asked = config.model_copy(update={"setting": setting})

    def is_there(record: TrialRecord) -> bool:
        other = record.config
        if record.request.role == "confirmation" or other.setting.batch_size != setting.batch_size:
            return False  # of very many trials most are told apart at once
        same_place = (other.world_size, other.placement) == (config.world_size, config.placement)
        return same_place and same_question(other, asked)

    there = scaling_first(each for each in records if each.steps is not None and is_there(each))
    return step_time(there[0]) if there else None

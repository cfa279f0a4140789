"""``batch_size = "max"``: the largest batch that fits in memory, decided from the probes so far.

A probe is a trial of a few steps at the target world size. A batch fits where its probe completes and no
rank takes more than 90% of its memory. The batch is doubled from the smallest possible one until it does
not fit, then bisected. Up to 64 every number counts; above it multiples of 8, from 1,024 on of the largest
power of two that is at most a 64th of the batch. Under strong scaling the numbers count multiples of the
smallest global batch that divides at every world size, measured or as if.

Pure functions: records in, values out, so that a study that goes on decides as it did before.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from raybench.analysis.reference import grouped
from raybench.records.record import State, TrialRecord
from raybench.spec.knobs import MAX, Knobs, LargestBatch, Setting
from raybench.spec.study import Study

MEMORY_SHARE = 0.9  # of each rank's memory, at most
EXACT_UP_TO, MULTIPLE, RESOLUTION = 64, 8, 64


@dataclass(frozen=True)
class Rules:
    """Between which batches to look."""

    smallest: int  # and what every batch is a multiple of
    most: int
    # Linux gives more memory than there is and then kills: what is predicted not to fit is not tried.
    predicts_memory: bool


@dataclass(frozen=True)
class Probe:
    """One batch that was tried."""

    batch_size: int
    failure: State | None  # None: it fits
    reason: str
    memory_bytes: int | None = None  # of the rank that takes the largest share of its own
    limit_bytes: int | None = None
    fixed_bytes: int | None = None  # of that rank: what does not grow with the batch

    @property
    def share(self) -> float | None:
        """Of the memory, 0 to 1."""
        return self.memory_bytes / self.limit_bytes if self.memory_bytes and self.limit_bytes else None


@dataclass(frozen=True)
class LargestFit:
    """What the probes of one combination of knobs say."""

    setting: Setting  # the combination; its batch is to be left alone
    world_size: int
    batch_size: int | None  # the largest that fits as far as is known; None: none does
    next_batch: int | None  # to try; None: there is nothing more to find out
    is_invalid: bool  # no batch can be had: the data set has no full one for each rank, say
    reason: str  # what the smallest batch says that does not fit


def rules(study: Study, setting: Setting, world_sizes: Sequence[int], device: str) -> Rules:
    """Between which batches to look for a combination of knobs."""
    smallest = 1
    if study.scaling.mode == "strong":
        smallest = math.lcm(*world_sizes, *(study.scaling.as_if or ())) * setting.gradient_accumulation
    return Rules(smallest, study.search.max_batch_size, predicts_memory=device == "cpu")


def probe_of(record: TrialRecord) -> Probe:
    """What a record says of its batch."""
    batch = record.config.setting.batch_size
    if record.probe is None:
        return Probe(batch, record.state, record.reason or record.state)
    taken = record.probe.device_memory_bytes or ()
    limits = record.probe.memory_limit_bytes or ()
    if not taken or len(taken) != len(limits):
        return Probe(batch, None, "")
    fixed = record.probe.fixed_memory_bytes or (None,) * len(taken)
    fullest = max(zip(taken, limits, fixed, strict=True), key=lambda rank: rank[0] / rank[1])
    share = fullest[0] / fullest[1]
    if share <= MEMORY_SHARE:
        return Probe(batch, None, "", *fullest)
    return Probe(batch, "oom", f"it takes {share:.1%} of the memory", *fullest)


def decide(setting: Setting, world_size: int, probes: Iterable[Probe], rules: Rules) -> LargestFit:
    """What to try next, or the answer: the same for the same probes, whatever their order."""
    tried = sorted({probe.batch_size: probe for probe in probes}.values(), key=lambda probe: probe.batch_size)
    fitting = [probe for probe in tried if not probe.failure]
    # a batch that fits above one that did not: that one was tried again (--retry), further up
    above = fitting[-1].batch_size if fitting else 0
    failed = next((probe for probe in tried if probe.failure and probe.batch_size > above), None)
    low = fitting[-1].batch_size // rules.smallest if fitting else 0
    most = _rounded(rules.most // rules.smallest)
    high, reason = most + 1, f"larger ones are not tried ({rules.most:,})"
    if failed is not None:
        high = failed.batch_size // rules.smallest
        reason = f"batch {failed.batch_size:,}: {failed.reason}"
    doubling = failed is None and low < most
    while (candidate := min(max(2 * low, 1), most) if doubling else _between(low, high)) is not None:
        too_large = _too_large(fitting, candidate * rules.smallest) if rules.predicts_memory else ""
        if not too_large:
            break
        high, doubling, reason = candidate, False, too_large
    return LargestFit(
        setting=setting,
        world_size=world_size,
        batch_size=fitting[-1].batch_size if fitting else None,
        next_batch=None if candidate is None else candidate * rules.smallest,
        is_invalid=candidate is None and not fitting and failed is not None and failed.failure == "invalid",
        reason=reason if candidate is None else "",
    )


def _step(number: int) -> int:
    """What a number of this size is a multiple of."""
    if number <= EXACT_UP_TO:
        return 1
    return max(MULTIPLE, 1 << (number // RESOLUTION).bit_length() - 1)


def _rounded(number: int) -> int:
    return number // _step(number) * _step(number)


def _between(low: int, high: int) -> int | None:
    """The middle, rounded; None where nothing lies between."""
    middle = _rounded((low + high) // 2)
    if middle <= low:
        middle = low + _step(low + 1)
    return middle if middle < high else None


def _too_large(fitting: Sequence[Probe], batch_size: int) -> str:
    """Why a batch will not fit, by the largest that does: all but its fixed part grows with the batch."""
    if not fitting or not fitting[-1].memory_bytes or not fitting[-1].limit_bytes:
        return ""
    largest, taken, limit = fitting[-1].batch_size, fitting[-1].memory_bytes, fitting[-1].limit_bytes
    fixed = fitting[-1].fixed_bytes or 0
    share = (fixed + max(taken - fixed, 0) * batch_size / largest) / limit
    too_large = f"batch {batch_size:,}: {share:.1%} of the memory predicted, not tried"
    return too_large if share > MEMORY_SHARE else ""


def largest_fits_of(
    study: Study, records: Iterable[TrialRecord], world_sizes: Sequence[int]
) -> list[LargestFit]:
    """What the probes among ``records`` say, a value for each combination, in the order of the probes."""
    probes = (record for record in records if record.request.kind == "probe")
    groups = grouped(probes, lambda each: each.config.setting.memory_key(each.config.world_size))
    fits = []
    for group in groups.values():
        first = group[0].config
        within = rules(study, first.setting, world_sizes or [first.world_size], first.device)
        fits.append(decide(first.setting, first.world_size, map(probe_of, group), within))
    return fits


def largest_by_setting(
    fits: Iterable[LargestFit], study: Study, world_sizes: Sequence[int], target: int, device: str
) -> LargestBatch:
    """What "max" stands for beside the other knobs of a setting; None where no batch fits.

    A combination that cannot be measured at all has the smallest batch: its trials say why themselves.
    """
    by_key = {each.setting.memory_key(each.world_size): each for each in fits}

    def largest(setting: Setting) -> int | None:
        each = by_key.get(setting.memory_key(target))
        is_invalid = each is not None and each.is_invalid
        if is_invalid or setting.fault(device) is not None:
            return rules(study, setting, world_sizes, device).smallest
        return each.batch_size if each is not None else None

    return largest


def knobs_in_numbers(knobs: Knobs, largest: LargestBatch, fits: Iterable[LargestFit], device: str) -> Knobs:
    """The values with numbers in the place of "max", the default's first in each list.

    ``device`` as for ``Knobs.default``: of the strategies the default's is the first that can be there.
    """
    if not knobs.has_max:
        return knobs
    default = None if knobs.first_that_fits(largest) is None else knobs.default(device, largest)
    batches = [each.batch_size for each in fits if each.batch_size is not None]
    listed = [value for value in knobs.values("batch_size") if value != MAX]
    names = ["batch_size"] if default is None else list(Setting.model_fields)
    update = {}
    for name in names:
        values = [*listed, *batches] if name == "batch_size" else knobs.values(name)
        first = [] if default is None else [getattr(default, name)]
        update[name] = tuple(dict.fromkeys([*first, *values])) or (1,)
    numbers: Knobs = knobs.model_copy(update=update)
    return numbers

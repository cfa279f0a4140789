"""The setting that a study recommends."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from raybench.analysis.choice import is_default
from raybench.analysis.findings.verifications import Verification, Verified
from raybench.analysis.labels import difference_words
from raybench.analysis.objectives import OF_SPEED
from raybench.analysis.resolve import Facts
from raybench.analysis.stats.statistics import Estimate
from raybench.analysis.stats.verdict import Gain, Verdict
from raybench.records.record import TrialRecord
from raybench.records.requests import Configuration

BATCH = {"batch_size", "gradient_accumulation"}  # knobs that change what is learned in a step


Found: TypeAlias = tuple[TrialRecord, bool, Gain | None]  # whether it is faster than the default


@dataclass(frozen=True)
class Recommendation:
    """The setting that a study recommends, at its target world size."""

    config: Configuration
    is_faster: bool  # than the default, as measured
    label: str  # what differs from the default
    is_default: bool
    gain: Gain | None  # over the default, of the setting, or of the best where the default stays
    nodes: int
    threads: int | None  # of torch in each worker; None: left alone, as on GPUs


def recommendation(base: Facts, verified: Sequence[Verification] = ()) -> Recommendation | None:
    """What to use; None where no setting may be advised.

    The simplest setting than which the fastest is not shown to be faster, where it is better than the
    default: a knob that is not shown to add stays at its default, a larger batch above all.
    """
    found = _chosen(base)
    if found is None:
        return None
    record, is_faster, gain = _verified(base, found, verified) or found
    config = record.config
    return Recommendation(
        config=config,
        is_faster=is_faster,
        label=difference_words(base.study, config),
        is_default=is_default(base.study, config),
        gain=gain,
        nodes=record.nodes or 1,
        threads=config.setting.num_threads or (config.cpus_per_worker if config.device == "cpu" else None),
    )


def _chosen(base: Facts) -> Found | None:
    best, default = base.best, base.default
    if best is None:
        headline = base.headline
        return (headline, False, None) if headline and base.is_sound(headline) else None
    if best is default:
        return best, False, None
    gain = base.gain(best)
    if not OF_SPEED.issuperset(base.study.search.objectives):
        return best if base.is_best_better else (default or best), False, gain
    if default not in base.sound or gain is None:
        return best, False, None
    gains = [(each, its) for each in base.sound if (its := base.gain(each)) is not None]
    better = [(each, its.gain.value) for each, its in gains if its.verdict is Verdict.BETTER]
    if better:  # the best need not be among them: less may be known of it
        fastest, _ = max(better, key=lambda one: one[1])
        record = _simplest(base, fastest, [each for each, _ in better], default)
        return record, True, base.gain(record)
    return default, False, gain


def _simplest(
    base: Facts, fastest: TrialRecord, better: Sequence[TrialRecord], default: TrialRecord
) -> TrialRecord:
    """Of ``better``, settings that are better than the default, that with the fewest changes of it.

    Among those than which the fastest of them is not shown to be faster, whichever is asked.
    """
    others = [record for record in better if record is not fastest]
    ratios = base.fit.rate_ratios([(fastest, record) for record in others])
    as_fast = [record for record, ratio in zip(others, ratios, strict=True) if ratio.low <= 1]

    def changes(record: TrialRecord) -> tuple[bool, int, float]:
        names = record.config.differences(default.config)
        rate = base.scaling(record).throughput_samples_per_s.value
        return not BATCH.isdisjoint(names), len(names), -rate

    return min([fastest, *as_fast], key=changes)


def _verified(base: Facts, found: Found, verified: Sequence[Verification]) -> Found | None:
    """The simplest tested change than which the fastest is not shown to be faster; None without one.

    A change is of the headline, so that it is the study's only where that is its default; a better setting it
    replaces only where its whole interval is above.
    """
    headline, (instead, is_faster, gain) = base.headline, found
    if headline is None or not is_default(base.study, headline.config):
        return None
    is_alone = gain is None and not is_default(base.study, instead.config)
    if is_alone or not OF_SPEED.issuperset(base.study.search.objectives):
        return None
    least = gain.gain.high if is_faster and gain is not None else 0.0
    better = {
        each.record.trial_id: (each.record, each.gain)
        for each in verified
        if each.verdict is Verified.CONFIRMED and each.record and each.gain
        if base.is_sound(each.record)
        if each.gain.gain.low > least
    }
    if not better:
        return None
    fastest, _ = max(better.values(), key=lambda one: one[1].gain.value)
    record = _simplest(base, fastest, [each for each, _ in better.values()], headline)
    return record, True, better[record.trial_id][1]


@dataclass(frozen=True)
class DeviceAdvice:
    """Fewer devices that are certainly faster than more with the recommended setting."""

    config: Configuration  # on the fewer
    nodes: int
    more: int  # devices, which are slower
    ratio: Estimate  # of their samples/s over those of the fewer
    is_of_mean: bool = False  # with rare slow steps included: typical steps may be no slower


def device_advice(base: Facts, use: Recommendation | None) -> DeviceAdvice | None:
    """Of the recommended setting: one device rather than several, else the fastest number of several.

    Where one device was not measured with that, the fastest number of devices with the headline's setting.
    """
    asked = headline = base.headline
    if use is not None and not use.is_default:
        asked = base.fit.reference(next(each for each in base.measured if each.config == use.config))
    curve = next((each for each in (asked, headline) if each is not None and _is_over_one(base, each)), None)
    if asked is None or curve is None:
        return None
    fewer, is_own = [each for each in base.references if _is_on_fewer(each, curve)], curve is asked
    if is_own:  # one device is in its scaling
        fewer = [each for each in fewer if _is_over_one(base, each)]
    ratios = base.fit.rate_ratios([(asked, each) for each in fewer])
    fastest, ratio = min(zip(fewer, ratios, strict=True), key=lambda one: one[1].value, default=(asked, None))
    if ratio is None or ratio.value >= 1:
        fastest, ratio = asked, None
    config, found = fastest.config, base.scaling(fastest)
    for speedup in (found.speedup, found.mean_speedup) if is_own else ():
        if speedup is not None and speedup.high < 1:
            alone = config.model_copy(update={"world_size": 1, "setting": config.setting.at(1)})
            return DeviceAdvice(alone, 1, config.world_size, speedup, speedup is not found.speedup)
    if ratio is None or ratio.high >= 1:
        return None
    return DeviceAdvice(config, fastest.nodes or 1, asked.config.world_size, ratio)


def _is_over_one(base: Facts, record: TrialRecord) -> bool:
    return base.scaling(record).one_device is not None and not record.config.oversubscribed


def _is_on_fewer(record: TrialRecord, asked: TrialRecord) -> bool:
    one, other = record.config, asked.config
    is_alone = one.world_size == 1
    same_place = is_alone or one.placement == other.placement or not isinstance(other.placement, str)
    return one.world_size < other.world_size and same_place and one.same_question(other)

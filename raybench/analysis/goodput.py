"""Throughput and what of it is useful: how much a sample of a larger batch teaches."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from raybench.analysis.estimates.noise_scale import efficiency_over_runs
from raybench.analysis.estimates.statistics import Estimate, product, unpaired_ratio
from raybench.analysis.measured import MeasuredStudy
from raybench.records.record import TrialRecord
from raybench.records.requests import Configuration
from raybench.records.trainings import Epoch


@dataclass(frozen=True)
class Goodput:
    """Throughput and what of it is useful, of one measured trial."""

    record: TrialRecord
    throughput_samples_per_s: Estimate
    statistical_efficiency: Estimate  # as sure as the noise scale is known
    goodput_samples_per_s: Estimate  # the uncertainty of both is in it

    def may_equal(self, other: Goodput) -> bool:
        """Whether intervals tell the two not apart; of one global batch the rates do, as both learn alike."""
        one, two = self.goodput_samples_per_s, other.goodput_samples_per_s
        if self.record.config.global_batch_size == other.record.config.global_batch_size:
            one, two = self.throughput_samples_per_s, other.throughput_samples_per_s
        return one.low <= two.high and two.low <= one.high


@dataclass(frozen=True)
class UsedGoodput:
    """What a setting that is recommended for its samples/s does to useful samples/s."""

    used: Goodput
    ratio: Estimate | None  # over the headline's; None: of that it is not known


def used_goodput(
    base: MeasuredStudy, known: Sequence[Goodput], config: Configuration | None
) -> UsedGoodput | None:
    """Of the setting ``config``; None where it has none, or is the headline's."""
    speaks = base.speaker_of(config) if config is not None else None
    if speaks is None or speaks is base.headline:
        return None
    used = next((each for each in known if each.record is speaks), None)
    own = next((each for each in known if each.record is base.headline), None)
    if used is None:
        return None
    return UsedGoodput(used, _over(used, own) if own is not None else None)


def _over(one: Goodput, other: Goodput) -> Estimate:
    """The ratio of useful samples/s; of one global batch that of the rates, as both learn alike."""
    if one.record.config.global_batch_size == other.record.config.global_batch_size:
        return unpaired_ratio(one.throughput_samples_per_s, other.throughput_samples_per_s)
    return unpaired_ratio(one.goodput_samples_per_s, other.goodput_samples_per_s)


def goodput_of(base: MeasuredStudy, reference: int, runs: Sequence[Sequence[Epoch]]) -> list[Goodput]:
    """Of every trial of the curve, by the epochs of the ``runs`` that measured a noise scale."""
    goodputs, known = [], dict[int, Estimate | None]()
    for record in base.by_role("scaling", "search") if runs else ():
        batch = record.config.global_batch_size
        if batch not in known:
            known[batch] = efficiency_over_runs(runs, reference, batch)
        efficiency = known[batch]
        if efficiency is None:
            continue
        rate = base.told[record.trial_id].throughput_samples_per_s
        goodputs.append(Goodput(record, rate, efficiency, product(rate, efficiency)))
    return sorted(goodputs, key=lambda each: (each.record.config.world_size, each.record.config.batch_size))

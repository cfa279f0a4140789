"""Which measurement speaks for a setting: what a report says of it is one figure, wherever it stands.

Of one setting at a world size and place: a trial of the curve, which has all variants, before one of the
search; of the curve's the last one, over all of its starts (``estimates.repeated``). Where there is no curve
of it, a confirmation says how fast the setting is, before the search, whose rounds alone say how it scales:
a confirmation is longer, and had no part in the choice. Of one device beside
several: the rounds of the largest world size of its curve, over which the speed-up is, before a trial of its
own. Of two settings beside each other: the same rounds, of a confirmation before a verification, before two
trials apart. Settings that are the same thing (``same_buckets``) are one.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from raybench.analysis.estimates.efficiency import Gain, Scaling, one_device
from raybench.analysis.estimates.simultaneous import simultaneous_ratio
from raybench.analysis.estimates.statistics import Estimate, inverse
from raybench.analysis.same_buckets import KnownBuckets, one_of_equal
from raybench.analysis.same_setting import between_starts, one_of_each
from raybench.records.record import TrialRecord
from raybench.records.requests import Configuration


def speaking(tried: Iterable[TrialRecord], buckets: KnownBuckets) -> list[TrialRecord]:
    """One of ``tried`` for each setting at its world size and place.

    ``tried`` are complete trials of the curve and of a search, of several starts one.
    """
    listed = list(tried)
    first = one_of_equal(one_of_each(listed, lambda config: config.key(ignore=config.ANY_WORKLOAD)), buckets)
    chosen = {id(record) for record in first}
    return [record for record in listed if id(record) in chosen]


def confirmed_rates(
    tried: Iterable[TrialRecord],
    measured: Iterable[TrialRecord],
    scalings: Mapping[str, Scaling],
    buckets: KnownBuckets,
) -> dict[str, tuple[TrialRecord, Scaling]]:
    """Of trials of a search whose setting was confirmed: the confirmation, and how the setting does by it.

    By the id of the trial of the search, which of ``tried`` speaks for the setting: step time and rates are
    the confirmation's, of those ``measured`` the last; speed-up and efficiency, which it does not measure,
    stay the search's, of whose own rounds they are. ``scalings`` are by trial id.
    """
    confirmations = {
        buckets.key(record.config): record for record in measured if record.request.role == "confirmation"
    }
    found = {}
    for record in tried if confirmations else ():
        by = confirmations.get(buckets.key(record.config)) if record.request.role == "search" else None
        if by is not None:
            again = scalings[by.trial_id]
            found[record.trial_id] = (
                by,
                replace(
                    scalings[record.trial_id],
                    step_time_s=again.step_time_s,
                    throughput_samples_per_s=again.throughput_samples_per_s,
                    throughput_tokens_per_s=again.throughput_tokens_per_s,
                ),
            )
    return found


def one_on_curve(one: TrialRecord, largest: TrialRecord, scalings: Mapping[str, Scaling]) -> Scaling:
    """How one device does, as the curve up to ``largest`` has it; ``one`` is its own trial."""
    return in_whose_rounds(one, largest, scalings)[1]


def in_whose_rounds(
    one: TrialRecord, largest: TrialRecord, scalings: Mapping[str, Scaling]
) -> tuple[TrialRecord, Scaling]:
    """The trial whose rounds speak for one device on the curve up to ``largest``, and how it does there.

    Its own trial, ``one``, where it stands on a device that was asked for: the base of a speed-up stands on
    each in turn. ``scalings`` are by trial id.
    """
    asked_for = not isinstance(one.config.placement, str)
    there = None if asked_for else one_device(largest, scalings[largest.trial_id])
    return (one, scalings[one.trial_id]) if there is None else (largest, there)


@dataclass(frozen=True)
class RateRatio:
    """The throughput of one setting over that of another."""

    ratio: Estimate
    is_paired: bool  # in the same rounds, else by two trials apart


class InSameRounds:
    """The settings that were measured against each other in the same rounds."""

    def __init__(self, buckets: KnownBuckets, gains: Iterable[tuple[TrialRecord, Gain]] = ()) -> None:
        """``gains``: what a trial says of its setting over that of ``versus``; of several alike the first."""
        self._buckets = buckets
        self._ratios: dict[tuple[Hashable, Hashable], Estimate] = {}
        for record, found in gains:
            request, config = record.request, record.config
            if request.kind != "steps" or request.versus is None:
                continue
            other = config.model_copy(update={"setting": request.versus})
            one = found.gain
            ratio = Estimate(one.value + 1, one.low + 1, one.high + 1, one.n, one.starts)
            self._ratios.setdefault((buckets.key(config), buckets.key(other)), ratio)

    def __bool__(self) -> bool:
        """Whether there are any."""
        return bool(self._ratios)

    def ratio(self, one: Configuration, other: Configuration) -> Estimate | None:
        """The throughput of ``one`` over that of ``other``; None where they did not share rounds.

        Its interval is that of the trial: it was measured after the two were chosen, so that the choice,
        among however many, is no part of it.
        """
        if not self:
            return None
        mine, theirs = self._buckets.key(one), self._buckets.key(other)
        found, turned = self._ratios.get((mine, theirs)), self._ratios.get((theirs, mine))
        return found or (inverse(turned) if turned is not None and turned.low > 0 else None)


def rate_ratio(
    one: TrialRecord,
    other: TrialRecord,
    scalings: Mapping[str, Scaling],
    in_same_rounds: InSameRounds,
    among: int,
) -> RateRatio:
    """The throughput of one trial's setting over that of another's, as one of ``among`` such ratios."""
    paired = in_same_rounds.ratio(one.config, other.config)
    if paired is not None:
        return RateRatio(paired, is_paired=True)
    rates: Sequence[Estimate] = [scalings[each.trial_id].throughput_samples_per_s for each in (one, other)]
    apart = between_starts(one, other)
    return RateRatio(simultaneous_ratio(rates[0], rates[1], among, apart), is_paired=False)

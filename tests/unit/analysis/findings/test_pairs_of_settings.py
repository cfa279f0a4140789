"""Of many settings those that are better are found as by looking at every pair."""

from __future__ import annotations

import itertools
import random
from typing import Any

import pytest

from raybench.analysis.findings import configurations
from raybench.analysis.findings.configurations import better_settings
from raybench.analysis.resolve import resolve
from raybench.analysis.stats.pool import Spreads
from raybench.analysis.stats.verdict import Verdict
from raybench.records.record import TrialRecord
from raybench.spec import Setting
from tests.support.planted import QUIET, FakeRunner, Noise, StepCosts, run_all
from tests.unit.studies import asked, study, with_anchor

KNOBS: dict[str, list[Any]] = {
    "batch_size": [32, 64, 128, 256, 512],
    "bucket_cap_mb": ["default", 1, 5],
    "gradient_accumulation": [1, 2, 4],
    "gradient_as_bucket_view": [False, True],
}
SPEC = study(knobs=KNOBS, search={"method": "optuna", "trials": 90})


def test_what_is_better_is_found_as_by_every_pair() -> None:
    settings = [Setting(**dict(zip(KNOBS, v, strict=True))) for v in itertools.product(*KNOBS.values())]
    requests = [asked(SPEC, "search", setting, 2) for setting in settings]
    records, _ = run_all(FakeRunner(noise=Noise(block=0.02), seed=2), requests, SPEC.name)
    draw = random.Random(3)
    records = [each.model_copy(update={"group": draw.choice([1, 1, 2])}) for each in records]
    results = resolve(SPEC, records)
    found, every = better_settings(results), list(results.compared)
    assert sum(map(len, found.values())) > 100

    def efficiency(record: TrialRecord) -> float:
        known = results.scaling(record).efficiency
        return known.value if known else 0.0

    every.sort(key=efficiency, reverse=True)
    least, looked_at = 1 + SPEC.search.minimum_gain, [*every, *filter(None, [results.headline])]
    pairs = [
        (other, one) for one in looked_at for other in every if efficiency(other) >= least * efficiency(one)
    ]
    best: dict[str, dict[frozenset[str], float]] = {each.trial_id: {} for each in every}
    efficiencies, rates = results.fit.efficiency_ratios(pairs), results.fit.rate_ratios(pairs)
    for (other, one), ratio, rate in zip(pairs, efficiencies, rates, strict=True):
        if min(ratio.low, rate.low) > 1:
            names = frozenset(other.config.differences(one.config))
            best[one.trial_id][names] = max(best[one.trial_id].get(names, 0.0), ratio.value)
    told = {
        name: {frozenset(each.changes): each.efficiency_ratio.value for each in changes}
        for name, changes in found.items()
    }
    assert told == best


@pytest.mark.parametrize("is_anchored", [True, False])
def test_an_anchor_tells_settings_apart_that_trials_on_their_own_leave_open(is_anchored: bool) -> None:
    """A tenth is more than rounds leave open, and less than what trials differ by."""
    costs = {cap: StepCosts(plain_s=0.01, exposed_s=exposed) for cap, exposed in ((25, 0.004), (1, 0.0027))}
    spec = study(knobs={"bucket_cap_mb": [25, 1]})
    slow, fast = (Setting(batch_size=32, bucket_cap_mb=cap) for cap in (25, 1))
    runner = FakeRunner(lambda config, setting: costs[setting.bucket_cap_mb], QUIET)
    measuring = [asked(spec, "scaling", setting, 2, variants=("ddp",)) for setting in (slow, fast)]
    measuring[1] = with_anchor(measuring[1], slow) if is_anchored else measuring[1]
    known = Spreads(0.10, 0.01, 0.10, 0.01)
    (gain,) = resolve(spec, run_all(runner, measuring, spec.name)[0], known).gains.values()
    assert (gain.verdict is Verdict.BETTER) is is_anchored


def test_of_very_many_settings_the_most_efficient_and_the_headline_are_compared(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    settings = [Setting(**dict(zip(KNOBS, v, strict=True))) for v in itertools.product(*KNOBS.values())]
    requests = [asked(SPEC, "search", setting, 2) for setting in settings]
    records, _ = run_all(FakeRunner(seed=2), requests, SPEC.name)
    results = resolve(SPEC, records)
    every = better_settings(results)
    monkeypatch.setattr(configurations, "MOST_COMPARED", 10)
    some = better_settings(results)
    assert list(some) == list(every)
    assert results.headline
    looked_at = {*list(every)[:10], results.headline.trial_id}
    assert {name for name, found in some.items() if found} <= looked_at
    assert some[results.headline.trial_id]

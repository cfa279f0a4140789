"""Of many settings those that are better are found as by looking at every pair."""

from __future__ import annotations

import itertools
import random
from typing import Any

import pytest

from raybench.analysis.findings import configurations
from raybench.analysis.findings.configurations import better_settings, compared
from raybench.analysis.reference import InSameRounds
from raybench.analysis.resolve import resolve
from raybench.analysis.stats.statistics import Estimate
from raybench.analysis.stats.verdict import Gain, Verdict
from raybench.spec import Setting
from tests.support.planted import FakeRunner, Noise, StepCosts, run_all
from tests.unit.studies import asked, study

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
    found, every = better_settings(results), compared(results)
    assert sum(map(len, found.values())) > 100
    pairs = configurations._Pairs(results, InSameRounds(results.buckets), every)
    for record in compared(results):
        others = [other for other in records if other.trial_id != record.trial_id]
        changes = [configurations._change(pairs, record, other) for other in others]
        least = 1 + SPEC.search.minimum_gain
        best: dict[frozenset[str], float] = {}
        for change in changes:
            if change is not None and change.efficiency_ratio.value >= least:
                names = frozenset(change.changes)
                best[names] = max(best.get(names, 0.0), change.efficiency_ratio.value)
        told = {frozenset(each.changes): each.efficiency_ratio.value for each in found[record.trial_id]}
        assert told == best


def test_what_shared_rounds_is_looked_at_though_two_trials_apart_do_not_tell_it_apart() -> None:
    """Measured apart the rates do not differ for sure; in the same rounds they do."""
    costs = {cap: StepCosts(plain_s=0.01, exposed_s=exposed_s) for cap, exposed_s in ((25, 0.01), (1, 0.006))}
    drifting = Noise(block=0.005, drift_per_minute=12.0)  # which a round shares, and two trials do not
    spec = study(knobs={"bucket_cap_mb": [25, 1]})
    settings = [Setting(batch_size=32, bucket_cap_mb=cap) for cap in (25, 1)]
    runner = FakeRunner(lambda config, setting: costs[setting.bucket_cap_mb], drifting)
    records, _ = run_all(runner, [asked(spec, "scaling", setting, 2) for setting in settings], spec.name)
    results = resolve(spec, records)
    slow, fast = sorted(compared(results), key=lambda each: -each.config.setting.bucket_cap_mb)
    gain = Estimate(0.4, 0.3, 0.5, 10)
    apart = better_settings(results, InSameRounds(results.buckets))
    request = fast.request.model_copy(update={"anchor": slow.config.setting})
    paired = [(fast.model_copy(update={"request": request}), Gain(gain, Verdict.BETTER))]
    together = better_settings(results, InSameRounds(results.buckets, paired))
    assert apart[slow.trial_id] == ()
    assert [each.trial_id for each in together[slow.trial_id]] == [fast.trial_id]


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
    assert some == {name: found if name in looked_at else () for name, found in every.items()}
    assert some[results.headline.trial_id]

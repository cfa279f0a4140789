"""Which setting is recommended, and of which knobs a framework is told."""

from __future__ import annotations

from typing import Any

import pytest

from raybench.analysis.findings.finding import FindingName
from raybench.analysis.findings.verifications import verifications
from raybench.analysis.recommendation import Recommendation, recommendation
from raybench.analysis.resolve import resolve
from raybench.analysis.stats.verdict import Verdict
from raybench.records.results import LossParity
from raybench.spec.knobs import KnobValue, Setting
from tests.support.analysis import analyse
from tests.support.planted import QUIET, FakeRunner, Noise, StepCosts, run_all
from tests.unit.studies import asked, grid, searched, slowed, study, with_anchor

KNOBS = {"batch_size": 64, "bucket_cap_mb": ["default", 1, 50]}
SPEC = study(knobs=KNOBS, search={"method": "optuna", "trials": 3})
WINNER = Setting(batch_size=64, bucket_cap_mb=50)


def found(gain: float, *, visits: int = 3, noise: Noise = QUIET, spec: Any = SPEC) -> Recommendation:
    """With 50 MiB buckets a step takes ``1 / (1 + gain)`` of the time."""

    def costs(request: Any, setting: Setting) -> StepCosts:
        faster = 1 + gain if setting.bucket_cap_mb == 50 else 1.0
        return StepCosts(plain_s=0.007, exposed_s=0.010 / faster - 0.007)  # one device has no buckets

    records = searched(spec, (1, 2), WINNER, FakeRunner(costs, noise, seed=2), visits)
    said = analyse(spec, records).recommendation
    assert said is not None
    return said


def test_a_setting_that_is_better_is_recommended_with_its_gain() -> None:
    said = found(0.25)
    assert (said.is_faster, said.config.setting) == (True, WINNER)
    assert not said.is_default
    assert said.gain is not None
    assert said.gain.gain.value == pytest.approx(0.25, abs=0.01)
    assert said.gain.gain.low > 0
    assert said.gain.verdict is Verdict.BETTER


def test_a_best_that_may_be_no_better_leaves_the_default_and_says_what_would_tell() -> None:
    said = found(0.01, visits=1, noise=Noise(block=0.03))
    assert said.is_default
    assert said.config.setting.bucket_cap_mb == "default"
    if said.gain is not None:  # else the default itself looked fastest
        assert not said.is_faster
        assert said.gain.gain.low <= 0 <= said.gain.gain.high
        assert said.gain.to_tell is None or said.gain.to_tell > 1


def test_the_best_that_is_the_default_is_said_to_be() -> None:
    said = found(-0.25)
    assert (said.is_default, said.is_faster) == (True, False)


def test_a_best_of_which_little_is_known_hides_no_setting_that_is_better() -> None:
    step_s = {"default": 0.010, 1: 0.008, 50: 0.0012}

    def costs(request: Any, setting: Setting) -> StepCosts:
        return StepCosts(plain_s=0.001, exposed_s=step_s[setting.bucket_cap_mb] - 0.001)

    records = searched(SPEC, (1, 2), Setting(batch_size=64, bucket_cap_mb=1), FakeRunner(costs, QUIET))
    records = [
        slowed(each, range(0, 10, 2), 16.0, "ddp") if each.config.setting == WINNER else each
        for each in records
    ]
    results = analyse(SPEC, records)
    assert results.best is not None
    assert results.best.config.setting == WINNER
    gain, said = results.gain(results.best), results.recommendation
    assert gain is not None
    assert gain.verdict is Verdict.UNKNOWN
    assert said is not None
    assert (said.is_faster, said.config.setting.bucket_cap_mb) == (True, 1)


def test_a_knob_that_is_not_shown_to_add_stays_at_its_default() -> None:
    """A batch of 128 is half as fast again, the buckets bring nothing: the batch alone is recommended."""
    spec = study(knobs={"batch_size": [32, 128], "bucket_cap_mb": ["default", 5]})

    def costs(request: Any, setting: Setting) -> StepCosts:
        luck = 0.999 if setting.bucket_cap_mb == 5 else 1.0
        return StepCosts(
            plain_s=luck * 0.01 * setting.batch_size / 32 / (1.5 if setting.batch_size > 32 else 1)
        )

    results = analyse(spec, grid(spec, (1, 2), FakeRunner(costs, QUIET))[0])
    said = results.recommendation
    assert said is not None
    assert results.best is not None
    assert results.best.config.setting == Setting(batch_size=128, bucket_cap_mb=5)
    assert said.config.setting == Setting(batch_size=128)


@pytest.mark.parametrize("objectives", [["efficiency"], ["efficiency", "throughput"]])
def test_by_other_objectives_too_the_default_stays_unless_another_is_better(objectives: list[str]) -> None:
    """Of equal settings one has the largest mean, by chance."""
    spec = study(knobs=KNOBS, search={"method": "optuna", "trials": 3, "objectives": objectives})
    equal, better = found(0.0, noise=Noise(block=0.03), spec=spec), found(0.25, spec=spec)
    assert (equal.is_default, better.is_default) == (True, False)
    assert not equal.is_faster
    assert not better.is_faster  # which is said of speed alone


def test_without_a_choice_what_was_measured() -> None:
    spec = study(knobs={"batch_size": 64})
    one = analyse(spec, grid(spec, (1, 2))[0]).recommendation
    assert one is not None
    assert (one.is_faster, one.config.world_size, one.config.setting.batch_size) == (False, 2, 64)
    assert analyse(spec, []).recommendation is None


def test_more_workers_than_cores_recommend_nothing() -> None:
    spec = study(knobs={"batch_size": 64})
    records = [
        each.model_copy(
            update={
                "request": each.request.model_copy(
                    update={"config": each.request.config.model_copy(update={"oversubscribed": True})}
                )
            }
        )
        for each in grid(spec, (2,))[0]
    ]
    assert analyse(spec, records).recommendation is None


@pytest.mark.parametrize(
    ("batch_adds", "expected"), [(1.002, {"static_graph": True}), (1.3, {"batch_size": 128})]
)
def test_of_tested_changes_the_simplest_that_is_as_good(
    batch_adds: float, expected: dict[str, KnobValue]
) -> None:
    """Twice the batch learns otherwise: it is recommended only where it is shown to be faster."""
    spec, default = study(knobs={"batch_size": [64]}), Setting(batch_size=64)
    changed = [default.model_copy(update=each) for each in ({"batch_size": 128}, {"static_graph": True})]

    def costs(request: Any, setting: Setting) -> StepCosts:
        a_sample = (2.0 if setting == default else 1.0) / (batch_adds if setting.batch_size > 64 else 1.0)
        return StepCosts(plain_s=1e-4 * setting.batch_size, exposed_s=1e-4 * setting.batch_size * a_sample)

    testing = [with_anchor(asked(spec, "verification", each, 2), default) for each in changed]
    requests = [asked(spec, "scaling", default, 2), *testing]
    facts = resolve(spec, run_all(FakeRunner(costs, QUIET), requests)[0])
    said = recommendation(facts, verifications(facts, []))
    assert said is not None
    assert said.is_faster
    assert said.config.differences(requests[0].config) == expected


WRONG = LossParity(samples_per_step=128, losses=(2.3, 2.9), reference_losses=(2.3, 2.1))


@pytest.mark.parametrize(
    ("wrong", "expected"),
    [
        ([], (True, "fsdp", 32)),
        (["fsdp"], (True, "ddp", 64)),
        (["ddp"], (False, "fsdp", 32)),  # the default's figures are nothing to compare with
        (["ddp", "fsdp"], None),
    ],
)
def test_a_setting_whose_losses_are_wrong_is_a_finding_and_not_recommended(
    wrong: list[str], expected: tuple[bool, str, int] | None
) -> None:
    """FSDP is fastest, and a batch of 64 second."""
    spec = study(knobs={"batch_size": [32, 64], "strategy": ["ddp", "fsdp"]})

    def costs(request: Any, setting: Setting) -> StepCosts:
        told = {"parity": WRONG} if request.world_size > 1 and setting.strategy in wrong else {}
        plain_s = 0.010 if setting.batch_size == 32 else 0.022
        exposed_s = 0.001 if setting.strategy == "fsdp" else 0.012
        return StepCosts(plain_s=plain_s, exposed_s=exposed_s, of_result=told)

    results = analyse(spec, grid(spec, (1, 2), FakeRunner(costs, QUIET))[0])
    said, asked_of = results.recommendation, {each.trial_id: each.config for each in results.compared}
    chosen = (said.is_faster, said.config.setting.strategy, said.config.batch_size) if said else None
    assert chosen == expected
    first = results.diagnosis[: 2 * len(wrong)]
    assert {each.name for each in first} == ({FindingName.LOSSES_DISAGREE} if wrong else set())
    told = [(asked_of[each.trial_id].setting.strategy, asked_of[each.trial_id].batch_size) for each in first]
    assert sorted(told) == [(strategy, batch) for strategy in wrong for batch in (32, 64)]

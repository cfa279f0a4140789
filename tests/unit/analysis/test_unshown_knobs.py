"""Of a winner that changes two knobs, the one that brings nothing is named, and only that."""

from __future__ import annotations

import pytest

from raybench.analysis import analyse
from raybench.analysis.results import StudyResults
from raybench.report.answer import answer_of
from raybench.report.code import use_it
from raybench.spec import Setting
from tests.support.planted import FakeRunner, Noise, StepCosts
from tests.unit.studies import searched, study

SPEC = study(knobs={"batch_size": [32, 128], "bucket_cap_mb": ["default", 5]})
WINNER = Setting(batch_size=128, bucket_cap_mb=5)


def results(of_buckets: float) -> StudyResults:
    """A batch of 128 is half as fast again; the buckets divide a step by so much."""

    def costs(config: object, setting: Setting) -> StepCosts:
        faster = of_buckets if setting.bucket_cap_mb == 5 else 1.0
        return StepCosts(0.01 * setting.batch_size / 32 / (1.5 if setting.batch_size == 128 else 1) / faster)

    return analyse(SPEC, searched(SPEC, (1, 2), WINNER, runner=FakeRunner(costs, Noise(block=0.01))))


@pytest.mark.parametrize(("of_buckets", "is_named"), [(1.0, True), (1.3, False)])
def test_the_knob_that_brings_nothing_is_named(of_buckets: float, is_named: bool) -> None:
    found = results(of_buckets)
    assert found.best is not None
    assert found.best.record.config.setting.differences(WINNER) == {}
    assert [knob.label for knob in found.marginal_effects] == (["5 MiB buckets"] if is_named else [])
    for knob in found.marginal_effects:
        assert knob.ratio.low <= 1 <= knob.ratio.high
    words = "not shown to add to that: 5 MiB buckets ("
    assert (words in answer_of(found)) is is_named
    code = use_it(found, {})
    assert code is not None
    assert ("Not shown to add to that: 5 MiB buckets (" in " ".join(code.sentences)) is is_named


def test_a_winner_of_one_knob_needs_no_word() -> None:
    one = Setting(batch_size=128)
    runner = FakeRunner(lambda config, setting: StepCosts(0.01 * setting.batch_size**0.5), Noise(block=0.01))
    assert analyse(SPEC, searched(SPEC, (1, 2), one, runner=runner)).marginal_effects == ()

"""What is recommended is the simplest setting than which the fastest is not shown to be faster."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from raybench.analysis.recommendation import Recommendation
from raybench.analysis.stats.verdict import Verdict
from raybench.records.requests import Configuration
from raybench.spec.knobs import Setting
from tests.support.analysis import analyse
from tests.support.planted import QUIET, FakeRunner, StepCosts
from tests.unit.studies import searched, study

SPEC = study(
    knobs={"batch_size": [64, 256], "precision": ["fp32", "bf16"]},
    search={"method": "optuna", "trials": 4},
)
FASTEST = Setting(batch_size=256, precision="bf16")
Rates = Mapping[tuple[int, str], float]  # samples/ms of one device, by batch and precision


def recommended(rates: Rates, visits: int = 3) -> Recommendation:
    """By a search of the four settings, the default and the last of them visited so often."""

    def costs(config: Configuration, setting: Setting) -> StepCosts:
        batch = int(setting.batch_size)
        return StepCosts(plain_s=batch / rates[batch, setting.precision] / 1000)

    found = analyse(SPEC, searched(SPEC, (1, 2), FASTEST, FakeRunner(costs, QUIET), visits))
    assert found.recommendation is not None
    return found.recommendation


@pytest.mark.parametrize("visits", [1, 3])
def test_a_batch_that_adds_nothing_is_left_out(visits: int) -> None:
    rates = {(64, "fp32"): 5.0, (256, "fp32"): 5.0, (64, "bf16"): 8.0, (256, "bf16"): 8.01}
    use = recommended(rates, visits)
    assert use.is_faster
    assert use.label == "bf16"
    assert use.gain is not None
    assert use.gain.gain.low < 0.6 < use.gain.gain.high


@pytest.mark.parametrize("visits", [1, 3])
def test_a_batch_with_a_gain_of_its_own_is_taken(visits: int) -> None:
    rates = {(64, "fp32"): 5.0, (256, "fp32"): 7.0, (64, "bf16"): 8.0, (256, "bf16"): 12.0}
    use = recommended(rates, visits)
    assert use.is_faster
    assert (use.config.setting.batch_size, use.config.setting.precision) == (256, "bf16")


@pytest.mark.parametrize("visits", [1, 3])
def test_where_all_are_equal_the_default_stays(visits: int) -> None:
    use = recommended(dict.fromkeys([(64, "fp32"), (256, "fp32"), (64, "bf16"), (256, "bf16")], 5.0), visits)
    assert use.is_default
    assert not use.is_faster
    if use.gain is not None:
        assert use.gain.verdict in (Verdict.AS_GOOD, Verdict.UNKNOWN)

"""Which number of devices to use, in a sentence."""

from __future__ import annotations

from raybench.analysis.results import StudyResults, analyse
from raybench.records.requests import Configuration
from raybench.report.sections.cost import when_to_use
from raybench.spec import Setting
from tests.support.planted import QUIET, FakeRunner, StepCosts
from tests.unit.studies import SIXTEEN_TENTHS, exactly, grid, planted, slowed, study, without_intervals


def test_where_several_devices_are_slower_one_is_to_be_used() -> None:
    slow = planted({(8,): exactly(0.3)}, "batch_size")
    assert when_to_use(slow).startswith(
        "Use one device, as 2 devices (batch 8, fp32) are slower: a sample takes 3.3"
    )


def test_several_devices_cost_device_time_where_they_are_faster() -> None:
    found = planted({(32,): SIXTEEN_TENTHS}, "batch_size")
    assert "a sample takes 1.25x the device time of one" in without_intervals(when_to_use(found))


def on_two_nodes(of_eight: float) -> StudyResults:
    """1, 2 and 4 devices on one node, 8 on two: 1.6 and 2.5 times as fast as one, and ``of_eight``."""
    speedups = {1: 1.0, 2: 1.6, 4: 2.5, 8: of_eight}
    spec = study(knobs={"batch_size": [32]})

    def costs(config: Configuration, setting: Setting) -> StepCosts:
        alone_s, n = 0.010, config.world_size
        return StepCosts(plain_s=alone_s, exposed_s=alone_s * (n / speedups[n] - 1))

    records = grid(spec, (1, 2, 4, 8), FakeRunner(costs, QUIET))[0]
    return analyse(
        spec, [each.model_copy(update={"nodes": 1 + each.config.world_size // 8}) for each in records]
    )


def test_costs_are_of_the_mean_step() -> None:
    """Slow steps are in it, which the typical one leaves out."""
    spec = study(knobs={"batch_size": [32]})
    one, two = grid(spec, (1, 2), FakeRunner(lambda config, setting: SIXTEEN_TENTHS, QUIET))[0]
    assert two.steps is not None
    found = analyse(spec, [one, slowed(two, range(len(two.steps.rounds) // 10), 2.0, "ddp")])
    words = without_intervals(when_to_use(found))
    assert f"a sample takes {2 * 1.1 / 1.6:.2f}x the device time of one" in words


def test_more_devices_that_are_slower_than_fewer_are_not_advised() -> None:
    """As "use 8 devices, 1.90x" where four were twice as fast as one."""
    words = without_intervals(when_to_use(on_two_nodes(2.0)))
    assert words.startswith("Use 4 devices (batch 32, fp32) where time counts: a sample takes 1.60x")
    assert words.endswith("Use one where cost counts. 8 devices are no faster: 2.00x.")


def test_it_speaks_of_the_setting_that_is_recommended() -> None:
    """As fp32 was advised where bf16 had been measured at more than twice its samples/s."""
    slow, fast = StepCosts(plain_s=0.010, exposed_s=0.002), StepCosts(plain_s=0.004, exposed_s=0.002)
    found = planted({("fp32",): slow, ("bf16",): fast}, "precision")
    assert found.recommendation is not None
    assert not found.recommendation.is_default
    assert when_to_use(found).startswith("Use 2 devices (bf16) where time counts: a sample takes 1.50x")

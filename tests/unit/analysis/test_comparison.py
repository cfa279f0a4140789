"""Studies side by side: what was planted to differ is found and named, what was not is not."""

from __future__ import annotations

from typing import Any

import pytest

from raybench.analysis import analyse
from raybench.analysis.attribution import between
from raybench.analysis.comparison import Side, differences, headline_in_common, same_trials, side_by_side
from raybench.machine import environment as environments
from raybench.records.requests import Configuration
from raybench.report.comparison import change_table
from raybench.spec import Setting
from tests.support.planted import QUIET, FakeRunner, Noise, StepCosts
from tests.unit.studies import MACHINE, grid, study

LARGER = {"name": "mlp", "input_dim": 64, "hidden_dim": 128, "output_dim": 8}


def side(
    name: str,
    plain_s: float,
    exposed_s: float = 0.002,
    *,
    seed: int = 1,
    noise: Noise | None = None,
    batches: tuple[int, ...] = (32,),
    machine: environments.Environment = MACHINE,
    others: float | None = None,
    **fields: Any,
) -> Side:
    """A study on one and two devices; batch 64 takes twice the time."""
    spec = study(knobs={"batch_size": list(batches)}, **fields)

    def model(config: Configuration, setting: Setting) -> StepCosts:
        alone_s = plain_s * setting.batch_size / 32
        taken: dict[str, Any] = {} if others is None else {"other_cores": others, "host_cores": 2}
        return StepCosts(plain_s=alone_s, base_s=2 * alone_s, exposed_s=exposed_s, **taken)

    records, _ = grid(spec, (1, 2), FakeRunner(model, noise, seed=seed))
    return Side(name, analyse(spec, records), machine)


def test_a_planted_slowdown_is_found() -> None:
    monday, tuesday = side("monday", 0.010), side("tuesday", 0.020, 0.004, seed=2)
    found = headline_in_common(monday, same_trials(monday, tuesday))
    assert found is not None
    assert found.speed.low < 0.5 < found.speed.high  # 12 ms became 24 ms
    assert found.speed.relative_half_width < 0.3
    assert found.efficiency is not None
    assert found.efficiency.low < 1 < found.efficiency.high
    assert found.is_slower
    faster = headline_in_common(tuesday, same_trials(tuesday, monday))
    assert faster is not None
    assert not faster.is_slower


def test_equal_studies_are_not_told_apart() -> None:
    one, two = side("one", 0.010), side("two", 0.010, seed=2)
    assert differences([one, two]) == []
    assert {each.label for each in same_trials(one, two)} == {"batch 32, fp32"}
    assert not any(each.is_slower for each in same_trials(one, two))


def alarms(studies: int) -> tuple[float, float]:
    """Of pairs of equal studies, starts differing as is known: shares called slower, and not told apart."""
    noise = Noise(start=0.033)  # of several devices over one, as commands here differed
    sides = [side("equal", 0.010, noise=noise, seed=seed) for seed in range(studies)]
    pairs = [(one, two) for place, one in enumerate(sides) for two in sides[place + 1 : place + 6]]
    found = [trial for one, two in pairs if (trial := headline_in_common(one, same_trials(one, two)))]
    assert len(found) == len(pairs)
    covered = sum(not trial.speed.excludes(1.0) for trial in found)
    return sum(trial.is_slower for trial in found) / len(found), covered / len(found)


def test_equal_studies_of_starts_that_differ_are_not_told_apart() -> None:
    slower, covered = alarms(16)
    assert slower <= 0.08  # pairs have studies in common
    assert covered >= 0.90


def test_what_differs_is_named_with_every_value() -> None:
    other = MACHINE.model_copy(
        update={"cpu_model": "Another CPU", "packages": {**MACHINE.packages, "torch": "9.9"}}
    )
    sides = [
        side("one", 0.010),
        side("two", 0.010, machine=other, time_budget_seconds=60.0, seed=2),
        side("three", 0.010, workload=LARGER),
    ]
    found = {each.name: each.values for each in differences(sides)}
    assert found["cpu_model"] == (MACHINE.cpu_model, "Another CPU", MACHINE.cpu_model)
    assert found["packages.torch"][1] == "9.9"
    assert found["workload.hidden_dim"][2] == 128 != found["workload.hidden_dim"][0]
    assert not {"name", "time_budget_seconds"} & set(found)  # they change no measurement


def test_the_model_is_told_from_the_setting() -> None:
    """Efficiencies: 10/12 small; 20/22 at twice the batch; 40/42 and 80/82 with the larger model."""
    small = side("small", 0.010, batches=(32, 64), noise=QUIET)
    large = side("large", 0.040, batches=(64, 32), noise=QUIET, workload=LARGER)
    found = between(small.results, large.results)
    assert found is not None
    assert found.workload is not None
    assert found.settings is not None
    assert found.interaction is not None
    together, workload, setting = (80 / 82) / (10 / 12), (40 / 42) / (10 / 12), (20 / 22) / (10 / 12)
    assert found.total.value == pytest.approx(together)
    assert found.workload.value == pytest.approx(workload)
    assert found.settings.value == pytest.approx(setting)
    assert found.interaction.value == pytest.approx(together / workload / setting)
    (other,) = side_by_side([small, large]).others
    shown = {name: value for name, value, *_ in change_table(small, other).rows}
    assert shown["all together"].startswith(f"{together:.2f}x [")
    assert shown["the workload alone"].startswith(f"{workload:.2f}x [")
    assert shown["the setting alone"].startswith(f"{setting:.2f}x [")


def test_weak_and_strong_batches_are_not_one_setting() -> None:
    weak, strong = (side(mode, 0.010, scaling={"mode": mode}) for mode in ("weak", "strong"))
    assert same_trials(weak, strong) == []


def test_a_trial_of_the_curve_stands_before_one_of_the_search_and_the_headline_leads() -> None:
    one, two = (side(name, 0.010, batches=(64, 32), seed=seed) for name, seed in (("one", 1), ("two", 2)))
    found = same_trials(one, two)
    assert one.results.headline is not None
    assert found[0].record is one.results.headline
    assert {(each.record.config.world_size, each.label) for each in found} == {
        (size, f"batch {batch}") for size in (1, 2) for batch in (32, 64)
    }


@pytest.mark.parametrize("order", [1, -1])
def test_a_change_of_the_workload_beside_a_busy_program_says_so(order: int) -> None:
    """The same steps under two names of a workload, one of them measured beside a program on one core."""
    quiet = side("quiet", 0.010, others=0.1)
    loaded = side("loaded", 0.010, 0.010, others=1.1, workload=LARGER)
    first, second = (quiet, loaded)[::order]
    (found,) = side_by_side([first, second]).others
    assert found.change is not None
    words = "loaded was measured under load: other processes took 1.10 of 2 cores, 0.10 in quiet"
    assert words in change_table(first, found).caption
    (alike,) = side_by_side([quiet, side("also quiet", 0.010, others=0.1, workload=LARGER)]).others
    assert "under load" not in change_table(quiet, alike).caption

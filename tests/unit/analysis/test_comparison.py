"""Studies side by side: what was planted to differ is found and named, what was not is not."""

from __future__ import annotations

from functools import partial
from typing import Any

from raybench.analysis.comparison import Side, differences, headline_in_common, same_trials, work_of
from raybench.analysis.stats.verdict import Verdict, slower_by
from raybench.machine import environment as environments
from raybench.records.requests import Configuration, Variant
from raybench.spec.knobs import Setting
from tests.support.analysis import analyse
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
    **fields: Any,
) -> Side:
    """A study on one and two devices; batch 64 takes twice the time."""
    spec = study(knobs={"batch_size": list(batches)}, **fields)

    def model(config: Configuration, setting: Setting) -> StepCosts:
        alone_s = plain_s * setting.batch_size / 32
        return StepCosts(plain_s=alone_s, base_s=2 * alone_s, exposed_s=exposed_s)

    records, _ = grid(spec, (1, 2), FakeRunner(model, noise, seed=seed))
    return Side(name, analyse(spec, records), machine)


def test_a_planted_slowdown_is_found() -> None:
    monday, tuesday = side("monday", 0.010), side("tuesday", 0.020, 0.004, seed=2)
    found = headline_in_common(monday, tuesday)
    assert found is not None
    assert found.speed.low < 0.5 < found.speed.high  # 12 ms became 24 ms
    assert found.speed.relative_half_width < 0.3
    assert found.efficiency is not None
    assert found.efficiency.low < 1 < found.efficiency.high
    assert slower_by(found.speed, 0.0) is Verdict.WORSE
    faster = headline_in_common(tuesday, monday)
    assert faster is not None
    assert slower_by(faster.speed, 0.0) is Verdict.AS_GOOD


def test_equal_studies_are_not_told_apart() -> None:
    one, two = side("one", 0.010), side("two", 0.010, seed=2)
    assert differences([one, two]) == {}
    assert {each.label for each in same_trials(one, two)} == {"batch 32, fp32"}
    assert all(not each.speed.excludes(1.0) for each in same_trials(one, two))


def alarms(studies: int) -> tuple[float, float]:
    """Of pairs of equal studies, starts differing as is known: shares called slower, and not told apart."""
    noise = Noise(start=0.033)  # of several devices over one, as commands here differed
    sides = [side("equal", 0.010, noise=noise, seed=seed) for seed in range(studies)]
    pairs = [(one, two) for place, one in enumerate(sides) for two in sides[place + 1 : place + 6]]
    found = [trial for one, two in pairs if (trial := headline_in_common(one, two))]
    assert len(found) == len(pairs)
    covered = sum(not trial.speed.excludes(1.0) for trial in found)
    return sum(slower_by(trial.speed, 0.0) is Verdict.WORSE for trial in found) / len(found), covered / len(
        found
    )


def test_equal_studies_of_starts_that_differ_are_not_told_apart() -> None:
    slower, covered = alarms(8)
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
    found = differences(sides)
    assert found["cpu_model"] == (MACHINE.cpu_model, "Another CPU", MACHINE.cpu_model)
    assert found["packages.torch"][1] == "9.9"
    assert found["workload.hidden_dim"][2] == 128 != found["workload.hidden_dim"][0]
    assert not {"name", "time_budget_seconds"} & set(found)  # they change no measurement


def test_weak_and_strong_batches_are_not_one_setting() -> None:
    weak, strong = (side(mode, 0.010, scaling={"mode": mode}) for mode in ("weak", "strong"))
    assert same_trials(weak, strong) == []


def test_a_trial_of_the_curve_stands_before_one_of_the_search_and_the_headline_leads() -> None:
    one, two = (side(name, 0.010, batches=(64, 32), seed=seed) for name, seed in (("one", 1), ("two", 2)))
    found = same_trials(one, two)
    assert [each.is_headline for each in found] == [True, False, False, False]
    assert {(each.world_size, each.label) for each in found} == {
        (size, f"batch {batch}") for size in (1, 2) for batch in (32, 64)
    }


def test_efficiencies_over_different_numbers_of_devices_have_no_ratio() -> None:
    gone: dict[Variant, str] = {"plain": "out of memory"}
    spec = study(knobs={"batch_size": [32]})
    sides = []
    for missing in ({}, gone):
        runner = FakeRunner(partial(_growing, missing=missing), QUIET)
        records, _ = grid(spec, (2, 4), runner)
        sides.append(Side("a side", analyse(spec, records), MACHINE))
    (plain, without) = sides
    assert [each.efficiency for each in same_trials(plain, without)] == [None, None]
    assert [each.efficiency for each in same_trials(without, plain)] == [None, None]
    assert all(each.efficiency for each in same_trials(plain, plain))
    own = {each.world_size: each.efficiency for each in same_trials(without, without)}
    assert own[2] is None  # the baseline itself
    assert own[4] is not None


def _growing(config: Configuration, setting: Setting, missing: dict[Variant, str]) -> StepCosts:
    return StepCosts(plain_s=0.010, exposed_s=0.001 * config.world_size, missing=missing)


def test_runs_of_one_script_are_compared_whatever_its_arguments() -> None:
    """As with a flag and without, which no knob explores; another script is another training."""
    one, flag, other = (
        side(args, 0.010 / faster, workload={"script": script, "args": f"{args} --bs {{batch_size}}"})
        for script, args, faster in (("a.py", "", 1), ("a.py", "--amp", 2), ("b.py", "", 1))
    )
    found = headline_in_common(one, flag)
    assert found is not None
    assert found.speed.value > 1.5
    assert headline_in_common(one, other) is None
    starts = [each.results.headline for each in (one, flag)]
    assert (
        len({work_of(each.config) for each in starts if each is not None}) == 2
    )  # of two checkouts they differ

"""How often do the intervals hold the truth, with noise between trials and starts as well as within them?

    python -m benchmarks.coverage [--studies 300]

Nothing is measured: ``FakeRunner`` plants the truth and hides it behind noise, the plan of a real study asks
for its trials (the default's curve, suggestions with the default as anchor, visits of default and winner),
and the worker's stopping rule ends each. Blocks last as long as on CPUs, in simulated time. One process, some
minutes.

In this run: the truth of the run's one start. Another run: the figure that a second study finds, whose noise
and start are drawn anew.
"""

from __future__ import annotations

import argparse
import math
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, replace
from time import perf_counter

from raybench.analysis.resolve import Facts, resolve
from raybench.analysis.stats.statistics import Estimate
from raybench.analysis.stats.verdict import Verdict
from raybench.machine.host import Resources
from raybench.plan.make_plan import make_plan
from raybench.plan.trials import Plan
from raybench.records.record import TrialRecord
from raybench.records.requests import Configuration, StepsRequest
from raybench.spec.knobs import Setting
from raybench.spec.study import Study
from tests.support.planted import FakeRunner, Noise, StepCosts, to_record

STEP_S = 0.010
EVEN = StepCosts(plain_s=STEP_S, contention_s=0.001, exposed_s=0.002)
KNOBS = {"bucket_cap_mb": ["default", 1, 5, 25], "precision": ["fp32", "bf16", "fp16"]}  # twelve settings


@dataclass(frozen=True)
class Case:
    """One kind of noise."""

    name: str
    noise: Noise
    offset_s: tuple[float, ...] = ()  # of devices that are slower
    world_size: int = 2


BLOCKS = Noise(block=0.03, step=0.0)
CASES = (
    Case("trials 3%, units 1.5%, blocks 3%", replace(BLOCKS, trial=0.03, unit=0.015)),
    Case("trials 3%, units 1.5%, blocks 1%", replace(BLOCKS, block=0.01, trial=0.03, unit=0.015)),
    Case(
        "trials 6%, units 2%, blocks 3%, 5% of them preempted",
        replace(BLOCKS, trial=0.06, unit=0.02, preemption=0.05),
    ),
    Case("trials 1%, units 0.4%, blocks 0.5%", replace(BLOCKS, block=0.005, trial=0.01, unit=0.004)),
    Case("trials 3%, units 3%, blocks 2%", replace(BLOCKS, block=0.02, trial=0.03, unit=0.03)),
    Case(
        "the first, neighbouring rounds correlated by 0.4",
        replace(BLOCKS, trial=0.03, unit=0.015, correlation=0.4),
    ),
    Case("the first, starts 3%", replace(BLOCKS, trial=0.03, unit=0.015, start=0.03)),
    Case("blocks 3% and nothing else", BLOCKS),
    Case("trials 12%, units 10%, blocks 3%", replace(BLOCKS, trial=0.12, unit=0.10)),
    Case(
        "the first, 1 of 4 devices 20% slower", replace(BLOCKS, trial=0.03, unit=0.015), (0, 0, 0, 0.002), 4
    ),
)


def equal(config: Configuration, setting: Setting) -> StepCosts:
    """All settings alike."""
    return EVEN


def measured(case: Case, runner: FakeRunner, plan: Plan) -> Facts:
    """A whole study of twelve settings: the default's curve, suggestions, visits of default and winner."""
    records = [_measured(runner, visit) for visit in plan.curve(plan.default())]
    records += [
        _measured(runner, plan.search(suggestion))
        for suggestion in plan.suggestions()
        if suggestion != plan.default()
    ]
    facts = resolve(plan.study, records)
    records += [_measured(runner, visit) for visit in plan.visits(facts.winners)]
    return resolve(plan.study, records)


def _measured(runner: FakeRunner, request: StepsRequest) -> TrialRecord:
    return to_record(request, runner.run(request, lambda progress: None))


def figures(facts: Facts) -> Iterator[tuple[str, Estimate]]:
    """Those that a report leads with."""
    default = facts.default
    assert default is not None
    scaling = facts.scaling(default)
    assert scaling.efficiency is not None
    yield "efficiency of the default", scaling.efficiency
    yield "step time of the default", scaling.step_time_s
    best = max(facts.gains.values(), key=lambda each: each.gain.value)
    yield (
        "gain of the best",
        replace(best.gain, value=1 + best.gain.value, low=1 + best.gain.low, high=1 + best.gain.high),
    )
    first = next(iter(facts.gains.values()))
    yield (
        "gain of a suggestion",
        replace(first.gain, value=1 + first.gain.value, low=1 + first.gain.low, high=1 + first.gain.high),
    )


def row(case: Case, studies: int, seed: int) -> str:
    """A row of the table."""
    study = Study.model_validate(
        {
            "name": "equal",
            "workload": {"name": "mlp"},
            "knobs": KNOBS,
            "search": {"method": "optuna", "trials": 12},
            "scaling": {"world_sizes": [1, case.world_size]},
        }
    )
    plan = make_plan(study, Resources("cpu", case.world_size, "fake cpu"))
    costs = replace(EVEN, offset_s=case.offset_s)
    runner = FakeRunner(lambda config, setting: costs, case.noise, seed=seed, num_devices=case.world_size)
    truth = runner.truth(plan.curve(plan.default())[0].config)
    held, again, widths, said = (
        Counter[str](),
        Counter[str](),
        defaultdict[str, list[float]](list),
        Counter[str](),
    )
    before = dict[str, Estimate]()
    for _ in range(studies):
        runner.start(case.world_size, {}, anew=True)
        facts = measured(case, runner, plan)
        slowness = runner.slowness
        true = {
            "efficiency of the default": truth["efficiency"] / slowness,
            "step time of the default": truth["step_time_s"] * slowness,
            "gain of the best": 1.0,
            "gain of a suggestion": 1.0,
        }
        for name, found in figures(facts):
            held[name] += found.low <= true[name] <= found.high
            widths[name].append(found.log_half_width)
            if name in before and found.again:
                again[name] += found.again[0] <= before[name].value <= found.again[1]
            before[name] = found
        said["advised"] += any(each.verdict is Verdict.BETTER for each in facts.gains.values())
    cells = [
        f"{held[name] / studies:.0%} ±{100 * sum(widths[name]) / studies:.1f}%"
        for name in (
            "efficiency of the default",
            "step time of the default",
            "gain of the best",
            "gain of a suggestion",
        )
    ]
    others = ("efficiency of the default", "step time of the default")
    other = ", ".join(f"{again[name] / (studies - 1):.0%}" for name in others)
    return f"| {case.name} | {' | '.join(cells)} | {other} | {said['advised'] / studies:.1%} |"


def standard_error(number: int, of: int) -> float:
    """Of a share, in percentage points."""
    share = number / of
    return 100 * math.sqrt(share * (1 - share) / of)


def main() -> None:
    """Print the table as markdown."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--studies", type=int, default=300, help="studies a case")
    studies = parser.parse_args().studies
    began = perf_counter()
    print(f"{studies:,} studies of twelve equal settings a case; intervals that hold the truth, half-width\n")
    columns = ("noise", "efficiency", "step time", "gain of the best", "of a suggestion")
    print(f"| {' | '.join(columns)} | another run: efficiency, step | advised |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for seed, case in enumerate(CASES):
        print(row(case, studies, seed), flush=True)
    print(f"\n{perf_counter() - began:.0f} s")


if __name__ == "__main__":
    main()

"""How often does the 95% interval hold the truth, with the worker's own stopping rule?

    python -m benchmarks.coverage [--repetitions 1500]

Nothing is measured: ``FakeRunner`` plants the truth and hides it behind noise, and
``raybench.analysis.stats.stopping`` ends each trial, as it does in the worker. Blocks last as long as
on CPUs (0.15 s of simulated time), so the time limits are in it too. One process, some minutes.
"""

from __future__ import annotations

import argparse
import math
from collections import Counter
from dataclasses import dataclass, field
from itertools import permutations
from time import perf_counter
from typing import Any

from raybench.analysis.stats.efficiency import gain

from raybench.analysis.attribution import attribution
from raybench.analysis.findings.configurations import better_settings, diagnose_configurations
from raybench.analysis.resolve import Facts, resolve
from raybench.analysis.scaling import scaling
from raybench.analysis.stats.statistics import unpaired_ratio
from raybench.analysis.stats.verdict import Verdict
from raybench.records.record import TrialRecord
from raybench.records.requests import Configuration, StepsRequest, Variant
from raybench.spec.knobs import Setting
from raybench.spec.study import MeasureSpec, OptimizerSpec, Study
from raybench.spec.workloads import MLPSpec
from tests.support.planted import FakeRunner, Noise, StepCosts, run_all, to_record

STEP_S = 0.010
EVEN = StepCosts(plain_s=STEP_S, contention_s=0.001, exposed_s=0.002)
HEAVY = Noise(block=0.04, step=0.0, preemption=0.08, preemption_size=0.6)
SLOW_NOISE = Noise(block=0.04, step=0.0, preemption=0.05)
MINIMUM_GAIN = 0.02  # relative, of search.minimum_gain
ADVISED = "a change is advised"
EFFECT = "a knob is said to change the efficiency"
BEST = "the most efficient one's interval misses the truth"


@dataclass(frozen=True)
class Case:
    """One kind of trial, its noise, and what is asked of its interval."""

    name: str
    noise: Noise
    costs: StepCosts = EVEN
    measure: dict[str, Any] = field(default_factory=dict)
    world_size: int = 2
    scaling: str = "weak"
    variants: tuple[Variant, ...] = ("plain", "ddp")


def slow(world_size: int, share: float, **measure: Any) -> Case:
    """The last of ``world_size`` devices is slower by ``share`` of a step."""
    costs = StepCosts(
        plain_s=STEP_S,
        contention_s=0.001,
        exposed_s=0.002,
        offset_s=(*(0.0,) * (world_size - 1), share * STEP_S),
    )
    rounds = measure.get("min_rounds", 10)
    name = f"1 of {world_size} devices {share:.0%} slower, at least {rounds} rounds"
    return Case(name, SLOW_NOISE, costs, measure, world_size)


CASES = (
    Case("quiet: blocks differ by 2%", Noise(block=0.02, step=0.0)),
    Case("noisy: by 6%", Noise(block=0.06, step=0.0)),
    Case("out of time: by 30%", Noise(block=0.30, step=0.0)),
    Case("heavy tails: by 4%, 8% of the blocks preempted", HEAVY),
    Case("heavy tails, 3% asked for", HEAVY, measure={"half_width": 0.03}),
    Case("drift of 50% a minute", Noise(block=0.03, step=0.0, preemption=0.05, drift_per_minute=0.5)),
    Case("10% of the blocks preempted", Noise(block=0.03, step=0.0, preemption=0.10, preemption_size=1.0)),
    Case("12% of the blocks preempted", Noise(block=0.03, step=0.0, preemption=0.12, preemption_size=1.0)),
    Case(
        "strong scaling, heavy tails",
        HEAVY,
        StepCosts(plain_s=0.006, base_s=STEP_S, exposed_s=0.002),
        scaling="strong",
        variants=("base", "plain", "ddp"),
    ),
    *(slow(2, share) for share in (0.1, 0.2, 0.3)),
    *(slow(4, share, min_rounds=20) for share in (0.1, 0.2, 0.3)),
    *(slow(8, share, min_rounds=40) for share in (0.1, 0.2, 0.3)),
    *(slow(size, 0.3) for size in (4, 8)),
)


def request(measure: dict[str, Any], **fields: Any) -> StepsRequest:
    """A trial of steps; ``fields`` of its configuration or its own."""
    named = {name: fields.pop(name) for name in list(fields) if name in Configuration.model_fields}
    config = Configuration(
        **{
            "workload": MLPSpec(name="mlp"),
            "optimizer": OptimizerSpec(),
            "setting": Setting(batch_size=64),
            "world_size": 2,
            **named,
        }
    )
    return StepsRequest(config=config, measure=MeasureSpec(**{"half_width": 0.05, **measure}), **fields)


def trials(runner: FakeRunner, asked: StepsRequest, repetitions: int) -> list[TrialRecord]:
    """The same trial again and again, each with its own noise."""
    return [to_record(asked, runner.run(asked, lambda progress: None)) for _ in range(repetitions)]


def coverage_row(case: Case, repetitions: int, seed: int) -> str:
    """A row of the table: how often the interval of the efficiency holds the planted one."""
    runner = FakeRunner(lambda config, setting: case.costs, case.noise, seed=seed)
    asked = request(
        case.measure,
        role="search",
        world_size=case.world_size,
        scaling=case.scaling,
        variants=case.variants,
    )
    truth = runner.truth(asked.config)["efficiency"]
    covered, num_rounds, ends = 0, 0, Counter[str]()
    for record in trials(runner, asked, repetitions):
        found = scaling(record).efficiency
        assert found is not None
        assert record.steps is not None
        covered += found.low <= truth <= found.high
        num_rounds += len(record.steps.rounds)
        ends[record.steps.stopped_by] += 1
    narrow = ends["half_width"] / repetitions
    return (
        f"| {case.name} | {covered / repetitions:.1%} | {standard_error(covered, repetitions):.1f} "
        f"| {num_rounds / repetitions:.1f} | {narrow:.0%} |"
    )


def claims_row(world_size: int, repetitions: int, seed: int) -> str:
    """A row of the table of claims: how often one of two equal settings is called better, or worse."""
    noise = Noise(block=0.03, step=0.0, preemption=0.05)
    runner = FakeRunner(lambda config, setting: EVEN, noise, seed=seed)
    asked = request(
        {"half_width": 0.02},
        role="verification",
        world_size=world_size,
        setting=Setting(batch_size=64, precision="bf16"),
        anchor=Setting(batch_size=64),
        variants=("ddp", "anchor"),
    )
    found = [gain(record, MINIMUM_GAIN) for record in trials(runner, asked, repetitions)]
    verdicts = Counter(each.verdict for each in found)
    excluded = sum(each.gain.excludes(0.0) for each in found)
    cells = [verdicts[Verdict.BETTER], verdicts[Verdict.WORSE], excluded]
    words = " | ".join(
        f"{number / repetitions:.1%} ({standard_error(number, repetitions):.1f})" for number in cells
    )
    return f"| {world_size} | {words} |"


def selection_rows(studies: int, seed: int) -> list[str]:
    """The table of selection: how often something false is said of twelve equal settings."""
    knobs = {"bucket_cap_mb": ["default", 1, 5, 25], "precision": ["fp32", "bf16", "fp16"]}
    study = Study.model_validate({"name": "equal", "workload": {"name": "mlp"}, "knobs": knobs})
    noise = Noise(block=0.06, step=0.0, preemption=0.05)
    runner = FakeRunner(lambda config, setting: EVEN, noise, seed=seed)
    fields = {"role": "search", "variants": ("plain", "ddp")}
    requests = [request({}, setting=setting, **fields) for setting in study.knobs.grid()]
    truth = runner.truth(requests[0].config)["efficiency"]
    said, alone = Counter[str](), Counter[str]()
    for _ in range(studies):
        results = resolve(study, run_all(runner, requests)[0])
        configurations = diagnose_configurations(results, better_settings(results), {})
        knobs_do = attribution(results)
        assert knobs_do is not None
        best, effects = configurations[0], (*knobs_do.singles, *knobs_do.together)
        best_alone = results.scaling(best.record).efficiency
        assert best.scaling.efficiency is not None
        assert best_alone is not None
        said[ADVISED] += any(each.changes for each in configurations)
        alone[ADVISED] += any(better_alone(results, *pair) for pair in permutations(results.tried, 2))
        said[EFFECT] += any(each.efficiency_ratio.excludes(1) for each in effects)
        base = knobs_do.default_efficiency
        alone[EFFECT] += any(unpaired_ratio(each.efficiency, base).excludes(1) for each in effects)
        said[BEST] += best.scaling.efficiency.excludes(truth)
        alone[BEST] += best_alone.excludes(truth)
    return [
        f"| {claim} | "
        + " | ".join(
            f"{each[claim] / studies:.1%} ({standard_error(each[claim], studies):.1f})"
            for each in (alone, said)
        )
        + " |"
        for claim in (ADVISED, EFFECT, BEST)
    ]


def better_alone(results: Facts, one: TrialRecord, other: TrialRecord) -> bool:
    """Whether one would be advised in place of the other, by the interval of the pair alone."""
    if len(one.config.differences(other.config)) != 1:
        return False
    mine, theirs = results.scaling(one), results.scaling(other)
    assert mine.efficiency is not None
    assert theirs.efficiency is not None
    ratio = unpaired_ratio(mine.efficiency, theirs.efficiency)
    faster = unpaired_ratio(mine.throughput_samples_per_s, theirs.throughput_samples_per_s)
    return min(ratio.low, faster.low) > 1 and ratio.value >= 1 + MINIMUM_GAIN


def standard_error(number: int, of: int) -> float:
    """Of a share, in percentage points."""
    share = number / of
    return 100 * math.sqrt(share * (1 - share) / of)


def main() -> None:
    """Print the tables as markdown."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repetitions", type=int, default=1500, help="trials a case")
    repetitions = parser.parse_args().repetitions
    began = perf_counter()
    print(f"{repetitions:,} repetitions a case\n")
    print("| case | covered | standard error, points | rounds, mean | ended by the half-width |")
    print("| --- | --- | --- | --- | --- |")
    for seed, case in enumerate(CASES):
        print(coverage_row(case, repetitions, seed), flush=True)
    print("\n| devices | called better | called worse | interval without 0 |\n| --- | --- | --- | --- |")
    for world_size in (2, 4):
        print(claims_row(world_size, repetitions, 100 + world_size), flush=True)
    print("\n| of twelve equal settings | intervals of each alone | simultaneous |\n| --- | --- | --- |")
    print("\n".join(selection_rows(max(repetitions // 3, 1), 200)), flush=True)
    print(f"\n{perf_counter() - began:.0f} s")


if __name__ == "__main__":
    main()

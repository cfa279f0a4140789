"""Which method of search finds a fast setting with few suggestions?

    python -m benchmarks.search_methods [--machines 60] [--space default] [--methods random,tpe,main_effects]

Nothing is measured: a search of raybench, with each ``search.sampler``, runs on simulated
machines of many kinds whose true throughputs are known. Counted are the searches whose choice, the fastest
as measured, is truly within 3% of the fastest of all settings. One process, a minute or two a table; `gp` is
a hundred times slower, so it stands apart.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from time import perf_counter
from typing import Any

import numpy as np

from raybench.analysis.choice import objective_values
from raybench.analysis.scaling import scaling
from raybench.machine.host import Resources
from raybench.plan.make_plan import make_plan
from raybench.plan.search import Search
from raybench.plan.trials import Plan
from raybench.records.messages import Outcome, Progress
from raybench.records.requests import Configuration, TrialRequest
from raybench.spec.knobs import Setting
from raybench.spec.study import Study
from tests.support.planted import QUIET, FakeHardware, FakeRunner, StepCosts, to_record, truth

MIB = 2**20
NEAR = 0.03  # of the fastest setting's throughput
METHODS = ("random", "tpe", "gp", "main_effects")

SPACES: dict[str, dict[str, list[Any]]] = {
    "default": {
        "batch_size": [2048, 32, 256],
        "bucket_cap_mb": ["default", 1, 5, 25],
        "precision": ["fp32", "bf16"],
    },
    "default, small batch first": {
        "batch_size": [32, 256, 2048],
        "bucket_cap_mb": ["default", 1, 5, 25],
        "precision": ["fp32", "bf16"],
    },
    "mlp_scaling": {
        "batch_size": [4096, 256, 1024],
        "bucket_cap_mb": [50, 1, 25, "default"],
        "precision": ["fp32", "bf16"],
    },
    "wide": {
        "batch_size": [256, 32, 64, 128, 512, 1024],
        "bucket_cap_mb": ["default", 1, 5, 10, 50, 100],
        "precision": ["fp32", "bf16", "fp16"],
        "gradient_compression": ["none", "fp16"],
        "gradient_accumulation": [1, 4],
        "static_graph": [False, True],
    },
}


@dataclass(frozen=True)
class Kind:
    """A kind of machine: between what its sizes are drawn, evenly in their logarithms."""

    name: str
    sample_s: tuple[float, float]
    gradient_mib: tuple[float, float]
    bandwidth_bytes_per_s: tuple[float, float]
    latency_s: tuple[float, float]
    has_best_batch: bool = False  # larger ones are slower a sample, as where a cache ends


KINDS = (
    Kind("compute bound", (5e-5, 4e-4), (2, 20), (1e10, 5e10), (2e-5, 1e-4)),
    Kind("slow link", (2e-6, 1e-4), (50, 400), (5e8, 4e9), (2e-5, 2e-4)),
    Kind("slow to start a transfer", (2e-6, 1e-4), (10, 200), (5e9, 5e10), (3e-4, 2e-3)),
    Kind("best at a middle batch", (5e-6, 2e-4), (2, 50), (2e9, 2e10), (5e-5, 5e-4), has_best_batch=True),
)


@dataclass(frozen=True)
class Machine:
    """True costs: hardware, what some knobs do by themselves, and a batch beyond which samples cost more."""

    hardware: FakeHardware
    world_size: int
    factors: dict[tuple[str, Any], float]  # of the whole step, by a knob and its value
    best_batch: float
    beyond: float  # relative, for each doubling of the batch above

    @staticmethod
    def drawn(kind: Kind, bf16_helps: bool, batches: list[int], random: np.random.Generator) -> Machine:
        """One of a kind; bf16 is 1.1 to 2.5 times as fast to compute, or 0.6 to 1 times."""

        def between(low: float, high: float) -> float:
            return math.exp(random.uniform(math.log(low), math.log(high)))

        bf16 = between(1.1, 2.5) if bf16_helps else between(0.6, 1.0)
        hardware = FakeHardware(
            fixed_s=between(2e-4, 5e-3),
            sample_s=between(*kind.sample_s),
            speed={"bf16": bf16, "fp16": bf16 * between(0.8, 1.2)},
            contention=random.uniform(0.0, 0.1),
            wrapper_s=between(1e-4, 2e-3),
            gradient_bytes=int(between(*kind.gradient_mib) * MIB),
            bandwidth_bytes_per_s=between(*kind.bandwidth_bytes_per_s),
            latency_s=between(*kind.latency_s),
            overlap=random.uniform(0.3, 1.0),
        )
        factors = {
            ("static_graph", True): between(0.94, 1.03),
            ("gradient_compression", "fp16"): between(0.95, 1.1),
        }
        best = float(random.choice(sorted(batches)[:-1])) if kind.has_best_batch else math.inf
        return Machine(hardware, int(random.choice([2, 4, 8])), factors, best, random.uniform(0.05, 0.3))

    def costs(self, config: Configuration, setting: Setting) -> StepCosts:
        """The true costs of a step."""
        return scaled(self.hardware.costs(config, setting), self._factor(setting))

    def _factor(self, setting: Setting) -> float:
        factor = 1 + self.beyond * math.log2(max(setting.batch_size / self.best_batch, 1.0))
        for (name, value), each in self.factors.items():
            factor *= each if getattr(setting, name) == value else 1.0
        return factor


def scaled(costs: StepCosts, factor: float) -> StepCosts:
    """Every part of the step times ``factor``."""
    parts = ("plain_s", "contention_s", "wrapper_s", "exposed_s")
    return replace(costs, **{name: factor * getattr(costs, name) for name in parts})


class NoisyRunner(FakeRunner):
    """Every trial as a whole is off by a factor of its own, as trials that are minutes apart are."""

    def __init__(self, machine: Machine, noise: float, seed: int) -> None:
        super().__init__(lambda config, setting: scaled(machine.costs(config, setting), self.off), QUIET)
        self._noise, self._random, self.off = noise, np.random.default_rng(seed), 1.0

    def run(self, request: TrialRequest, on_progress: Callable[[Progress], None]) -> Outcome:
        """The trial, with its own factor."""
        self.off = math.exp(self._noise * self._random.standard_normal())
        return super().run(request, on_progress)


@dataclass(frozen=True)
class Case:
    """A machine and the settings among which is searched."""

    space: str
    machine: Machine
    seed: int

    @cached_property
    def throughputs(self) -> dict[Setting, float]:
        """The true throughput of every setting, in samples/s."""
        plan = self.plan(1)
        settings = list(plan.study.knobs.grid())
        return {setting: self.throughput(plan, setting) for setting in settings}

    def throughput(self, plan: Plan, setting: Setting) -> float:
        """The true one, in samples/s."""
        request = plan.search(replace(plan.default(), setting=setting))
        costs = self.machine.costs(request.config, setting)
        return request.config.global_batch_size / truth(costs, request.config)["step_time_s"]

    def plan(self, trials: int, sampler: str = "main_effects") -> Plan:
        """A study of so many suggestions of ``sampler``."""
        study = Study.model_validate(
            {
                "name": "simulated",
                "seed": self.seed,
                "workload": {"name": "mlp"},
                "knobs": SPACES[self.space],
                "search": {"method": "optuna", "trials": trials, "sampler": sampler},
                "measure": {"steps": 5, "min_rounds": 3},  # the noise is the runner's
            }
        )
        return make_plan(study, Resources("cpu", self.machine.world_size, "simulated"))

    def found(self, method: str, trials: int, noise: float) -> bool:
        """Whether the fastest as measured is truly near the fastest of all."""
        plan, runner = self.plan(trials, method), NoisyRunner(self.machine, noise, self.seed)
        search = Search(plan)
        measured: list[tuple[float, Setting]] = []
        for _ in range(trials):
            suggestion = search.ask()
            if suggestion is None:
                break
            request = plan.search(suggestion)
            record = to_record(request, runner.run(request, lambda _: None))
            search.tell(record)
            found = objective_values(plan.study, record, scaling(record))
            measured.append((found[0].value if found else 0.0, suggestion.setting))
        chosen = max(measured, key=lambda each: each[0])[1]
        return self.throughputs[chosen] >= (1 - NEAR) * max(self.throughputs.values())


def cases(space: str, number: int) -> list[Case]:
    """So many machines, as many of each kind; bf16 helps on every second one of a kind."""
    made = []
    for seed in range(number):
        kind, turn = KINDS[seed % len(KINDS)], seed // len(KINDS)
        random = np.random.default_rng([seed, len(KINDS)])
        made.append(
            Case(space, Machine.drawn(kind, turn % 2 == 0, SPACES[space]["batch_size"], random), seed)
        )
    return made


def share_words(number: int, of: int) -> str:
    """A share with its 95% interval, by the score method (Wilson, 1927, J. Amer. Statist. Assoc. 22)."""
    share, z = number / of, 1.96
    middle = (share + z * z / (2 * of)) / (1 + z * z / of)
    half = z / (1 + z * z / of) * math.sqrt(share * (1 - share) / of + z * z / (4 * of * of))
    return f"{share:.0%} [{middle - half:.0%}, {middle + half:.0%}]"


def table(space: str, methods: list[str], machines: int, noises: list[float], tried: list[int]) -> None:
    """One space: a row a method and noise, a column for each number of suggestions in ``tried``."""
    every = cases(space, machines)
    size = math.prod(map(len, SPACES[space].values()))
    print(f"\n{space}: {size} settings, {machines} machines\n")
    print("| a trial's noise | method | " + " | ".join(f"{trials} suggestions" for trials in tried) + " |")
    print("| --- " * (2 + len(tried)) + "|")
    for noise in noises:
        for method in methods:
            found = [sum(case.found(method, trials, noise) for case in every) for trials in tried]
            cells = " | ".join(share_words(number, machines) for number in found)
            print(f"| {noise:.0%} | {method} | {cells} |", flush=True)


def main() -> None:
    """Print a table for each space."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--machines", type=int, default=60, help="for each space; as many of each kind")
    parser.add_argument("--space", choices=SPACES, action="append", help="default: all")
    parser.add_argument("--methods", default="random,tpe,main_effects", help=", ".join(METHODS))
    parser.add_argument("--noise", default="0.01,0.03", help="relative, of a trial's throughput")
    parser.add_argument("--trials", default="6,12,24", help="suggestions of a search")
    asked = parser.parse_args()
    began = perf_counter()
    noises, tried = [float(each) for each in asked.noise.split(",")], list(map(int, asked.trials.split(",")))
    for space in asked.space or SPACES:
        table(space, asked.methods.split(","), asked.machines, noises, tried)
    print(f"\n{perf_counter() - began:.0f} s")


if __name__ == "__main__":
    main()

"""Requests, records and whole studies on fake hardware, for the tests of analysis and report."""

from __future__ import annotations

import random
import re
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from raybench.analysis.findings.case import Around
from raybench.analysis.results import StudyResults
from raybench.machine.environment import Environment
from raybench.machine.host import Resources
from raybench.plan.make_plan import make_plan
from raybench.plan.training import training_requests
from raybench.plan.trials import Plan
from raybench.records.messages import BlockStepTimes
from raybench.records.record import State, TrialRecord
from raybench.records.requests import Configuration, StepsRequest, TrainingRequest, TrialRequest, Variant
from raybench.spec.knobs import Setting
from raybench.spec.study import MeasureSpec, OptimizerSpec, Study
from raybench.spec.workloads import MLPSpec
from tests.support.analysis import analyse
from tests.support.planted import QUIET, STARTED_AT, FakeLearning, FakeRunner, Noise, StepCosts, run_all

MACHINE = Environment(
    hostname="here", os="Linux", kernel="6", cpu_model="a CPU", cores=2, usable_cores=2,
    memory_bytes=8 * 2**30, python="3.12.1", packages={"torch": "2.14.1"},
)  # fmt: skip
LARGE_NODE = Around(MACHINE.model_copy(update={"usable_cores": 64}))
FULL: tuple[Variant, ...] = ("plain", "concurrent", "local", "ddp", "replay")
SHORT: tuple[Variant, ...] = ("plain", "ddp")
MIB = 2**20
# Two devices: 10 ms alone, 11.5 ms without transfers, 12.5 ms in all: a speed-up of 1.6.
SIXTEEN_TENTHS = StepCosts(plain_s=0.010, contention_s=0.001, wrapper_s=0.0005, exposed_s=0.001)


def variants_for(world_size: int, scaling: str, full: bool = True) -> tuple[Variant, ...]:
    if world_size == 1:
        return ("plain",)
    chosen = FULL if full else SHORT
    return ("base", *chosen) if scaling == "strong" else chosen


def request(**fields: Any) -> StepsRequest:
    """A request of steps; fields of its configuration are given beside its own."""
    given: dict[str, Any] = {"role": "scaling", "measure": MeasureSpec(half_width=0.02)} | fields
    named = {name: given.pop(name) for name in list(given) if name in Configuration.model_fields}
    asked = config(**named)
    given.setdefault("variants", variants_for(asked.world_size, asked.scaling))
    return StepsRequest(config=asked, **given)


def config(**fields: Any) -> Configuration:
    given = {
        "workload": MLPSpec(name="mlp"),
        "optimizer": OptimizerSpec(),
        "setting": Setting(),
        "world_size": 2,
    }
    return Configuration.model_validate(given | fields)


def measured(costs: StepCosts, noise: Noise | None = None, seed: int = 0, **fields: Any) -> TrialRecord:
    """One record of planted costs."""
    runner = FakeRunner(lambda request, setting: costs, noise or Noise(block=0.01, step=0.005), seed=seed)
    return run_all(runner, [request(**fields)])[0][0]


def slowed(
    record: TrialRecord, places: Iterable[int], factor: float = 2.0, *variants: Variant
) -> TrialRecord:
    """The record, had rounds at ``places`` taken so many times as long: in ``variants``, or in all."""
    assert record.steps is not None
    rounds = list(record.steps.rounds)
    for place in places:
        blocks = (
            block.model_copy(
                update={
                    "step_time_s": tuple(factor * one for one in block.step_time_s),
                    "slowest_s": factor * block.slowest_s,
                }
            )
            if not variants or block.variant in variants
            else block
            for block in rounds[place].blocks
        )
        rounds[place] = rounds[place].model_copy(update={"blocks": tuple(blocks)})
    return record.model_copy(update={"result": record.steps.model_copy(update={"rounds": tuple(rounds)})})


def without_intervals(words: str) -> str:
    """The words with their figures alone."""
    return re.sub(r" \[[^\]]*\]", "", words)


def metered(records: Iterable[TrialRecord], joules: float) -> list[TrialRecord]:
    """Those of steps, had a step of all devices taken so much energy."""
    return [
        record.model_copy(update={"result": record.steps.model_copy(update={"energy_joules": joules})})
        for record in records
        if record.steps is not None
    ]


def study(**fields: Any) -> Study:
    return Study.model_validate({"name": "fake", "workload": {"name": "mlp"}} | fields)


def asked(study: Study, role: str, setting: Setting, size: int, **fields: Any) -> StepsRequest:
    full = role != "search"
    return request(
        role=role,
        workload=study.workload,
        setting=setting.at(1) if size == 1 else setting,
        scaling=study.scaling.mode,
        world_size=size,
        measure=study.measure,
        **({"variants": variants_for(size, study.scaling.mode, full)} | fields),
    )


def grid(
    study: Study, sizes: Iterable[int], runner: FakeRunner | None = None, is_anchored: bool = False
) -> tuple[list[TrialRecord], dict[str, tuple[BlockStepTimes, ...]]]:
    """Every setting at every world size, nothing twice; all of one start before the next.

    ``is_anchored``: the default is in the rounds of every trial on the most devices, as a plan has it.
    """
    runner, sizes = runner or FakeRunner(seed=1), tuple(sizes)
    records, samples = list[TrialRecord](), dict[str, tuple[BlockStepTimes, ...]]()
    for start in range(study.measure.starts):
        if start:
            runner.start(max(sizes), {}, anew=True)
        requests = [
            asked(study, "scaling", setting, size, start=start)
            for setting in study.knobs.grid()
            for size in sizes
        ]
        if is_anchored and max(sizes) > 1:
            default = study.knobs.default()
            at = {default.at(max(sizes)), default}
            requests = [
                with_anchor(each, default)
                if each.config.world_size == max(sizes) and each.config.setting not in at
                else each
                for each in requests
            ]
        unique = {each.trial_id: each for each in requests}
        found = run_all(runner, unique.values(), study.name)
        records += found[0]
        samples |= found[1]
    return records, samples


def searched(
    study: Study,
    sizes: tuple[int, ...],
    winner: Setting,
    runner: FakeRunner | None = None,
    visits: int = 3,
) -> list[TrialRecord]:
    """The default's curve, suggestions with the default as anchor, further visits of default and winner."""
    runner = runner or FakeRunner(seed=2)
    default = study.knobs.default()
    rest = [setting for setting in study.knobs.grid() if setting not in (default, winner)]
    others = random.Random(0).sample(rest, min(len(rest), study.search.trials - 2))
    requests = [asked(study, "scaling", default, size) for size in reversed(sizes)]
    requests += [
        with_anchor(asked(study, "search", setting, max(sizes)), default) for setting in (winner, *others)
    ]
    for visit in range(visits):
        for setting in (default, winner):
            for size in sizes:
                again = asked(study, "scaling", setting, size, visit=visit)
                if visit or (size != max(sizes) and setting != default):
                    is_anchored = size == max(sizes) and setting != default
                    requests.append(with_anchor(again, default) if is_anchored else again)
    return run_all(runner, {each.trial_id: each for each in requests}.values(), study.name)[0]


def with_anchor(request: StepsRequest, default: Setting) -> StepsRequest:
    """The trial with the study's default in its rounds."""
    changed = {"variants": (*request.variants, "anchor"), "anchor": default.at(request.config.world_size)}
    return request.model_copy(update=changed)


def failed(asked: StepsRequest, state: State = "oom", reason: str = "out of memory") -> TrialRecord:
    """The record of a trial that ended so."""
    return TrialRecord(
        study="fake",
        trial_id=asked.trial_id,
        request=asked,
        state=state,
        reason=reason,
        started_at=STARTED_AT,
        wall_time_s=0.1,
    )


def exactly(efficiency: float, plain_s: float = 0.01) -> StepCosts:
    """Costs of this efficiency in weak scaling, all of the loss in transfers."""
    exposed_s = plain_s * (1 / efficiency - 1)
    return StepCosts(plain_s=plain_s, exposed_s=exposed_s, replay_s=max(exposed_s, 1e-5))


def exactly_strong(efficiency: float, base_s: float = 0.02) -> StepCosts:
    """The same in strong scaling on two devices; ``base_s``: one device at the global batch."""
    half_s = base_s / 2
    exposed_s = half_s * (1 / efficiency - 1)
    return StepCosts(plain_s=half_s, base_s=base_s, exposed_s=exposed_s, replay_s=max(exposed_s, 1e-5))


def planted(
    costs: dict[tuple[Any, ...], StepCosts], *knobs: str, is_anchored: bool = True, **fields: Any
) -> StudyResults:
    """A grid on one and two devices; ``costs`` by the values of ``knobs``, the default's first.

    A combination without costs was not measured on two.
    """
    values = [list(dict.fromkeys(key[place] for key in costs)) for place in range(len(knobs))]
    spec, first = study(knobs=dict(zip(knobs, values, strict=True)), **fields), next(iter(costs.values()))
    alone = dict[Setting, StepCosts]()  # one device has no buckets
    for key, each in costs.items():
        named = dict(zip(knobs, key, strict=True))
        alone.setdefault(spec.knobs.default().model_copy(update=named).at(1), each)

    def model(config: Configuration, setting: Setting) -> StepCosts:
        key = tuple(getattr(setting, name) for name in knobs)
        if config.world_size > 1:
            return costs[key]
        found = costs.get(key) or alone.get(setting, first)
        return replace(found, plain_s=found.base_s or found.plain_s)  # one device has the global batch

    def is_planted(request: TrialRequest) -> tuple[State, str] | None:
        config: Any = request.config
        key, several = tuple(getattr(config.setting, name) for name in knobs), config.world_size > 1
        return ("crashed", "not planted") if several and key not in costs else None

    records = grid(spec, (1, 2), FakeRunner(model, QUIET, fail=is_planted), is_anchored)[0]
    return analyse(spec, [record for record in records if record.reason != "not planted"])


def trained(study: Study, sizes: Iterable[int], learning: FakeLearning | None = None) -> list[TrialRecord]:
    """Every seed of the study's training on so many devices."""
    assert study.training is not None
    setting = study.knobs.default()
    requests = [
        TrainingRequest(
            config=config(workload=study.workload, setting=setting.at(size), world_size=size, seed=seed),
            training=study.training.model_copy(update={"seeds": (seed,)}),
        )
        for seed in study.training.seeds
        for size in sizes
    ]
    return run_all(FakeRunner(learning=learning, seed=3), requests, study.name)[0]


def planned_training(devices: int = 2, **fields: Any) -> Plan:
    """A study of its own on real input that trains four epochs with three seeds."""
    given = {
        "workload": {"name": "vision", "input": "real"},
        "training": {"epochs": 4, "seeds": 3, "target_accuracy": 0.7, "learning_rate_scaling": "linear"},
        "measure": {"half_width": 0.02},
    } | fields
    return make_plan(study(**given), Resources("cpu", devices, "a CPU"))


def trained_study(learning: FakeLearning, devices: int = 2, **fields: Any) -> tuple[Plan, list[TrialRecord]]:
    """That study, its trials of steps and of training."""
    plan = planned_training(devices, **fields)
    runner = FakeRunner(noise=Noise(block=0.005, step=0.002), learning=learning, seed=4)
    return plan, run_all(runner, [*plan.trials(), *training_requests(plan)])[0]


def cured_study(name: str = "fake", devices: int = 2) -> StudyResults:
    """An ablation: a step of 32 in 10 ms, one of 512 in 80 ms; the cure learns a point more."""

    def costs(config: Configuration, setting: Setting) -> StepCosts:
        step_s = 0.010 if config.global_batch_size == 32 else 0.080
        return StepCosts(plain_s=step_s, base_s=step_s, exposed_s=0.005 if config.world_size > 1 else 0.0)

    spec = study(
        name=name,
        workload={"name": "vision", "input": "real"},
        scaling={"mode": "strong"},
        knobs={"batch_size": [32, 128], "gradient_accumulation": [1, 4]},
        search={"method": "ablation"},
        training={"epochs": 3, "seeds": 3},
    )
    plan = make_plan(spec, Resources("cpu", devices, "a CPU"))
    learning = FakeLearning(num_train=5120, spread=0.0)
    records = run_all(FakeRunner(costs, QUIET, learning=learning), training_requests(plan))[0]
    return analyse(plan.study, [_better(record) if _is_cure(record) else record for record in records])


def _is_cure(record: TrialRecord) -> bool:
    return record.config.global_batch_size == 512


def _better(record: TrialRecord) -> TrialRecord:
    assert record.training is not None
    last = record.training.epochs[-1]
    better = last.model_copy(update={"test_correct": (last.test_correct or 0) + 100})  # of 10,000
    result = record.training.model_copy(update={"epochs": (*record.training.epochs[:-1], better)})
    return record.model_copy(update={"result": result})

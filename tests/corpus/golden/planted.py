"""Studies on planted hardware, by which ``make.py --measure`` makes results directories without a process."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from raybench.analysis.findings.finding import FindingName
from raybench.driver.session import Session, run_sweep
from raybench.driver.stages import run_study
from raybench.errors import Interrupted
from raybench.machine.host import Resources
from raybench.plan.make_plan import make_plan
from raybench.records.messages import GroupInfo, Member, OnProgress, Outcome
from raybench.records.record import State
from raybench.records.requests import Configuration, TrialRequest
from raybench.records.results import LossParity, StepsResult
from raybench.records.store import ResultsDirectory
from raybench.spec.knobs import Setting
from tests.corpus.make import pack
from tests.support.planted import FakeHardware, FakeLearning, FakeLink, FakeRunner, Noise, StepCosts, causes
from tests.unit import sweeps
from tests.unit.runs import Watched
from tests.unit.studies import MACHINE, study

GIB = 2**30
NOISE = Noise(block=0.01, step=0.005)
KNOBS = {"batch_size": [128, 32, 512], "bucket_cap_mb": ["default", 1, 25]}
MEASURE = {"half_width": 0.03, "max_seconds": 4}
PRICES = {"price_per_device_hour": 1.5}
REAL = {"name": "vision", "input": "real"}


class TwoNodes(FakeRunner):
    """Workers that stand on two nodes in turn halves."""

    def start(self, world_size: int, environment: dict[str, str], *, anew: bool = False) -> GroupInfo:
        """Half of the workers on each node."""
        before = self._group
        group = super().start(world_size, environment, anew=anew)
        if group is not before:
            half, name = (world_size + 1) // 2, group.members[0].device_name
            members = (
                Member(rank, f"node{rank // half}", f"host{rank // half}", rank % half, name)
                for rank in range(world_size)
            )
            self._group = group = GroupInfo(tuple(members), group.number)
        return group


class Parity(FakeRunner):
    """Every strategy's losses are held against one device's; those of ``fsdp`` are off."""

    def run(self, request: TrialRequest, on_progress: OnProgress) -> Outcome:
        """The trial, with its losses."""
        outcome = super().run(request, on_progress)
        if not isinstance(outcome.result, StepsResult) or request.config.world_size == 1:
            return outcome
        config: Any = request.config
        off = 0.2 if config.setting.strategy == "fsdp" else 0.0
        parity = LossParity(
            samples_per_step=64,
            losses=(2.0, 1.5 + off, 1.0),
            reference_losses=(2.0, 1.5, 1.0),
            gradient_difference=off,
        )
        return replace(outcome, result=outcome.result.model_copy(update={"parity": parity}))


class CutShort(FakeRunner):
    """Somebody presses Ctrl-C after the fifth trial."""

    def run(self, request: TrialRequest, on_progress: OnProgress) -> Outcome:
        """The trial, or the interrupt."""
        if len(self.requests) == 5:
            raise Interrupted("planted")
        return super().run(request, on_progress)


def measure(
    to: Path,
    runner: FakeRunner,
    *,
    devices: int = 2,
    device: str = "cpu",
    nodes: int = 1,
    variables: dict[str, str] | None = None,
    **fields: Any,
) -> None:
    """Run the study of ``fields`` and pack its results directory."""
    spec = study(**{"name": to.name, "measure": MEASURE} | fields)
    plan = make_plan(spec, Resources(device, devices, f"fake {device}", nodes))  # type: ignore[arg-type]
    with tempfile.TemporaryDirectory() as folder:
        machine = MACHINE.model_copy(update={"variables": variables or {}})
        with (
            suppress(Interrupted),
            ResultsDirectory.create(Path(folder) / to.name, plan.study, machine) as store,
        ):
            run_study(Session(plan, runner, store, Watched(), verify=True))
        pack(Path(folder) / to.name, to)


def caused(to: Path, name: FindingName, seed: int, kind: str = "") -> None:
    """A study on a sound machine with one planted fault."""
    random = np.random.default_rng(seed)
    site = causes.sound_site(random)
    cause = next(each for each in causes.CAUSES if (each.name, each.kind) == (name, kind))
    site = cause.plant(site, site.step_s / 2, random)
    measure(
        to,
        _runner(seed, site.noise, hardware=site.hardware, num_devices=site.world_size, device=site.device),
        devices=site.world_size,
        device=site.device,
        **{"workload": {"name": "mlp"}, "knobs": site.knobs, "search": {"method": "grid"}} | site.fields,
    )


def swept(to: Path, runner: FakeRunner, **fields: Any) -> None:
    """The same of a sweep."""
    plan = sweeps.planned(**fields)
    with tempfile.TemporaryDirectory() as folder:
        with ResultsDirectory.create(Path(folder) / to.name, plan.sweep, MACHINE) as store:
            run_sweep(plan, runner, store, Watched(), ())
        pack(Path(folder) / to.name, to)


def _fails(request: TrialRequest) -> tuple[State, str] | None:
    config: Any = request.config
    setting = config.setting
    if request.config.world_size > 1 and setting.bucket_cap_mb == 1:
        return "crashed", "RuntimeError: planted"
    if request.config.world_size > 1 and setting.bucket_cap_mb == 25:
        return "timeout", "no end after 120 s"
    return None


def _by_strategy(config: Configuration, setting: Setting) -> StepCosts:
    costs = FakeHardware().costs(config, setting)
    slower = {"fsdp": 1.15, "dp": 1.4}.get(setting.strategy, 1.0)
    return StepCosts(**vars(costs) | {"exposed_s": costs.exposed_s * slower, "wrapper_s": 0.001 * slower})


def _by_variable(config: Configuration, setting: Setting) -> StepCosts:
    return StepCosts(plain_s=0.010, exposed_s=0.004 if config.environment["FAST"] == "0" else 0.001)


def _by_place(config: Configuration, setting: Setting) -> StepCosts:
    hardware = FakeHardware(bandwidth_bytes_per_s=5e8 if config.placement == "spread" else 2e9)
    return hardware.costs(config, setting)


def _runner(seed: int, noise: Noise = NOISE, **fields: Any) -> FakeRunner:
    hardware = fields.pop("hardware", FakeHardware())
    return FakeRunner(fields.pop("costs", hardware.costs), noise, seed=seed, **fields)


PLANTED: dict[str, Callable[[Path], None]] = {
    "search": lambda to: measure(
        to,
        _runner(1),
        devices=4,
        knobs=KNOBS | {"precision": ["fp32", "bf16"]},
        search={"method": "optuna", "trials": 6},
    ),
    "grid": lambda to: measure(to, _runner(2), knobs=KNOBS, search={"method": "grid"}),
    "ablation": lambda to: measure(
        to,
        _runner(3),
        devices=4,
        search={"method": "ablation"},
        knobs={
            "batch_size": [32, 128],
            "precision": ["fp32", "bf16"],
            "gradient_compression": ["none", "bf16"],
        },
    ),
    "starts": lambda to: measure(
        to,
        _runner(4, Noise(block=0.01, step=0.005, start=0.03)),
        knobs={"batch_size": [32, 512]},
        search={"method": "grid"},
        measure=MEASURE | {"starts": 3},
    ),
    "process_knobs": lambda to: measure(
        to,
        _runner(5, costs=_by_variable),
        knobs={"batch_size": [64]},
        environment={"FAST": ["0", "1"]},
        search={"method": "optuna", "trials": 2},
        measure=MEASURE | {"starts": 2},
    ),
    "process_knobs_once": lambda to: measure(
        to,
        _runner(27, costs=_by_variable),
        knobs={"batch_size": [64]},
        environment={"FAST": ["0", "1"]},
        search={"method": "optuna", "trials": 2},
    ),
    "failures": lambda to: measure(
        to,
        _runner(6, fail=_fails, memory_limit_bytes=int(1.3 * GIB)),
        knobs=KNOBS,
        search={"method": "grid"},
    ),
    "learning": lambda to: measure(
        to,
        _runner(7, learning=FakeLearning(num_train=20_000, per_device=-0.003)),
        workload=REAL,
        knobs={"batch_size": [64, 16]},
        training={"epochs": 4, "seeds": 3, "target_accuracy": 0.7},
        cost=PRICES,
    ),
    "sweep": lambda to: swept(
        to,
        FakeRunner(
            noise=NOISE,
            seed=8,
            num_devices=4,
            link=FakeLink(kinks=((1 << 20, 1.3),)),
        ),
        world_sizes="all",
        message_bytes=tuple(16**k for k in range(2, 7)),
        collectives=("all_reduce", "all_gather", "reduce_scatter", "broadcast"),
    ),
    "strong": lambda to: measure(
        to,
        _runner(9, hardware=FakeHardware(offset_s=(0.0, 0.002))),
        devices=8,
        scaling={"mode": "strong"},
        knobs={"batch_size": [256, 64]},
        search={"method": "grid"},
        cost=PRICES,
    ),
    "fsdp": lambda to: measure(
        to,
        _runner(10, costs=_by_strategy, device="cuda"),
        devices=4,
        device="cuda",
        knobs={"strategy": ["single", "ddp", "fsdp"], "batch_size": [64]},
        search={"method": "grid"},
    ),
    "dp": lambda to: measure(
        to,
        _runner(11, costs=_by_strategy, device="cuda"),
        devices=2,
        device="cuda",
        knobs={"strategy": ["ddp", "dp"], "batch_size": [64, 128]},
        search={"method": "grid"},
    ),
    "largest_batch": lambda to: measure(
        to,
        _runner(
            12,
            hardware=FakeHardware(memory_fixed_bytes=GIB, memory_sample_bytes=1 << 24),
            device="cuda",
            memory_limit_bytes=8 * GIB,
        ),
        device="cuda",
        knobs={"batch_size": ["max", 32]},
    ),
    "placements": lambda to: measure(
        to,
        TwoNodes(_by_place, NOISE, seed=13),
        devices=4,
        nodes=2,
        scaling={"placement": ["pack", "spread"]},
        knobs={"batch_size": [64]},
        cost=PRICES,
    ),
    "objectives": lambda to: measure(
        to,
        _runner(14),
        knobs={"batch_size": [128, 32, 512]},
        search={"method": "optuna", "objectives": ["throughput", "peak_memory"]},
    ),
    "measured_again": lambda to: measure(
        to,
        _runner(15, Noise(block=0.05, step=0.02, preemption=0.2, start=0.1, drift_per_minute=0.2)),
        devices=4,
        knobs=KNOBS,
        search={"method": "optuna", "trials": 5},
    ),
    "data_bound": lambda to: measure(
        to,
        _runner(
            16,
            hardware=FakeHardware(
                data_s=0.01,
                jitter_s=0.004,
                gradient_bytes=64 << 20,
                extra={"restart_s": 0.4, "other_cores": 0.7, "host_cores": 4, "utilization": 0.5},
            ),
        ),
        workload=REAL,
        devices=4,
        knobs={"batch_size": [64], "workers": [0, 2]},
        search={"method": "grid"},
        cost=PRICES,
    ),
    "learning_changed": lambda to: measure(
        to,
        _runner(17, learning=FakeLearning(num_train=5120)),
        workload=REAL,
        scaling={"mode": "strong"},
        knobs={"batch_size": [32, 128], "gradient_accumulation": [1, 4]},
        search={"method": "ablation"},
        training={"epochs": 3, "seeds": 3},
        cost=PRICES,
    ),
    "parity": lambda to: measure(
        to,
        Parity(_by_strategy, NOISE, seed=18, device="cuda"),
        device="cuda",
        scaling={"mode": "strong"},
        knobs={"strategy": ["ddp", "fsdp"], "batch_size": [64]},
        search={"method": "grid"},
    ),
    "cut_short": lambda to: measure(
        to,
        CutShort(FakeHardware().costs, NOISE, seed=19),
        knobs=KNOBS,
        search={"method": "grid"},
    ),
    "oversubscribed": lambda to: measure(
        to,
        _runner(20),
        knobs={"batch_size": [64, 256]},
        search={"method": "grid"},
        scaling={"world_sizes": [1, 2, 4]},
        resources={"oversubscribe": True},
    ),
    "latency": lambda to: caused(to, FindingName.COMMUNICATION_BOUND, 21, "latency"),
    "uneven_batches": lambda to: caused(to, FindingName.JITTER, 24, "uneven batches"),
    "pcie": lambda to: caused(to, FindingName.CONTENTION, 25, "GPUs"),
    "throttled": lambda to: caused(to, FindingName.THROTTLING, 26),
}

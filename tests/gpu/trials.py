"""Trials on ranks of their own GPUs, one after the other in the same processes, without Ray."""

from __future__ import annotations

from pathlib import Path
from time import perf_counter
from typing import Any

import torch
import torch.distributed as dist

from raybench.analysis.largest_batch import decide, probe_of
from raybench.machine.host import Resources
from raybench.plan.make_plan import make_plan
from raybench.plan.trials import Plan
from raybench.records.messages import OnProgress, Outcome
from raybench.records.record import TrialRecord
from raybench.records.requests import StepsRequest, TrainingRequest, TrialRequest, Variant
from raybench.spec.knobs import Setting
from raybench.spec.study import MeasureSpec, OptimizerSpec, Study, TrainingSpec
from raybench.spec.workloads import FactorySpec
from raybench.worker.communicators import Communicators
from raybench.worker.devices import open_device
from raybench.worker.group_cache import GroupCache
from raybench.worker.trial import run_trial
from tests.unit import studies

TIMEOUT_S = 120.0
ALL: tuple[Variant, ...] = ("plain", "concurrent", "local", "ddp", "replay")
SHORT: tuple[Variant, ...] = ("plain", "ddp")
FACTORY = "tests.gpu.workloads:images"


class Worker:
    """What one rank keeps from trial to trial."""

    def __init__(self, *, shared: bool = False) -> None:
        """``shared``: all ranks are on one GPU, where NCCL refuses them."""
        if torch.cuda.is_available():
            place = torch.device("cuda", 0 if shared else dist.get_rank())
        else:  # how these trials are tried without a GPU
            place = torch.device("cpu")
        self.device, self.cache = open_device(place), GroupCache()
        if shared:
            self.device.data_backend, self.device.frees_waiting_ranks = "gloo", True
        self.communicators = Communicators(self.device.data_backend)

    def run(
        self,
        request: TrialRequest,
        on_progress: OnProgress = lambda progress: None,
        results: Path | None = None,
    ) -> Outcome:
        """How it ended on this rank; a rank that takes no part has nothing to tell."""
        ranks = tuple(range(request.config.world_size))
        result = run_trial(
            request, ranks, self.communicators, self.device, self.cache, on_progress, results=results
        )
        if result is None:
            return Outcome("complete")
        if result.broken:
            self.communicators.drop_team()
        return result

    def record(self, request: TrialRequest) -> TrialRecord:
        began = perf_counter()
        found = self.run(request)
        outcome = Outcome(found.state, perf_counter() - began, found.reason, found.result)
        return outcome.to_record(request, study="gpu", started_at="now")


def run_all(
    requests: dict[str, TrialRequest], shared: bool = False
) -> tuple[dict[str, Outcome], dict[str, int]]:
    """On each rank: how each trial ended, and what torch had allocated when it was over, in bytes."""
    worker, found, left = Worker(shared=shared), dict[str, Outcome](), dict[str, int]()
    for name, request in requests.items():
        found[name] = worker.run(request)
        left[name] = torch.cuda.memory_allocated() if worker.device.kind == "cuda" else 0
    worker.communicators.drop_team()
    return found, left


def steps(
    world_size: int,
    workload: dict[str, Any] | None = None,
    variants: tuple[Variant, ...] | None = None,
    role: Any = "scaling",
    measure: MeasureSpec | None = None,
    **setting: Any,
) -> StepsRequest:
    """A trial of steps of a few seconds."""
    return studies.request(
        role=role,
        workload=FactorySpec.model_validate({"factory": FACTORY} | (workload or {})),
        optimizer=OptimizerSpec(name="adam", learning_rate=0.001),
        setting=Setting.model_validate({"batch_size": 64} | setting),
        world_size=world_size,
        device="cuda",
        variants=variants or (("plain",) if world_size == 1 else ALL),
        measure=measure
        or MeasureSpec(min_rounds=6, half_width=0.05, max_seconds=5, timeout_seconds=TIMEOUT_S),
    )


def largest_batch_plan(mib: float, devices: int) -> Plan:
    study = {
        "name": "largest",
        "workload": {"factory": FACTORY, "mib": mib},
        "knobs": {"batch_size": "max"},
        "measure": {"timeout_seconds": TIMEOUT_S},
        "scaling": {"world_sizes": [devices]},
    }
    return make_plan(Study.model_validate(study), Resources("cuda", devices, "a GPU"))


def find_largest(mib: float, devices: int, shared: bool = False) -> list[str]:
    """On each rank: the probes of "max", as an execution asks for them, as lines of records."""
    worker, records, plan = Worker(shared=shared), list[TrialRecord](), largest_batch_plan(mib, devices)
    (combination,) = plan.combinations()
    while True:
        found = decide(combination, plan.target, map(probe_of, records), plan.rules(combination))
        if found.next_batch is None:
            worker.communicators.drop_team()
            return [record.model_dump_json() for record in records]
        records.append(worker.record(plan.probe(combination, found.next_batch)))
        told: list[Any] = [records[-1].model_dump_json()]
        dist.broadcast_object_list(told, src=0)
        records[-1] = TrialRecord.model_validate_json(told[0])


def fill(mib: float, shared: bool) -> tuple[int | None, Outcome, Outcome]:
    """On each of two ranks: the largest batch, how all variants end with it, and a small trial after them."""
    records = [TrialRecord.model_validate_json(line) for line in find_largest(mib, 2, shared)]
    plan = largest_batch_plan(mib, 2)
    (combination,) = plan.combinations()
    found = decide(combination, plan.target, map(probe_of, records), plan.rules(combination))
    worker = Worker(shared=shared)
    request = steps(2, {"mib": mib}, (*ALL, "anchor"), role="search", batch_size=found.batch_size or 1)
    full = worker.run(request.model_copy(update={"anchor": Setting(batch_size=1)}))
    after = worker.run(steps(2, role="search"))
    worker.communicators.drop_team()
    return found.batch_size, full, after


def train_and_resume(folder: Path) -> tuple[Outcome, Outcome, Outcome]:
    """On each of two ranks of one GPU: a training, the same ended after two epochs, and that gone on with."""
    worker = Worker(shared=True)
    workload = {"factory": "tests.ranks.trainable:clouds", "dropout": 0.3, "shaken": True, "train": 54}
    request = TrainingRequest(
        config=studies.config(
            workload=FactorySpec.model_validate(workload | {"input": "real"}),
            optimizer=OptimizerSpec(name="adam", learning_rate=0.01),
            setting=Setting(batch_size=8),
            world_size=2,
            device="cuda",
        ),
        training=TrainingSpec(epochs=4, timeout_seconds=TIMEOUT_S),
    )

    def stop(progress: Any) -> None:
        if progress.phase == "epoch" and progress.detail.startswith("epoch 2"):
            raise RuntimeError(progress.detail)

    whole = worker.run(request, results=folder / "whole")
    broken = worker.run(request, stop, folder / "broken")
    worker.communicators.drop_team()  # as the worker does after a broken trial
    resumed = worker.run(request, results=folder / "broken")
    worker.communicators.drop_team()
    return whole, broken, resumed

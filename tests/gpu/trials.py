"""Trials on ranks of their own GPUs, one after the other in the same processes, without Ray."""

from __future__ import annotations

from time import perf_counter
from typing import Any

import torch
import torch.distributed as dist

from raybench.analysis.largest_batch import decide, probe_of
from raybench.machine.host import Resources
from raybench.plan.resolve import make_plan
from raybench.plan.trials import Plan
from raybench.records.messages import Outcome
from raybench.records.record import TrialRecord
from raybench.records.requests import StepsRequest, TrialRequest, Variant
from raybench.spec.knobs import Setting
from raybench.spec.study import MeasureSpec, OptimizerSpec, Study
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

    def __init__(self) -> None:
        kind = "cuda" if torch.cuda.is_available() else "cpu"
        place = torch.device(kind, dist.get_rank()) if kind == "cuda" else torch.device(kind)
        self.device, self.cache = open_device(place), GroupCache()
        self.communicators = Communicators(self.device.data_backend)

    def run(self, request: TrialRequest) -> Outcome:
        """How it ended on this rank; a rank that takes no part has nothing to tell."""
        ranks = tuple(range(request.config.world_size))
        result = run_trial(request, ranks, self.communicators, self.device, self.cache, lambda progress: None)
        if result is None:
            return Outcome("complete")
        if result.broken:
            self.communicators.drop_team()
        return result

    def record(self, request: TrialRequest) -> TrialRecord:
        began = perf_counter()
        found = self.run(request)
        outcome = Outcome(found.state, perf_counter() - began, found.reason, found.result)
        return outcome.to_record(request, study="gpu", suggestion=None, started_at="now")


def run_all(requests: dict[str, TrialRequest]) -> tuple[dict[str, Outcome], dict[str, int]]:
    """On each rank: how each trial ended, and what torch had allocated when it was over, in bytes."""
    worker, found, left = Worker(), dict[str, Outcome](), dict[str, int]()
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
        measure=MeasureSpec(min_rounds=6, half_width=0.05, max_seconds=6, timeout_seconds=TIMEOUT_S),
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


def find_largest(mib: float, devices: int) -> list[str]:
    """On each rank: the probes of "max", as an execution asks for them, as lines of records."""
    worker, records, plan = Worker(), list[TrialRecord](), largest_batch_plan(mib, devices)
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

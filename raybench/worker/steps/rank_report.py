"""What ranks know beside step times when the rounds are done, and what a measurement says of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.nn.parallel import DistributedDataParallel

from raybench.records.requests import TrialRequest
from raybench.worker.devices import probe as probing
from raybench.worker.steps.rounds import LoopResult
from raybench.worker.strategies.models import Bench
from raybench.workloads import Workload
from raybench.workloads.protocol import samples_of, tokens_of


@dataclass(frozen=True)
class RankFacts:
    """What each rank knows of itself when the rounds are done."""

    peak_memory_bytes: int | None
    device_memory_bytes: int | None
    utilization: float | None
    energy_joules: float | None  # over all timed steps of synced
    recompiled: int  # graphs, within the rounds
    samples: int  # of a micro-batch
    tokens: float | None


def count(request: TrialRequest, workload: Workload, bench: Bench) -> tuple[int, float | None]:
    """Samples and tokens of a micro-batch of this rank."""
    batch = bench.batches.next()
    counted = samples_of(workload, batch)
    samples = request.config.batch_size if counted is None else counted
    return samples, tokens_of(workload, batch, samples)


def memory_of_ranks(facts: Sequence[RankFacts], led: Sequence[int]) -> dict[str, tuple[int, ...] | None]:
    """Peaks of memory, those of the leader's ``led`` devices in place of the ranks' own (dp)."""
    peaks: Sequence[int | None] = led or [rank.peak_memory_bytes for rank in facts]
    return {
        "peak_memory_bytes": all_known(peaks),
        "device_memory_bytes": all_known([rank.device_memory_bytes for rank in facts]),
    }


def per_step(request: TrialRequest, facts: Sequence[RankFacts]) -> dict[str, float | None]:
    """Samples and tokens of one step of all ranks, and samples with the other setting."""
    accumulation = request.config.setting.gradient_accumulation
    samples = sum(rank.samples for rank in facts)
    tokens = [rank.tokens for rank in facts if rank.tokens is not None]
    counts: dict[str, float | None] = {"samples_per_step": float(samples * accumulation)}
    if len(tokens) == len(facts):
        counts["tokens_per_step"] = float(sum(tokens) * accumulation)
    if request.versus is not None:
        larger = request.config.micro_batch(request.versus) / request.config.batch_size
        counts["versus_samples_per_step"] = samples * larger * request.versus.gradient_accumulation
    return counts


def device_facts(facts: Sequence[RankFacts], result: LoopResult, device: torch.device) -> dict[str, Any]:
    """Utilisation and energy, None where the devices do not tell."""
    joules, used = [rank.energy_joules for rank in facts], None
    if device.type == "cuda":
        used = tuple(rank.utilization for rank in facts)
    energy = None
    if result.synced_steps and all(value is not None for value in joules):
        energy = sum(value for value in joules if value is not None) / result.synced_steps
    return {"device_utilization": used, "energy_joules": energy}


def ddp_facts(setting_compression: str, bench: Bench) -> dict[str, object]:
    """DDP's buckets, the bytes that travel, and its own logger; nothing under another strategy."""
    if bench.real is None or not isinstance(bench.real.module, DistributedDataParallel):
        return {}
    data = probing.logging_data(bench.real.module)
    sizes = probing.bucket_bytes(data)
    halved = 2 if setting_compression != "none" else 1
    return {
        "bucket_bytes": sizes,
        "gradient_bytes": sum(sizes) // halved,
        "ddp_logger": probing.logger_times(data),
    }


def all_known(values: Sequence[int | None]) -> tuple[int, ...] | None:
    """The values, where every rank has one."""
    known = [value for value in values if value is not None]
    return tuple(known) if len(known) == len(values) else None

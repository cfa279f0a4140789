"""Floating-point operations: those of a step, and the most that a device does in a second."""

from __future__ import annotations

from itertools import pairwise
from time import perf_counter

import torch
from torch.utils.flop_counter import FlopCounterMode

from raybench.records.requests import Configuration
from raybench.worker.communicators import Team
from raybench.worker.devices.device import Device
from raybench.worker.group_cache import GroupCache
from raybench.worker.strategies import transforms
from raybench.worker.strategies.models import StrategyModels
from raybench.worker.strategies.stepper import AUTOCAST, Stepper

PEAK_REPEATS = 7  # at least


def count_or_step(models: StrategyModels, config: Configuration, cache: GroupCache) -> None:
    """A step of the bare model, its operations counted once for each batch, for the group's later trials."""
    key, compiled = flops_key(config), models.setting.compile
    known = key in cache.flops
    if not known:
        with transforms.eager(compiled):
            cache.flops[key] = _count_flops(models.bare)
    if known or compiled:
        models.bare.step()


def flops_key(config: Configuration) -> str:
    """What the operations of a step depend on."""
    setting = config.setting
    twice = setting.activation_checkpointing  # what is computed again is counted again
    model = config.workload.model_dump_json()
    return f"{model} {config.batch_size} {setting.gradient_accumulation} {twice}"


def matrix_peak(precision: str, team: Team, cache: GroupCache, device: Device) -> dict[str, float | None]:
    """In FLOP/s, measured on the leader while the others wait, once for each precision of a group.

    The result's field; None on the others. A collective call.
    """
    key, peaks = f"{precision} {torch.get_num_threads()}", cache.matrix_peaks

    def measure() -> float | None:
        if key not in peaks and team.leads:
            peaks[key] = _matrix_peak_flops_per_s(device, precision)
        return peaks.get(key)

    return {"matrix_peak_flops_per_s": team.agreed(measure)}


def _count_flops(stepper: Stepper) -> float:
    """Floating-point operations of one step of ``stepper`` (a real step is run), as torch counts them."""
    with FlopCounterMode(display=False) as counter:
        stepper.step()
    return float(counter.get_total_flops())


def _matrix_peak_flops_per_s(device: Device, precision: str) -> float:
    """The best of several square matrix products on this device alone, 2 n³ operations each."""
    side = device.matrix_side
    dtype = AUTOCAST.get(precision, torch.float32)
    left = torch.randn(side, side, device=device.torch_device).to(dtype)
    right = torch.randn(side, side, device=device.torch_device).to(dtype)
    device.synchronize()
    marks = [perf_counter()]
    # as long as a block: the first products only bring the clock up
    while len(marks) <= PEAK_REPEATS or marks[-1] - marks[0] < device.block_seconds:
        torch.matmul(left, right)
        device.synchronize()
        marks.append(perf_counter())
    return 2 * side**3 / min(after - before for before, after in pairwise(marks))

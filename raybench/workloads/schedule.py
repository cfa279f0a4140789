"""The learning rates of a workload's own scheduler, step by step."""

from __future__ import annotations

import copy
import inspect
import warnings
from collections import defaultdict
from typing import Any

import torch
from torch.optim.lr_scheduler import LRScheduler, ReduceLROnPlateau

from raybench.errors import InvalidTrialError
from raybench.workloads.protocol import Workload


class Schedule:
    """What a scheduler would set: it runs on an optimizer of its own, which is never stepped.

    So the measured optimizer keeps the rates that it began with, as a study's rule for larger batches and a
    resumed training need them.
    """

    def __init__(self, scheduler: Any, steps_per_epoch: int) -> None:
        """``scheduler`` steps after each optimizer step; in a pair with "epoch" after each epoch.

        Raises ``InvalidTrialError`` for what cannot step so.
        """
        made, interval = scheduler if isinstance(scheduler, tuple) else (scheduler, "step")
        by_metric = isinstance(made, ReduceLROnPlateau)
        if not isinstance(made, LRScheduler) or by_metric or interval not in ("step", "epoch"):
            rule = 'scheduler(optimizer): a torch LRScheduler that needs no metric, or (scheduler, "epoch")'
            received = f"({type(made).__name__}, {interval!r})" if interval != "step" else type(made).__name__
            raise InvalidTrialError(f"{rule} (received {received})")
        self._scheduler, self._every = made, steps_per_epoch if interval == "epoch" else 1
        self._steps = 0  # of the scheduler

    def rates(self, step: int) -> list[float]:
        """Of every parameter group in optimizer step ``step``, counted from 0; steps only grow."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that the optimizer is not stepped
            while self._steps < step // self._every:
                self._scheduler.step()
                self._steps += 1
        return [float(group["lr"]) for group in self._scheduler.optimizer.param_groups]


def schedule_of(
    workload: Workload, optimizer: torch.optim.Optimizer, epochs: int, steps_per_epoch: int
) -> Schedule | None:
    """That of a training of so many steps from ``optimizer`` as it was made; None: the workload has none."""
    make = getattr(workload, "scheduler", None)
    if make is None:
        return None
    own = _without_parameters(optimizer)
    takes_steps = "steps" in inspect.signature(make).parameters
    scheduler = make(own, steps=epochs * steps_per_epoch) if takes_steps else make(own)
    return None if scheduler is None else Schedule(scheduler, steps_per_epoch)


def _without_parameters(optimizer: torch.optim.Optimizer) -> torch.optim.Optimizer:
    """The same optimizer with a number for each parameter, and no state."""
    memo: dict[int, Any] = {id(optimizer.state): defaultdict(dict)}
    for group in optimizer.param_groups:
        memo |= {id(parameter): torch.zeros(1) for parameter in group["params"]}
    return copy.deepcopy(optimizer, memo)

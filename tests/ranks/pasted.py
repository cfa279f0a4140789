"""The code of two reports, run as whoever pasted it would: epochs of both in turn, in the same processes.

Every step of the optimizer waits, so that fewer of them are a gain on whatever machine.
"""

from __future__ import annotations

from time import perf_counter, sleep
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import TensorDataset

FEATURES, SAMPLES = 16, 128
STEP_S = 0.020  # that a step of the optimizer takes
ROUNDS = 16


class SlowSGD(torch.optim.SGD):
    """SGD, and a wait."""

    def step(self, closure: Any = None) -> Any:
        sleep(STEP_S)
        return super().step(closure)


def make_model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(FEATURES, FEATURES), nn.ReLU(), nn.Linear(FEATURES, FEATURES))


def make_train_set() -> TensorDataset:
    return TensorDataset(torch.randn(SAMPLES, FEATURES, generator=torch.Generator().manual_seed(1)))


def make_optimizer(parameters: Any) -> torch.optim.Optimizer:
    return SlowSGD(parameters, lr=0.01)


def loss_of(model: nn.Module, batch: list[torch.Tensor]) -> torch.Tensor:
    loss: torch.Tensor = (model(batch[0]) - batch[0]).square().mean()
    return loss


YOURS = {
    "make_model": make_model,
    "make_train_set": make_train_set,
    "make_optimizer": make_optimizer,
    "loss_of": loss_of,
}


class Workload:
    """The same as a study has it."""

    model = staticmethod(make_model)
    loss = staticmethod(loss_of)
    optimizer = staticmethod(make_optimizer)

    def batch(self, size: int, generator: torch.Generator) -> list[torch.Tensor]:
        return [torch.randn(size, FEATURES, generator=generator)]


def build() -> Workload:
    """The workload's factory."""
    return Workload()


def pasted(text: str) -> dict[str, Any]:
    """The names that the code defines, among those that are the user's own."""
    names: dict[str, Any] = dict(YOURS)
    exec(compile(text, "pasted", "exec"), names)
    return names


def ratios(default: str, winner: str, *placed: Any) -> list[float]:
    """Throughput with the winner's code over that with the default's, round by round; on every rank.

    ``placed``: what ``prepare`` takes beside the model.
    """
    epochs = [_Epochs(pasted(text), placed) for text in (default, winner)]
    for each in epochs:
        each.seconds()  # buckets are rebuilt, the optimizer's first step imports
    found = []
    for round_ in range(ROUNDS):
        order = epochs if round_ % 2 else epochs[::-1]
        taken_s = {id(each): each.seconds() for each in order}
        found.append(taken_s[id(epochs[0])] / taken_s[id(epochs[1])])
    return found


class _Epochs:
    """A model under the code's strategy, trained epoch by epoch; every epoch has the same samples."""

    def __init__(self, names: dict[str, Any], placed: tuple[Any, ...]) -> None:
        self._names = names
        self._model = names["prepare"](make_model(), *placed)
        self._optimizer = make_optimizer(self._model.parameters())
        self._loader = names["make_loader"](make_train_set())

    def seconds(self) -> float:
        """Of one epoch, on the slowest rank."""
        dist.barrier()
        begin = perf_counter()
        self._names["train_epoch"](self._model, self._optimizer, self._loader, loss_of)
        taken = torch.tensor(perf_counter() - begin)
        dist.all_reduce(taken, dist.ReduceOp.MAX)
        return float(taken)

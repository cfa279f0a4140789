"""A step of the user's code before the workers start: what fails is a line, what cannot be tried is said."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import TensorDataset

from raybench.errors import RequestError
from raybench.spec.workloads import FactorySpec
from raybench.workloads import first_step
from raybench.workloads.first_step import try_step

SPEC = FactorySpec(factory="own:build")
REAL = FactorySpec(factory="own:build", input="real")


class Own:
    def __init__(self) -> None:
        self.sizes: list[int] = []

    def model(self) -> nn.Module:
        return nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Linear(4, 1))

    def batch(self, size: int, generator: torch.Generator) -> Any:
        return torch.randn(size, 4, generator=generator)

    def dataset(self, split: str) -> Any:
        return TensorDataset(torch.ones(16, 4))

    def loss(self, model: nn.Module, batch: Any) -> Any:
        batch = batch[0] if isinstance(batch, list) else batch
        self.sizes.append(len(batch))
        return model(batch).mean()


def refusal(workload: Any, spec: FactorySpec = SPEC, batch_size: int = 8) -> str:
    with pytest.raises(RequestError) as refused:
        try_step(workload, spec, "cpu", batch_size)
    (line,) = refused.value.problems
    return line.removeprefix("workload.factory: a step before the workers start: ")


@pytest.mark.parametrize("spec", [SPEC, REAL], ids=["synthetic", "real"])
def test_a_step_of_two_samples_is_run(spec: FactorySpec) -> None:
    workload = Own()
    assert try_step(workload, spec, "cpu", 8) is None
    assert workload.sizes == [2]


def test_code_for_whole_batches_is_tried_with_one() -> None:
    class Whole(Own):
        def loss(self, model: nn.Module, batch: Any) -> Any:
            return super().loss(model, batch).view(8 // len(batch)).mean()

    workload = Whole()
    assert try_step(workload, SPEC, "cpu", 8) is None
    assert workload.sizes == [2, 8]


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("model", "model() raised RuntimeError: planted (tests/unit/workloads/test_first_step.py, line"),
        ("batch", "batch(size, generator) raised RuntimeError: planted"),
        ("loss", "loss(model, batch) raised RuntimeError: planted"),
        ("optimizer", "optimizer raised RuntimeError: planted"),
        ("after_backward", "after_backward(model) raised RuntimeError: planted"),
    ],
)
def test_what_raises_is_named_with_its_line(name: str, says: str) -> None:
    def raises(*_: Any) -> None:
        raise RuntimeError("planted")

    workload = Own()
    setattr(workload, name, raises)
    assert says in refusal(workload)


@pytest.mark.parametrize(
    ("loss", "says"),
    [
        (lambda model, batch: model(batch), "grad can be implicitly created only for scalar outputs"),
        (lambda model, batch: model(batch).mean().item(), "'float' object has no attribute 'backward'"),
        (lambda model, batch: model(batch).mean().detach(), "does not require grad"),
    ],
)
def test_a_loss_that_is_none_is_refused(loss: Any, says: str) -> None:
    workload: Any = Own()
    workload.loss = loss
    assert says in refusal(workload)


def test_a_loss_may_communicate() -> None:
    class Gathers(Own):
        def loss(self, model: nn.Module, batch: Any) -> Any:
            output = model(batch)
            dist.all_reduce(output.detach())
            return output.mean() / dist.get_world_size()

    assert try_step(Gathers(), SPEC, "cpu", 8) is None
    assert not dist.is_initialized()


def test_what_is_too_large_for_this_process_is_left_to_the_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(first_step, "MOST_PARAMETERS", 32)
    workload = Own()
    assert try_step(workload, SPEC, "cpu", 8) == "the model has 33 parameters, more than 32"
    assert workload.sizes == []
    monkeypatch.undo()

    class Hungry(Own):
        def loss(self, model: nn.Module, batch: Any) -> Any:
            raise MemoryError("planted")

    assert try_step(Hungry(), SPEC, "cpu", 8) == "there is no memory for it in this process"
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert try_step(Own(), SPEC, "cuda", 8) == "this process sees no GPU"

"""The interface of a workload; nothing to inherit."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from raybench.errors import RequestError

if TYPE_CHECKING:
    import torch
    from torch import nn
    from torch.utils.data import Dataset


@runtime_checkable
class Workload(Protocol):
    """A model, its loss, and batches made up or read.

    Besides ``model`` and ``loss`` a workload has ``batch(size, generator)`` for synthetic input or
    ``dataset(split)`` for real input. Optional, used where it is there: ``optimizer(parameters)``,
    ``samples(batch) -> int``, ``tokens(batch) -> int``, ``metric(output, batch)`` (the number of correct
    predictions, as a tensor; ``output`` is the model's), ``tokens_per_sample() -> float`` (the exact mean
    over the training set, without padding, where batches differ), ``collate(samples) -> batch``, which the
    real loader takes in place of torch's own and which has to be picklable, and
    ``communication_hook(group)``, which returns the state and the hook for DDP's ``register_comm_hook``.
    """

    def model(self) -> nn.Module:
        """A new model on the CPU; torch's generator is seeded before the call."""
        ...

    def loss(self, model: nn.Module, batch: Any) -> torch.Tensor:
        """The mean loss of one batch: the forward pass through ``model``, which may be wrapped."""
        ...


class SyntheticWorkload(Workload, Protocol):
    """Synthetic input."""

    def batch(self, size: int, generator: torch.Generator) -> Any:
        """``size`` samples on the CPU: a tensor, or tuples, lists and dicts of tensors."""
        ...


class RealWorkload(Workload, Protocol):
    """Real input."""

    def dataset(self, split: str) -> Dataset[Any]:
        """A map-style data set; ``split`` is "train" or "test"."""
        ...


def dataset_of(workload: Workload, split: str) -> Any:
    """The workload's data set of real input, with a length and samples by their numbers.

    Raises ``RequestError`` for one without: a rank's share and its order in an epoch are made of numbers.
    """
    from torch.utils.data import IterableDataset

    dataset = workload.dataset(split)  # type: ignore[attr-defined]
    by_number = hasattr(dataset, "__getitem__") or hasattr(dataset, "__getitems__")
    if isinstance(dataset, IterableDataset) or not by_number or not hasattr(dataset, "__len__"):
        raise RequestError(
            f'workload: dataset("{split}") is a map-style data set, with __len__ and __getitem__ '
            f"(received a {type(dataset).__name__})"
        )
    return dataset


def optimizer_of(workload: Workload, parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer | None:
    """The workload's own optimizer, or None."""
    make = getattr(workload, "optimizer", None)
    optimizer: torch.optim.Optimizer | None = make(parameters) if make is not None else None
    return optimizer


def collate_of(workload: Workload) -> Callable[[list[Any]], Any] | None:
    """How the workload makes a batch of samples; None: as ``DataLoader`` does."""
    collate: Callable[[list[Any]], Any] | None = getattr(workload, "collate", None)
    return collate


def metric_of(workload: Workload) -> Callable[[Any, Any], torch.Tensor] | None:
    """The workload's count of correct predictions; None: it has no accuracy."""
    metric: Callable[[Any, Any], torch.Tensor] | None = getattr(workload, "metric", None)
    return metric

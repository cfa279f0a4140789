"""The interface of a workload; nothing to inherit."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from raybench.errors import RequestError
from raybench.spec.workloads import CLIPPING

if TYPE_CHECKING:
    import torch
    from torch import nn
    from torch.utils.data import DataLoader

UNKNOWN_STEPS = 1000  # of a training, where an optimizer alone is made
# of torch and of Accelerate
EVEN_SAMPLERS = ("RandomSampler", "SequentialSampler", "SeedableRandomSampler", "NoneType")


@runtime_checkable
class Workload(Protocol):
    """A model, its loss, and batches made up or read.

    Besides ``model`` and ``loss`` a workload has ``batch(size, generator)`` for synthetic input (so many
    samples on the CPU: a tensor, or tuples, lists and dicts of tensors) or ``dataset(split)`` for real input
    (a map-style data set; ``split`` is "train" or "test"). Optional, used where it is there:
    ``optimizer(parameters)`` or ``optimizer(model)``, told apart by the name of the argument,
    ``scheduler(optimizer)`` or ``scheduler(optimizer, steps)``, ``after_backward(model)`` (gradient
    clipping), ``samples(batch) -> int``, ``tokens(batch) -> int``, ``metric(output, batch)`` (the number of
    correct predictions, as a tensor; ``output`` is the model's), ``tokens_per_sample() -> float`` (the exact
    mean over the training set, without padding, where batches differ), ``collate(samples) -> batch``, which
    the real loader takes in place of torch's own and which has to be picklable,
    ``communication_hook(group)``, which returns the state and the hook for DDP's ``register_comm_hook``, and
    ``left_out()``, names of what else the measured steps have not.
    """

    def model(self) -> nn.Module:
        """A new model on the CPU; torch's generator is seeded before the call."""
        ...

    def loss(self, model: nn.Module, batch: Any) -> torch.Tensor:
        """The mean loss of one batch: the forward pass through ``model``, which may be wrapped."""
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


def read_samples(dataset: Any, indices: Sequence[int]) -> Any:
    """What a loader hands to ``collate``: samples, or what the data set's ``__getitems__`` returns."""
    many = getattr(dataset, "__getitems__", None)
    return many(list(indices)) if many else [dataset[index] for index in indices]


def model_without_storage(workload: Workload) -> nn.Module | None:
    """A model whose tensors take no memory; None where it cannot be made so."""
    import torch

    try:
        with torch.device("meta"):
            return copy.copy(workload).model()  # a copy: what the workload keeps must not be without storage
    except Exception:
        return None


def optimizer_of(workload: Workload, model: nn.Module) -> torch.optim.Optimizer | None:
    """The workload's own optimizer for ``model``, or None.

    Called with the model where the argument is called ``model``, else with the parameters that are trained.
    """
    make = getattr(workload, "optimizer", None)
    if make is None:
        return None
    takes_model = next(iter(inspect.signature(make).parameters), "") == "model"
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimizer: torch.optim.Optimizer = make(model if takes_model else trained)
    return optimizer


def left_out_of(workload: Workload) -> tuple[str, ...]:
    """What a training usually has in a step, and the measured steps of ``workload`` have not."""
    clipping = () if getattr(workload, "after_backward", None) else (CLIPPING,)
    more = getattr(workload, "left_out", tuple[str, ...])
    return (*clipping, "scheduler", "logging", "evaluation", *more())


class OfLoaders:
    """The part of an adapted workload that comes from its DataLoaders, each made once."""

    def __init__(self) -> None:
        self._loaders: dict[str, Any] = {}

    def make_loader(self, split: str) -> Any:
        """The loader of "train" or "test"."""
        raise NotImplementedError

    def loader(self, split: str) -> Any:
        """The same, made when it is first asked for."""
        if split not in self._loaders:
            self._loaders[split] = self.make_loader(split)
        return self._loaders[split]

    def dataset(self, split: str) -> Any:
        """That of the loader."""
        return self.loader(split).dataset

    @property
    def collate(self) -> Callable[[list[Any]], Any]:
        """That of the training loader."""
        return self.loader("train").collate_fn  # type: ignore[no-any-return]


def ignored(*_: Any, **__: Any) -> None:
    """What ``log`` does in the place of a Trainer's."""


def as_made(optimizer: torch.optim.Optimizer) -> torch.optim.Optimizer:
    """``optimizer`` with the rates that it was made with, where a scheduler has already changed them."""
    for group in optimizer.param_groups:
        group["lr"] = group.get("initial_lr", group["lr"])
    return optimizer


def is_changed(value: Any, name: str, packages: Iterable[str]) -> bool:
    """Whether its class has another ``name`` than what it inherits of ``packages``."""
    owner = next((each for each in type(value).__mro__ if name in vars(each)), None)
    return owner is not None and not owner.__module__.startswith(tuple(f"{each}." for each in packages))


def other_sampler(loader: DataLoader[Any]) -> tuple[str, ...]:
    """The name of a loader's sampler that does not draw each sample once an epoch, as raybench does."""
    batches = loader.batch_sampler
    name = type(getattr(batches, "sampler", batches)).__name__
    return () if name in EVEN_SAMPLERS else (name,)

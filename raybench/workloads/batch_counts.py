"""How many samples and tokens a batch has: what every rate is made of, so it is never taken on trust."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import torch

from raybench.errors import InvalidBatchError
from raybench.workloads.protocol import OfLoaders, Workload

# A list or tuple of more elements than these, as many as the requested samples, is a list of samples; fewer
# are parts of a batch (inputs, labels), and such a part has still fewer of its own.
MOST_PARTS, MOST_PARTS_OF_A_PART = 8, 3
MEAN_OVER_BATCH = 100  # times the elements of one batch; more tokens than that no mean over a data set has


def samples_of(workload: Workload, batch: Any, requested: int, source: str = "the batch") -> int:
    """The samples of ``batch``: those that the workload counts, else those that were requested.

    Raises ``InvalidBatchError`` where it does not hold ``requested`` samples (an adapter's collator may pack
    them as it likes), or cannot hold what the workload counts. Nothing waits for a device.
    """
    count = getattr(workload, "samples", None)
    if count is None:
        sizes = sorted(_sizes(batch, requested))
        if sizes != [requested] and not isinstance(workload, OfLoaders):
            found = f"first dimensions of {', '.join(map(str, sizes[:5]))}" if sizes else type(batch).__name__
            raise InvalidBatchError(
                f"{source}: {requested} samples, as asked for, counted in tensors, tuples, lists and dicts "
                f"(received {found}; where that is meant a method samples(batch) of the workload says it)"
            )
        return requested
    reported = _number(count(batch), "samples(batch)")
    most = max(_sizes(batch, requested) | {requested})
    if reported != int(reported) or not 1 <= reported <= most:
        rule = f"a whole number from 1 to {most}, which the batch holds"
        raise InvalidBatchError(f"samples(batch): {rule} (received {reported!r:.60})")
    return int(reported)


def tokens_of(workload: Workload, batch: Any, samples: int) -> float | None:
    """The tokens of ``samples`` samples on average, where the workload knows that, else of ``batch``.

    None: the workload has none. Raises ``InvalidBatchError`` for what is no number of tokens above 0, or more
    than the batch has elements.
    """
    mean, count = getattr(workload, "tokens_per_sample", None), getattr(workload, "tokens", None)
    if mean is not None:
        name, factor = "tokens_per_sample()", MEAN_OVER_BATCH
        reported = _number(mean(), name) * samples
    elif count is not None:
        name, factor = "tokens(batch)", 1
        reported = _number(count(batch), name)
    else:
        return None
    most = factor * _elements(batch) or math.inf
    if not 0 < reported <= most:
        rule = f"at most {most:,}, what the batch has room for" if reported > 0 else "above 0"
        raise InvalidBatchError(f"{name}: {rule} (received {reported!r:.60} for {samples} samples)")
    return reported


def correct_of(value: Any) -> torch.Tensor:
    """What ``metric(output, batch)`` returned, as one whole number on its device.

    Raises ``InvalidBatchError`` for what is none. Whether it is possible is looked at when a pass is over:
    to look at once would wait for the device.
    """
    if isinstance(value, int | np.integer):
        value = torch.tensor(int(value))
    is_whole = isinstance(value, torch.Tensor) and value.numel() == 1 and not value.dtype.is_floating_point
    if not is_whole or value.dtype.is_complex:
        is_tensor = isinstance(value, torch.Tensor)
        what = f"a tensor of {value.dtype}, shape {tuple(value.shape)}" if is_tensor else f"{value!r:.60}"
        rule = "the number of correct predictions, one whole number"
        raise InvalidBatchError(f"metric(output, batch): {rule} (received {what})")
    number: torch.Tensor = value.detach().reshape(()).long()
    return number


def _sizes(batch: Any, requested: int, most_parts: int = MOST_PARTS) -> set[int]:
    """The numbers of samples that a batch may be read to have; empty where nothing in it can be counted."""
    if isinstance(batch, torch.Tensor):
        return {batch.size(0)} if batch.dim() else set()
    if isinstance(batch, Mapping):
        return _union(batch.values(), requested)
    if isinstance(batch, list | tuple):
        if len(batch) == requested > most_parts:
            return {requested}
        plain = {type(each) for each in batch}
        if len(plain) == 1 and plain <= {str, bytes, int, float, bool}:
            return {len(batch)}
        return _union(batch, requested)
    shape = getattr(batch, "shape", None)  # an array
    return {shape[0]} if isinstance(shape, tuple) and shape and isinstance(shape[0], int) else set()


def _union(parts: Iterable[Any], requested: int) -> set[int]:
    return set[int]().union(*(_sizes(part, requested, MOST_PARTS_OF_A_PART) for part in parts))


def _elements(batch: Any) -> int:
    """Of all tensors of a batch; 0 where there are none."""
    if isinstance(batch, torch.Tensor):
        return batch.numel()
    if isinstance(batch, Mapping):
        return sum(map(_elements, batch.values()))
    return sum(map(_elements, batch)) if isinstance(batch, list | tuple) else 0


def _number(value: Any, name: str) -> float:
    """``value`` as a finite number: Python's, numpy's or a tensor's."""
    if isinstance(value, np.generic) or (isinstance(value, torch.Tensor) and value.numel() == 1):
        value = value.item()
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < 2**63:
        raise InvalidBatchError(f"{name}: a number (received {value!r:.60})")
    return value

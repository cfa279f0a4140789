"""What a batch consists of: moved to a device part by part."""

from __future__ import annotations

from collections.abc import Mapping
from copy import copy
from dataclasses import fields, is_dataclass
from typing import Any

import torch


def on_device(batch: Any, device: torch.device, channels_last: bool = False) -> Any:
    """``batch`` with every tensor moved to ``device``; images in channels-last order if ``channels_last``.

    So is what has a method ``to`` and is no container of tensors; whatever else there is stays as it is.
    Containers are mappings (of transformers too, whose batches are no dicts), lists, tuples and named tuples.
    But for a tuple with a method ``to``, such as a ``PackedSequence``: not all of its parts may be moved; and
    for a mapping with a device, such as a ``TensorDict``: it moves to that one what it is given.
    """

    def moved(part: Any) -> Any:
        return on_device(part, device, channels_last)

    if isinstance(batch, torch.Tensor):
        layout = torch.channels_last if channels_last and batch.dim() == 4 else torch.preserve_format
        return batch.to(device, non_blocking=True, memory_format=layout)
    if isinstance(batch, Mapping) and not (hasattr(type(batch), "device") and hasattr(batch, "to")):
        found = {key: moved(part) for key, part in batch.items()}
        return found if type(batch) is dict else _of_its_type(batch, found)
    if is_dataclass(batch) and not isinstance(batch, type):
        alike = copy(batch)
        for each in fields(batch):  # as it stands, whatever its constructor takes, frozen or not
            object.__setattr__(alike, each.name, moved(getattr(batch, each.name)))
        return alike
    if hasattr(batch, "to"):
        return batch.to(device)
    if isinstance(batch, list | tuple):
        parts = [moved(part) for part in batch]
        return type(batch)(*parts) if hasattr(batch, "_fields") else type(batch)(parts)
    return batch


def _of_its_type(first: Any, found: dict[Any, Any]) -> Any:
    """``found`` as a mapping of the type of ``first``; as a dictionary where that cannot be made."""
    try:
        alike = copy(first)  # such as transformers' batches, whose parts are attributes too
        alike.update(found)
        return alike
    except Exception:  # such as transformers' outputs, which refuse it, and what cannot be changed
        try:
            return type(first)(**found)
        except Exception:
            return found

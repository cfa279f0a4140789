"""What a batch consists of: moved to a device, or joined with other batches, part by part."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import fields, is_dataclass, replace
from typing import Any

import torch


def on_device(batch: Any, device: torch.device, channels_last: bool = False) -> Any:
    """``batch`` with every tensor moved to ``device``; images in channels-last order if ``channels_last``.

    So is what has a method ``to`` and is no container of tensors; whatever else there is stays as it is.
    """

    def moved(leaves: Sequence[Any]) -> Any:
        (leaf,) = leaves
        if not isinstance(leaf, torch.Tensor):
            return leaf.to(device) if hasattr(leaf, "to") else leaf
        if channels_last and leaf.dim() == 4:
            return leaf.to(device, non_blocking=True, memory_format=torch.channels_last)
        return leaf.to(device, non_blocking=True)

    return mapped([batch], moved)


def joined(batches: Sequence[Any]) -> Any:
    """One batch of all samples of ``batches``: every tensor concatenated along its first dimension.

    Raises ``TypeError`` for a part that has a method ``to`` and is neither tensor nor container.
    """

    def cat(leaves: Sequence[Any]) -> Any:
        if isinstance(leaves[0], torch.Tensor):
            return torch.cat(list(leaves))
        if hasattr(leaves[0], "to"):
            raise TypeError(f"batches of {type(leaves[0]).__name__} cannot be joined to one")
        return leaves[0]

    return mapped(batches, cat)


def mapped(batches: Sequence[Any], change: Callable[[Sequence[Any]], Any]) -> Any:
    """``change`` of the corresponding leaves of batches that are built alike, in the first one's containers.

    Containers are mappings (of transformers too, whose batches are no dicts), lists, tuples and named tuples.
    But for a tuple with a method ``to``, such as a ``PackedSequence``: not all of its parts may be moved; and
    for a mapping with a device, such as a ``TensorDict``: it moves to that one what it is given.
    """
    first = batches[0]
    if isinstance(first, Mapping) and not hasattr(type(first), "device"):
        found = {key: mapped([batch[key] for batch in batches], change) for key in first}
        if type(first) is dict:
            return found
        return _of_its_type(first, found)
    if is_dataclass(first) and not isinstance(first, type):
        parts_of = {each.name: [getattr(batch, each.name) for batch in batches] for each in fields(first)}
        return replace(first, **{name: mapped(each, change) for name, each in parts_of.items()})
    if not isinstance(first, list | tuple) or hasattr(first, "to"):
        return change(batches)
    parts = [mapped(each, change) for each in zip(*batches, strict=True)]
    return type(first)(*parts) if hasattr(first, "_fields") else type(first)(parts)


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

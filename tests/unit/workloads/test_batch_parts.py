"""Batches of whatever type are moved to a device as a whole."""

from __future__ import annotations

from collections import UserDict
from dataclasses import InitVar, dataclass, field
from types import MappingProxyType
from typing import Any, NamedTuple

import pytest
import torch
from torch.nn.utils.rnn import PackedSequence, pack_sequence
from transformers import BatchEncoding, BatchFeature
from transformers.modeling_outputs import SequenceClassifierOutput

from raybench.workloads.batch_parts import on_device

META = torch.device("meta")
ONE = torch.zeros(2, 3)


class Pair(NamedTuple):
    words: Any
    label: Any


class Graph:
    """As of a library of its own: it knows how to move."""

    def __init__(self, device: torch.device) -> None:
        self.device = device

    def to(self, device: torch.device) -> Graph:
        return Graph(device)


@pytest.mark.parametrize("kind", [BatchEncoding, BatchFeature])
def test_batches_of_transformers_are_moved_and_stay_what_they_are(kind: type[Any]) -> None:
    """They are no dicts: on a GPU they stayed on the CPU."""
    batch = kind({"input_ids": ONE, "labels": [ONE, "a word"]})
    moved = on_device(batch, META)
    assert type(moved) is kind
    assert moved.input_ids.device == moved["labels"][0].device == META
    assert moved["labels"][1] == "a word"
    assert batch.input_ids.device == ONE.device  # its own is not touched: a second device may want it


def test_what_knows_how_to_move_is_moved() -> None:
    batch = {"graph": Graph(torch.device("cpu")), "read_only": MappingProxyType({"x": ONE})}
    batch["pair"] = Pair([ONE], 1)
    moved = on_device(batch, META)
    assert moved["graph"].device == moved["read_only"]["x"].device == moved["pair"].words[0].device == META


class OnItsDevice(UserDict):  # type: ignore[type-arg]
    """As a TensorDict, which moves to its device what it is given."""

    def __init__(self, parts: dict[str, torch.Tensor], device: torch.device) -> None:
        self._device = device
        super().__init__(parts)

    @property
    def device(self) -> torch.device:
        return self._device

    def __setitem__(self, name: str, part: torch.Tensor) -> None:
        super().__setitem__(name, torch.empty_like(part, device=self._device))

    def to(self, device: torch.device) -> OnItsDevice:
        return OnItsDevice(dict(self), device)


def test_a_mapping_with_a_device_moves_as_it_does() -> None:
    moved = on_device([OnItsDevice({"x": ONE}, torch.device("cpu"))], META)[0]
    assert isinstance(moved, OnItsDevice)
    assert moved.device == moved["x"].device == META


def test_a_packed_sequence_moves_by_itself_its_lengths_stay_on_the_cpu() -> None:
    moved = on_device([pack_sequence([ONE, torch.ones(1, 3)])], META)[0]
    assert isinstance(moved, PackedSequence)
    assert (moved.data.device, moved.batch_sizes.device) == (META, torch.device("cpu"))


def test_images_alone_are_channels_last() -> None:
    found = on_device(
        {"image": torch.zeros(2, 3, 4, 4), "text": ONE}, torch.device("cpu"), channels_last=True
    )
    assert found["image"].is_contiguous(memory_format=torch.channels_last)
    assert found["text"].is_contiguous()


@dataclass
class Record:
    inputs: torch.Tensor
    name: str


@dataclass(frozen=True)
class Counted:
    """Its constructor takes less than it holds, and more."""

    inputs: torch.Tensor
    scale: InitVar[float]
    number: int = field(init=False, default=3)


class Attributes(dict):  # type: ignore[type-arg]
    def __getattr__(self, name: str) -> torch.Tensor:
        return self[name]


def test_a_dataclass_moves_whatever_its_constructor_takes() -> None:
    batch = Counted(torch.ones(2), 2.0)
    moved = on_device(batch, META)
    assert (moved.inputs.device, moved.number, batch.inputs.device.type) == (META, 3, "cpu")


def test_a_mapping_that_knows_its_device_and_cannot_move_is_moved_part_by_part() -> None:
    class Located(dict):  # type: ignore[type-arg]
        @property
        def device(self) -> torch.device:
            return next(iter(self.values())).device  # type: ignore[no-any-return]

    assert on_device(Located(inputs=torch.ones(2)), META).device == META


def test_a_batch_stays_what_it_is_where_it_moves() -> None:
    moved = on_device(Record(torch.ones(2), "first"), torch.device("meta"))
    assert (type(moved), moved.inputs.device.type, moved.name) == (Record, "meta", "first")
    moved = on_device(Attributes(inputs=torch.ones(2)), torch.device("meta"))
    assert moved.inputs.device.type == "meta"
    output = SequenceClassifierOutput(logits=torch.ones(2, 2))
    assert on_device(output, torch.device("meta")).logits.device.type == "meta"

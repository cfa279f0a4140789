"""A workload of somebody's own that does what its ``fault`` says: false figures, silence, tracebacks."""

from __future__ import annotations

import asyncio
import gc
import resource
import sys
from collections import namedtuple
from collections.abc import Iterator
from typing import Any

import torch
from torch import nn
from torch.utils.data import Dataset

Pair = namedtuple("Pair", "inputs labels")
SURROGATE = "no file a\udcff\x1b[2J\u202eb"


class UnspeakableError(Exception):
    def __str__(self) -> str:
        raise RuntimeError("not even that")


class Points(Dataset[Any]):
    def __init__(self, fault: str) -> None:
        self._fault = fault

    def __len__(self) -> int:
        return 64

    def __getitem__(self, index: int) -> Any:
        if self._fault == "exit in a sample" and index == 7:
            sys.exit(0)
        return torch.full((4,), float(index)), index % 2


class Hostile:
    def __init__(self, fault: str) -> None:
        self._fault, self._calls = fault, 0
        if fault in COUNTS:
            self.samples = lambda batch: COUNTS[fault]
        if fault in TOKENS:
            self.tokens = lambda batch: TOKENS[fault]
        if fault in METRICS:
            self.metric = lambda output, batch: METRICS[fault]
        if fault == "counts vary":
            self.samples = self._vary
        if fault.startswith("collate"):
            self.collate = self._collate

    def model(self) -> nn.Module:
        if self._fault == "exit in model":
            sys.exit(0)
        return nn.Linear(4, 2)

    def batch(self, size: int, generator: torch.Generator) -> Any:
        inputs, labels = torch.randn(size, 4, generator=generator), torch.zeros(size, dtype=torch.long)
        few = (inputs[:3], labels[:3])
        return {
            "few": few,
            "few in a dict": {"inputs": few[0], "more": {"labels": few[1]}},
            "few in a tuple": Pair(*few),
            "few in lists": [[few[0]], [few[1]]],
            "many": (inputs.repeat(4, 1), labels.repeat(4)),
            "two sizes": (inputs, labels[:3]),
            "nothing to count": object(),
        }.get(self._fault, (inputs, labels))

    def dataset(self, split: str) -> Any:
        datasets: dict[str, Any] = {
            "no data set": None,
            "an iterator": iter([1, 2]),
            "a generator": self._generated(),
            "a number": 7,
        }
        if self._fault == "exit in dataset":
            sys.exit(0)
        return datasets.get(self._fault, Points(self._fault))

    def loss(self, model: nn.Module, batch: Any) -> torch.Tensor:
        self._calls += 1
        late, fault = self._calls > 12, self._fault
        inputs, labels = batch
        if fault == "exit in loss" and late:
            sys.exit(0)
        if fault == "interrupt in loss" and late:
            raise KeyboardInterrupt
        if fault == "cancelled in loss" and late:
            raise asyncio.CancelledError("gone")
        if fault == "unprintable":
            raise OSError(SURROGATE)
        if fault == "five megabytes":
            raise ValueError("x" * 5_000_000)
        if fault == "unspeakable":
            raise UnspeakableError
        if fault in CHANGES and late:
            CHANGES[fault]()
        loss: torch.Tensor = model(inputs).square().mean() + 0.0 * labels.sum()
        return loss

    def _vary(self, batch: Any) -> int:
        self._calls += 1
        return 8 if self._calls < 4 else 5

    def _collate(self, samples: list[Any]) -> Any:
        kept = samples[:3] if self._fault == "collate drops" else samples
        return torch.stack([each[0] for each in kept]), torch.tensor([each[1] for each in kept])

    def _generated(self) -> Iterator[int]:
        yield 1


NAN = float("nan")
COUNTS: dict[str, Any] = {
    "0 samples": 0, "-3 samples": -3, "samples of all": 16_000_000_000, "nan samples": NAN,
    "'8' samples": "8", "no samples": None, "half a sample": 0.5, "a list of samples": [8],
}  # fmt: skip
TOKENS: dict[str, Any] = {
    "0 tokens": 0, "-3 tokens": -3, "tokens of all": 10**12, "nan tokens": NAN, "inf tokens": -float("inf"),
    "'8' tokens": "8", "no tokens": None, "tokens without end": 10**400,
}  # fmt: skip
METRICS: dict[str, Any] = {
    "-1 correct": torch.tensor(-1), "all correct": torch.tensor(16_000_000_000),
    "nan correct": torch.tensor(NAN), "share correct": torch.tensor(0.5), "no correct": None,
    "'8' correct": "8", "two correct": torch.ones(2).long(), "9 correct": 9,
}  # fmt: skip
CHANGES = {
    "gradients off": lambda: torch.set_grad_enabled(False),
    "double": lambda: torch.set_default_dtype(torch.float64),
    "deterministic": lambda: torch.use_deterministic_algorithms(True),
    "anomalies": lambda: torch.autograd.set_detect_anomaly(True),
    "meta": lambda: torch.set_default_device("meta"),
    "one thread more": lambda: torch.set_num_threads(3),
    "no collection": gc.disable,
    "few files": lambda: resource.setrlimit(
        resource.RLIMIT_NOFILE, (40, resource.getrlimit(resource.RLIMIT_NOFILE)[1])
    ),
    "little recursion": lambda: sys.setrecursionlimit(60),
}


def build(fault: str = "") -> Hostile:
    """The factory."""
    if fault == "exit in build":
        sys.exit(0)
    return Hostile(fault)

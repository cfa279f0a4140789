"""A workload of the user's with the mistake that ``fault`` names."""

from __future__ import annotations

import sys
from typing import Any

import torch
from torch import nn
from torch.utils.data import Dataset

SURROGATE = "no file a\udcff\x1b[2J\u202eb"


class Points(Dataset[Any]):
    def __init__(self, fault: str) -> None:
        self._fault = fault

    def __len__(self) -> int:
        return 64

    def __getitem__(self, index: int) -> Any:
        if self._fault == "exit in a sample" and index == 7:
            sys.exit(0)
        return torch.full((4,), float(index)), index % 2


class Faulty:
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
            "many": (inputs.repeat(4, 1), labels.repeat(4)),
            "two sizes": (inputs, labels[:3]),
            "nothing to count": object(),
        }.get(self._fault, (inputs, labels))

    def dataset(self, split: str) -> Any:
        datasets: dict[str, Any] = {
            "no data set": None,
        }
        if self._fault == "exit in dataset":
            sys.exit(0)
        return datasets.get(self._fault, Points(self._fault))

    def loss(self, model: nn.Module, batch: Any) -> torch.Tensor:
        self._calls += 1
        fault = self._fault
        inputs, labels = batch
        if fault == "exit in loss" and self._calls > 12:
            sys.exit(0)
        if fault == "unprintable":
            raise OSError(SURROGATE)
        loss: torch.Tensor = model(inputs).square().mean() + 0.0 * labels.sum()
        return loss

    def _vary(self, batch: Any) -> int:
        self._calls += 1
        return 8 if self._calls < 4 else 5

    def _collate(self, samples: list[Any]) -> Any:
        kept = samples[:3] if self._fault == "collate drops" else samples
        return torch.stack([each[0] for each in kept]), torch.tensor([each[1] for each in kept])


COUNTS: dict[str, Any] = {"0 samples": 0, "samples of all": 16_000_000_000, "no samples": None}
TOKENS: dict[str, Any] = {"-3 tokens": -3, "tokens of all": 10**12}
METRICS: dict[str, Any] = {
    "-1 correct": torch.tensor(-1), "share correct": torch.tensor(0.5), "9 correct": 9,
}  # fmt: skip


def build(fault: str = "") -> Faulty:
    """The factory."""
    if fault == "exit in build":
        sys.exit(0)
    return Faulty(fault)

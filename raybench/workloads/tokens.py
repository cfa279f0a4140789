"""Texts as token numbers, out of the flat arrays that ``tokenizing`` stores: data sets, and their batches.

The arrays are mapped into memory: the ranks of a machine and their loaders' processes share one copy, and
import nothing more than numpy and torch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils.data import Dataset

from raybench.workloads.data_files import MappedArrays, evenly_spread

Numbers = NDArray[np.int32]
Sample = tuple[Numbers, int]  # the tokens of a text, without padding, and its class
Batch = dict[str, torch.Tensor]


@dataclass(frozen=True)
class Padding:
    """Samples to a batch: to ``length`` tokens, or (None) to the longest sample of the batch."""

    length: int | None
    pad_id: int

    def __call__(self, samples: Sequence[Sample]) -> Batch:
        """``input_ids`` and ``attention_mask`` of shape (size, tokens), ``labels`` of shape (size,)."""
        lengths = np.array([len(tokens) for tokens, _ in samples])
        real = np.arange(self.length or lengths.max()) < lengths[:, None]
        ids = np.full(real.shape, self.pad_id, dtype=np.int64)
        ids[real] = np.concatenate([tokens for tokens, _ in samples])
        return {
            "input_ids": torch.from_numpy(ids),
            "attention_mask": torch.from_numpy(real.astype(np.int64)),
            "labels": torch.tensor([label for _, label in samples]),
        }


class TokenizedTexts(Dataset[Sample]):
    """The texts that ``tokenizing.tokenize_texts`` stored; a pickle of it holds only where they are.

    ``count`` takes that many, spread evenly over the file: some files are sorted by class.
    """

    def __init__(self, folder: Path, count: int | None = None, split: str = "train") -> None:
        self._stored = MappedArrays(folder, "ids", "offsets", "labels")
        self._rows = evenly_spread(len(self._stored.arrays[2]), count, split)

    def __len__(self) -> int:
        return len(self._rows)

    def __getitems__(self, indices: Sequence[int]) -> list[Sample]:
        """The samples of one batch."""
        ids, offsets, labels = self._stored.arrays
        rows = [self._rows[index] for index in indices]
        return [(ids[offsets[row] : offsets[row + 1]], int(labels[row])) for row in rows]

    def mean_tokens(self) -> float:
        """Tokens of a sample, without padding."""
        lengths = np.diff(self._stored.arrays[1])
        return float(lengths[np.asarray(self._rows)].mean())


class TokenBlocks(Dataset[torch.Tensor]):
    """The corpus that ``tokenizing.tokenize_stream`` stored, cut into blocks of ``length`` tokens.

    What is left at its end is left out; a pickle of it holds only where the tokens are.
    """

    def __init__(self, folder: Path, length: int, count: int | None = None, split: str = "train") -> None:
        self._stored, self._length = MappedArrays(folder, "ids"), length
        self._blocks = evenly_spread(len(self._stored.arrays[0]) // length, count, split)

    def __len__(self) -> int:
        return len(self._blocks)

    def __getitem__(self, index: int) -> torch.Tensor:
        begin = self._blocks[index] * self._length
        return torch.from_numpy(self._stored.arrays[0][begin : begin + self._length].astype(np.int64))


def random_ids(size: int, length: int, vocab_size: int, generator: torch.Generator) -> torch.Tensor:
    """Token numbers of shape (size, length); 0 is left out: it is the padding of most vocabularies."""
    return torch.randint(1, vocab_size, (size, length), generator=generator)

"""Texts as token numbers: made once, kept as flat arrays, read by every rank and its loader's processes."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils.data import Dataset

from raybench.errors import RequestError
from raybench.workloads import storage
from raybench.workloads.texts import corpora
from raybench.workloads.texts.corpora import Corpus
from raybench.workloads.texts.tokenizers import Tokenizer

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


class Samples(Dataset[Sample]):
    """The texts that ``tokenised`` keeps; a pickle of it holds their place only.

    ``count`` takes so many, spread evenly over the file: some files are sorted by class.
    """

    def __init__(self, folder: Path, count: int | None = None, field: str = "workload.samples") -> None:
        self._folder = folder
        self._opened: tuple[Numbers, NDArray[np.int64], NDArray[np.int64]] | None = None
        self._chosen = spread(len(self._arrays()[2]), count, field)

    def __len__(self) -> int:
        return len(self._chosen)

    def __getitem__(self, index: int) -> Sample:
        return self.__getitems__([index])[0]

    def __getitems__(self, indices: Sequence[int]) -> list[Sample]:
        """The samples of one batch."""
        ids, offsets, labels = self._arrays()
        rows = [self._chosen[index] for index in indices]
        return [(ids[offsets[row] : offsets[row + 1]], int(labels[row])) for row in rows]

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_opened": None}

    def mean_tokens(self) -> float:
        """Tokens of a sample, without padding."""
        lengths = np.diff(self._arrays()[1])
        return float(lengths[np.asarray(self._chosen)].mean())

    def _arrays(self) -> tuple[Numbers, NDArray[np.int64], NDArray[np.int64]]:
        if self._opened is None:
            ids, offsets, labels = (_open(self._folder, name) for name in ("ids", "offsets", "labels"))
            self._opened = ids, offsets, labels
        return self._opened


class Blocks(Dataset[torch.Tensor]):
    """The corpus that ``stream`` keeps, cut into blocks of ``length`` tokens; the rest is left out."""

    def __init__(
        self, folder: Path, length: int, count: int | None = None, field: str = "workload.samples"
    ) -> None:
        self._folder, self._length = folder, length
        self._opened: Numbers | None = None
        self._chosen = spread(len(self._ids()) // length, count, field)

    def __len__(self) -> int:
        return len(self._chosen)

    def __getitem__(self, index: int) -> torch.Tensor:
        begin = self._chosen[index] * self._length
        return torch.from_numpy(self._ids()[begin : begin + self._length].astype(np.int64))

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_opened": None}

    def _ids(self) -> Numbers:
        if self._opened is None:
            self._opened = _open(self._folder, "ids")
        return self._opened


def stacked(blocks: Sequence[torch.Tensor]) -> Batch:
    """``input_ids`` of shape (size, tokens)."""
    return {"input_ids": torch.stack(list(blocks))}


def tokenised(corpus: Corpus, tokenizer: Tokenizer, length: int) -> Path:
    """The folder with every text's tokens, at most ``length`` of them, and every text's class.

    Raises ``RequestError`` for damaged files, and for labels that are missing or unknown.
    """
    name = f"texts-{storage.key(corpus.files, corpus.reading, tokenizer.identity, length)}"
    folder = storage.kept(name)
    if folder is not None:
        return folder
    ids: list[Numbers] = []
    lengths: list[int] = []
    labels: list[corpora.Labels] = []
    for texts, raw in corpora.batches(corpus):
        encoded = tokenizer.encode(texts, length)
        lengths += map(len, encoded)
        ids.append(_flat(encoded))
        labels.append(raw)
    classes, names = corpora.class_numbers(corpus, corpora.joined(labels))
    about = {"num_classes": len(names) or corpus.num_classes or int(classes.max()) + 1, "names": names}

    def write(place: Path) -> None:
        np.save(place / "ids.npy", np.concatenate(ids))
        np.save(place / "offsets.npy", np.concatenate([[0], np.cumsum(lengths)]))
        np.save(place / "labels.npy", classes)
        (place / "about.json").write_text(json.dumps(about), encoding="utf-8")

    return storage.keep(name, write)


def classes_of(folder: Path) -> tuple[int, tuple[str, ...]]:
    """The number of classes of what ``tokenised`` made, and their names, where they have any."""
    about = json.loads((folder / "about.json").read_text(encoding="utf-8"))
    return about["num_classes"], tuple(about["names"])


def stream(corpus: Corpus, tokenizer: Tokenizer) -> Path:
    """The folder with all texts' tokens, one text after the other, each with the tokenizer's end.

    Raises ``RequestError`` for damaged files.
    """
    name = f"stream-{storage.key(corpus.files, corpus.reading, tokenizer.identity)}"
    folder = storage.kept(name)
    if folder is not None:
        return folder
    ids = [_flat(tokenizer.encode(texts, None)) for texts, _ in corpora.batches(corpus)]
    return storage.keep(name, lambda place: np.save(place / "ids.npy", np.concatenate(ids)))


def spread(length: int, count: int | None, field: str) -> Sequence[int]:
    """``count`` of ``length`` places, evenly spread, or all; ``RequestError`` where there are fewer."""
    if count is None:
        return range(length)
    if count > length:
        raise RequestError(f"{field}: at most the {length} samples there are (received {count})")
    return [place * length // count for place in range(count)]


def random_ids(size: int, length: int, vocab_size: int, generator: torch.Generator) -> torch.Tensor:
    """Token numbers of shape (size, length); 0 is left out: it is the padding of most vocabularies."""
    return torch.randint(1, vocab_size, (size, length), generator=generator)


def _flat(encoded: list[list[int]]) -> Numbers:
    return np.fromiter(chain.from_iterable(encoded), dtype=np.int32, count=sum(map(len, encoded)))


def _open(folder: Path, name: str) -> NDArray[Any]:
    array: NDArray[Any] = np.load(folder / f"{name}.npy", mmap_mode="r")
    return array

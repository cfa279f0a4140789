"""Corpora to token numbers: made once, stored as flat arrays that ``tokens`` reads."""

from __future__ import annotations

import json
from itertools import chain
from pathlib import Path

import numpy as np

from raybench.workloads import cache
from raybench.workloads.texts import rows
from raybench.workloads.texts.classes import class_numbers
from raybench.workloads.texts.corpora import Corpus
from raybench.workloads.texts.tokenizers import Tokenizer
from raybench.workloads.texts.tokens import Numbers


def tokenize_texts(corpus: Corpus, tokenizer: Tokenizer, length: int) -> Path:
    """The folder with every text's tokens, at most ``length`` of them, and every text's class.

    Raises ``RequestError`` for damaged files, and for labels that are missing or unknown.
    """
    name = f"texts-{cache.key(corpus.files, corpus.identity, tokenizer.identity, length)}"
    folder = cache.cached(name)
    if folder is not None:
        return folder
    ids: list[Numbers] = []
    lengths: list[int] = []
    labels: rows.Labels = []
    for texts, raw_labels in rows.row_batches(corpus):
        encoded = tokenizer.encode(texts, length)
        lengths += map(len, encoded)
        ids.append(_flat(encoded))
        labels += raw_labels
    classes, names = class_numbers(corpus, labels)
    about = {"num_classes": len(names) or corpus.num_classes or int(classes.max()) + 1, "names": names}

    def write(new: Path) -> None:
        np.save(new / "ids.npy", np.concatenate(ids))
        np.save(new / "offsets.npy", np.concatenate([[0], np.cumsum(lengths)]))
        np.save(new / "labels.npy", classes)
        (new / "about.json").write_text(json.dumps(about), encoding="utf-8")

    return cache.store(name, write)


def classes_of(folder: Path) -> tuple[int, tuple[str, ...]]:
    """The number of classes of what ``tokenize_texts`` made, and their names, where they have any."""
    about = json.loads((folder / "about.json").read_text(encoding="utf-8"))
    return about["num_classes"], tuple(about["names"])


def tokenize_stream(corpus: Corpus, tokenizer: Tokenizer) -> Path:
    """The folder with all texts' tokens, one text after the other, each with the tokenizer's end.

    Raises ``RequestError`` for damaged files.
    """
    name = f"stream-{cache.key(corpus.files, corpus.identity, tokenizer.identity)}"
    folder = cache.cached(name)
    if folder is not None:
        return folder
    ids = [_flat(tokenizer.encode(texts, None)) for texts, _ in rows.row_batches(corpus)]
    return cache.store(name, lambda new: np.save(new / "ids.npy", np.concatenate(ids)))


def _flat(encoded: list[list[int]]) -> Numbers:
    """The tokens of all texts in one array."""
    return np.fromiter(chain.from_iterable(encoded), dtype=np.int32, count=sum(map(len, encoded)))

"""Labels to class numbers, counted from 0."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from raybench.errors import RequestError
from raybench.workloads.texts.corpora import Corpus
from raybench.workloads.texts.rows import Labels, is_number

MOST_NAMES = 8  # of classes, in a message


def class_numbers(corpus: Corpus, labels: Labels) -> tuple[NDArray[np.int64], tuple[str, ...]]:
    """Every row's class from 0, and the classes' names, where the labels are names.

    Raises ``RequestError`` for a label that is missing or unknown.
    """
    texts = [_label_text(label) for label in labels]
    if "" in texts:
        raise _bad_label(corpus, "a label in every row", None, texts.index(""))
    if corpus.class_names or (corpus.is_users and not any(map(is_number, texts))):
        return _numbers_of_names(corpus, texts)
    for row, text in enumerate(texts):
        if not text.isdecimal():
            raise _bad_label(corpus, _numbers_rule(corpus), text, row)
    numbers = np.array([int(text) for text in texts], dtype=np.int64) - corpus.first_label
    if corpus.num_classes is not None:
        outside = np.flatnonzero((numbers < 0) | (numbers >= corpus.num_classes))
        if len(outside):
            raise _bad_label(corpus, _numbers_rule(corpus), texts[outside[0]], int(outside[0]))
    return numbers, ()


def _numbers_of_names(corpus: Corpus, texts: list[str]) -> tuple[NDArray[np.int64], tuple[str, ...]]:
    names = corpus.class_names or tuple(sorted(set(texts)))
    numbers = {name: number for number, name in enumerate(names)}
    for row, text in enumerate(texts):
        if text not in numbers:
            raise _bad_label(corpus, f"one of {', '.join(names[:MOST_NAMES])}", text, row)
    return np.array([numbers[text] for text in texts], dtype=np.int64), names


def _numbers_rule(corpus: Corpus) -> str:
    if corpus.num_classes is None:
        return "whole numbers from 0, or names"
    return f"whole numbers from {corpus.first_label} to {corpus.first_label + corpus.num_classes - 1}"


def _label_text(label: Any) -> str:
    """A label as text, whatever a file has it as; empty where there is none."""
    if label is None or (isinstance(label, float) and math.isnan(label)):
        return ""
    return str(int(label)) if isinstance(label, bool) else str(label).strip()


def _bad_label(corpus: Corpus, rule: str, value: str | None, row: int) -> RequestError:
    field = "workload.label_column" if corpus.is_users else "data"
    received = "none" if value is None else repr(value)
    where = f"{corpus.label_column} of {corpus.files[0]}"
    return RequestError(f"{field}: {where}: {rule} (received {received} in row {row + 1})")

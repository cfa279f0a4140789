"""Texts and their labels: AG News, IMDB, or whatever ``datasets`` loads.

Local files come first, in the forms in which the data sets are passed on; then the hub's. What is found is
a ``Corpus``: the files and what their columns mean. Its rows are read as a stream (``datasets``), so that a
corpus need not fit into memory; its labels become class numbers from 0.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from raybench.errors import RequestError, first_line
from raybench.spec.workloads import CausalLMSpec, TextSpec
from raybench.workloads import data_files, hub
from raybench.workloads.data_files import candidate_folders, damaged

HUB_FOLDERS = ("", "data", "plain_text")  # of a repository, where its parquet files are


@dataclass(frozen=True)
class Corpus:
    """One half of a data set: its files, and which of their columns count."""

    files: tuple[Path, ...]
    text_columns: tuple[str, ...]  # to be joined by a space
    label_column: str | None  # None: none is wanted
    header: tuple[str, ...] | None = None  # the columns of CSV files, which have no header line
    first_label: int = 0
    num_classes: int | None = None  # of a published data set; None: as many as there are labels

    def key(self, *more: Any) -> str:
        """A name for what is made of what is read, with the settings ``more``."""
        return data_files.key(self.files, replace(self, files=()), *more)


@dataclass(frozen=True)
class PublishedTexts:
    """What is known of a published data set without reading it."""

    repository: str  # on the hub
    num_classes: int


PUBLISHED_TEXTS = {
    "ag_news": PublishedTexts("fancyzhx/ag_news", 4),
    "imdb": PublishedTexts("stanfordnlp/imdb", 2),
}


def find(spec: TextSpec | CausalLMSpec, data: Path | None, split: str) -> Corpus:
    """The corpus of ``split`` ("train" or "test"), looked up but not read.

    Raises ``RequestError`` where it is not there, or has not the columns that the study names.
    """
    if spec.data_set not in PUBLISHED_TEXTS:
        return _loaded_corpus(spec, data, split)
    published = PUBLISHED_TEXTS[spec.data_set]
    for folder in candidate_folders(data, spec.data_set):
        files = _split_files(folder, split)
        if files:
            return _published_corpus(published, files)
    return _loaded_corpus(spec.model_copy(update={"data_set": published.repository}), data, split)


def _split_files(place: Path, split: str) -> tuple[Path, ...]:
    """The files of ``split``: all shards of what is in shards, else the whole before a part of it."""
    for folder in (place / name for name in HUB_FOLDERS):
        if shards := sorted(folder.glob(f"{split}-*-of-*.parquet")):
            return tuple(shards)
        names = (f"{split}{more}.{kind}" for more in ("", "[_-]*") for kind in ("parquet", "csv"))
        if files := [file for name in names for file in sorted(folder.glob(name))]:
            return (files[0],)
    return ()


def _published_corpus(published: PublishedTexts, files: tuple[Path, ...]) -> Corpus:
    """The columns of a published data set: as on the hub, or those that a CSV file's first line has."""
    if files[0].suffix == ".parquet":
        return Corpus(files, ("text",), "label", num_classes=published.num_classes)
    first = first_row(files[0])
    if len(first) == 3 and first[0].isdecimal():
        columns = ("label", "title", "description")
        return Corpus(files, columns[1:], "label", columns, first_label=1, num_classes=published.num_classes)
    if len(first) == 2 and first[1].isdecimal():
        return Corpus(files, ("text",), "label", ("text", "label"), num_classes=published.num_classes)
    raise RequestError(
        f"data: {files[0]}: {published.repository} as label, title, description or as text, label, without a "
        f"header line (received {len(first)} columns, {','.join(first)[:60]!r})"
    )


FORMATS = {".csv": "csv", ".tsv": "csv", ".json": "json", ".jsonl": "json", ".parquet": "parquet"}
UNLABELLED = -1  # of every row, in the test of a data set whose labels are kept back


def _loaded_corpus(spec: TextSpec | CausalLMSpec, data: Path | None, split: str) -> Corpus:
    """Of the splits that ``datasets`` knows: the training one; to test with, test or else validation."""
    loaded = _load(spec.data_set, data)
    label = _label_column(spec, next(iter(loaded.values())).features) if isinstance(spec, TextSpec) else None
    wanted = ["train"] if split == "train" else ["test", "validation"]
    there = [name for name in wanted if name in loaded and loaded[name].num_rows]
    rows = [loaded[name] for name in there if label is None or loaded[name][0][label] != UNLABELLED]
    if not rows:
        raise RequestError(
            f"workload.data_set: one with rows{' and labels' if label else ''} to {split} with, "
            f"{' or '.join(wanted)} (received {spec.data_set!r} with {', '.join(loaded)})"
        )
    features = rows[0].features
    files = tuple(Path(part["filename"]) for part in rows[0].cache_files)
    classes = getattr(features[label], "num_classes", None) if label else None
    return Corpus(files, _text_columns(spec, features, label), label, num_classes=classes)


@lru_cache(maxsize=4)  # the hub is asked once for both splits and the tokenizer
def _load(name: str, data: Path | None) -> Any:
    """The splits of a directory or file (absolute, or under ``data``), of the hub's cache, or of the hub.

    Raises ``RequestError`` for what is none of them, in a line with the command that gets it.
    """
    import datasets

    def load(place: str, local_files_only: bool) -> Any:
        path = Path(place)
        if path.is_file():
            if path.suffix not in FORMATS:
                raise ValueError(f"a file whose suffix is not among {', '.join(FORMATS)}")
            separator = {"sep": "\t"} if path.suffix == ".tsv" else {}
            return datasets.load_dataset(FORMATS[path.suffix], data_files=place, **separator)
        if any((path / file).is_file() for file in ("dataset_dict.json", "state.json")):
            saved = datasets.load_from_disk(place)
            return saved if isinstance(saved, dict) else {"train": saved}
        if path.is_dir():
            return datasets.load_dataset(place)
        before, datasets.config.HF_HUB_OFFLINE = datasets.config.HF_HUB_OFFLINE, local_files_only
        try:
            repository, _, configuration = name.partition(":")
            return datasets.load_dataset(repository, configuration or None)
        finally:
            datasets.config.HF_HUB_OFFLINE = before

    try:
        return hub.load_local_first(load, name, data)
    except Exception as error:
        what = "ag_news or imdb (a file for train, one for test: CSV or Parquet), or a data set"
        why = " ".join(str(error).split())[:200] or type(error).__name__
        needed = hub.requirement(what, name.partition(":")[0], data, " --repo-type dataset")
        raise RequestError(f"workload.data_set: {needed} (received {name!r}: {why})") from error


def _label_column(spec: TextSpec, features: Any) -> str:
    """The column that the study names, else the one with classes."""
    found = [name for name in features if hasattr(features[name], "num_classes")]
    if spec.label_column in features:
        return spec.label_column
    if spec.label_column == "label" and len(found) == 1:
        return str(found[0])
    raise _no_column("label_column", spec, spec.label_column, list(features))


def _text_columns(spec: TextSpec | CausalLMSpec, features: Any, label: str | None) -> tuple[str, ...]:
    """The columns that the study names, else the one with texts."""
    texts = [name for name in features if "string" in str(getattr(features[name], "dtype", ""))]
    found = tuple(name for name in texts if name != label)
    absent = [name for name in spec.text_columns if name not in features]
    if absent and (spec.text_columns != ("text",) or len(found) != 1):
        raise _no_column("text_columns", spec, absent[0], found)
    return found if absent else spec.text_columns


def _no_column(
    field: str, spec: TextSpec | CausalLMSpec, column: str, columns: Sequence[str]
) -> RequestError:
    known = f"of {spec.data_set}: {', '.join(columns)}"
    return RequestError(f"workload.{field}: a column {known} (received {column!r})")


def first_row(file: Path) -> list[str]:
    """The fields of a CSV file's first line; raises ``RequestError`` for an empty or damaged file."""
    try:
        with file.open(newline="", encoding="utf-8-sig") as lines:
            first = next(csv.reader(lines), [])
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise damaged(file, first_line(error)) from error
    if not first:
        raise RequestError(f"data: {file}: rows of text (received an empty file)")
    return first


ROWS_AT_ONCE = 2000
Labels = list[Any]


def row_batches(corpus: Corpus) -> Iterator[tuple[list[str], Labels]]:
    """The rows in order, some at a time: texts and raw labels (empty where none are wanted).

    Raises ``RequestError`` for damaged files, and for a text column that is not text.
    """
    import datasets  # some 0.7 s: not paid where the tokens are in the cache

    row = 0
    wanted = [*corpus.text_columns, *([corpus.label_column] if corpus.label_column else [])]
    with hub.quietly():
        try:
            file_format, options = _reader(corpus)
            files = [str(file) for file in corpus.files]
            rows = datasets.load_dataset(
                file_format, data_files=files, split="train", streaming=True, **options
            )
            for batch in rows.select_columns(wanted).iter(batch_size=ROWS_AT_ONCE):
                texts = _texts(corpus, batch, row)
                row += len(texts)
                yield texts, batch[corpus.label_column] if corpus.label_column else []
        except RequestError:
            raise
        except Exception as error:
            raise damaged(corpus.files[0], first_line(error.__cause__ or error)) from error
    if not row:
        raise RequestError(f"data: {corpus.files[0]}: rows of text (received none)")


def _reader(corpus: Corpus) -> tuple[str, dict[str, Any]]:
    """The reader of ``datasets`` and its options: every column of a CSV file is text."""
    from datasets import Features, Value

    if corpus.header is None:
        return corpus.files[0].suffix[1:], {}
    return "csv", {
        "column_names": list(corpus.header),
        "features": Features({name: Value("string") for name in corpus.header}),
        "keep_default_na": False,  # "NA" and "null" are words
        "encoding": "utf-8-sig",
    }


def _texts(corpus: Corpus, batch: dict[str, list[Any]], row: int) -> list[str]:
    """The texts of a batch that begins at ``row``; ``RequestError`` for what is not text."""
    for name in corpus.text_columns:
        for number, value in enumerate(batch[name], row + 1):
            if not isinstance(value, str):
                rule = f"{name} of {corpus.files[0]} holds text"
                raise RequestError(f"data: {rule} (received {value!r} in row {number})")
    return [" ".join(parts) for parts in zip(*(batch[name] for name in corpus.text_columns), strict=True)]


def class_numbers(corpus: Corpus, labels: Labels) -> NDArray[np.int64]:
    """Every row's class from 0; raises ``RequestError`` for a label that is missing or no class."""
    first, numbers = corpus.first_label, list[int]()
    end = math.inf if corpus.num_classes is None else first + corpus.num_classes
    for row, label in enumerate(labels, 1):
        text = str(int(label)) if isinstance(label, bool) else str(label).strip()
        if not text.isdecimal() or not first <= int(text) < end:
            rule = f"whole numbers from {first}" + (f" to {end - 1}" if end < math.inf else "")
            where = f"{corpus.label_column} of {corpus.files[0]}"
            raise RequestError(f"data: {where}: {rule} (received {label!r} in row {row})")
        numbers.append(int(text) - first)
    return np.array(numbers, dtype=np.int64)

"""Where the texts and their labels are: AG News, IMDB, or CSV and parquet files of the user's.

Local files come first, in the forms in which the data sets are passed on; then the hub's. What is found is
a ``Corpus``: the files and what their columns mean; ``rows`` reads them.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from raybench.errors import RequestError
from raybench.spec.workloads import CausalLMSpec, TextSpec
from raybench.workloads.data_files import candidate_folders, first_line
from raybench.workloads.texts import hub
from raybench.workloads.texts.columns import first_row, parquet_columns

HUB_FOLDERS = ("", "data", "plain_text")  # of a repository, where its parquet files are


@dataclass(frozen=True)
class Corpus:
    """One half of a data set: its files, and which of their columns count."""

    files: tuple[Path, ...]
    text_columns: tuple[str, ...]  # to be joined by a space
    label_column: str | None  # None: none is wanted
    header: tuple[str, ...] | None = None  # the columns of CSV files that have no header line
    first_label: int = 0
    num_classes: int | None = None  # of a published data set; None: as many as there are labels
    class_names: tuple[str, ...] = ()  # where the classes are known by name
    is_users: bool = False  # the study names the files and their columns

    @property
    def identity(self) -> tuple[Any, ...]:
        """What decides, beside the files, what is read."""
        columns = self.text_columns, self.label_column, self.header
        return *columns, self.first_label, self.num_classes, self.class_names


@dataclass(frozen=True)
class PublishedTexts:
    """What is known of a published data set without reading it."""

    title: str
    repository: str  # on the hub
    folders: tuple[str, ...]  # under --data
    num_classes: int


PUBLISHED_TEXTS = {
    "ag_news": PublishedTexts("AG News", "fancyzhx/ag_news", ("ag_news", "ag-news", "AG_News"), 4),
    "imdb": PublishedTexts("IMDB", "stanfordnlp/imdb", ("imdb", "IMDB"), 2),
}


def find(spec: TextSpec | CausalLMSpec, data: Path | None, split: str) -> Corpus:
    """The corpus of ``split`` ("train" or "test"), looked up but not read.

    Raises ``RequestError`` where it is not there, or has not the columns that the study names.
    """
    if spec.data_set == "files":
        return _users_corpus(spec, data, split)
    published = PUBLISHED_TEXTS[spec.data_set]
    # a folder of the data set's name before --data itself, which may hold another one
    for folder in reversed(candidate_folders(data, *reversed(published.folders))):
        files = _split_files(folder, split)
        if files:
            return _published_corpus(published, files)
    try:
        files = _split_files(_hub_folder(published, split), split)
    except Exception as error:
        raise _missing(published, data, split, first_line(error)) from error
    if not files:
        raise _missing(published, data, split, f"{published.repository} has no such files")
    return _published_corpus(published, files)


def _split_files(place: Path, split: str) -> tuple[Path, ...]:
    """The files of ``split``: the whole before a part of it, all shards of what is in shards."""
    for folder in dict.fromkeys(place / name for name in HUB_FOLDERS):
        shards = sorted(folder.glob(f"{split}-*.parquet"))
        if shards:
            return tuple(shards)
        whole = [folder / f"{split}.parquet", folder / f"{split}.csv"]
        parts = [*sorted(folder.glob(f"{split}_*.parquet")), *sorted(folder.glob(f"{split}_*.csv"))]
        present = [file for file in (*whole, *parts) if file.is_file()]
        if present:
            return (present[0],)
    return ()


def _published_corpus(published: PublishedTexts, files: tuple[Path, ...]) -> Corpus:
    """The columns of a published data set, told by what the first file begins with."""
    file, classes = files[0], published.num_classes
    if file.suffix == ".parquet":
        absent = {"text", "label"} - set(parquet_columns(file))
        if absent:
            raise RequestError(f"data: {file}: the columns text and label ({absent.pop()} is missing)")
        return Corpus(files, ("text",), "label", num_classes=classes)
    first = first_row(file)
    lower = [name.strip().lower() for name in first]
    if {"text", "label"} <= set(lower):
        text, label = (first[lower.index(name)] for name in ("text", "label"))
        return Corpus(files, (text,), label, num_classes=classes)
    if len(first) == 3 and lower[0].isdecimal():
        columns = ("label", "title", "description")
        return Corpus(files, columns[1:], "label", columns, first_label=1, num_classes=classes)
    if len(first) == 3 and lower[0] in ("class index", "class", "label"):
        return Corpus(files, tuple(first[1:]), first[0], first_label=1, num_classes=classes)
    if len(first) == 2 and lower[1].isdecimal():
        return Corpus(files, ("text",), "label", ("text", "label"), num_classes=classes)
    raise RequestError(
        f"data: {file}: {published.title} as label, title, description or as text, label "
        f"(received {len(first)} columns, {','.join(first)[:60]!r})"
    )


def _hub_folder(published: PublishedTexts, split: str) -> Path:
    """The folder of the hub's copy, taken from the hub's cache where it is there."""
    from huggingface_hub import snapshot_download

    def download(name: str, local_files_only: bool) -> Path:
        place = Path(
            snapshot_download(
                name,
                repo_type="dataset",
                allow_patterns=["*/train-*.parquet", "*/test-*.parquet"],
                local_files_only=local_files_only,
            )
        )
        if local_files_only and not _split_files(place, split):
            raise FileNotFoundError(f"{place} is not complete")
        return place

    return hub.load_local_first(download, published.repository, None)


def _missing(published: PublishedTexts, data: Path | None, split: str, why: str) -> RequestError:
    where = "DIR" if data is None else str(data)
    command = (
        f"hf download {published.repository} --repo-type dataset --local-dir {where}/{published.folders[0]} "
        "--include '*/train-*' --include '*/test-*'"
    )
    received = "nothing: --data DIR says where" if data is None else where
    return RequestError(
        f"data: a directory with {published.title}: {split}.csv, {split}.parquet or {split}-*.parquet; "
        f"this downloads it: {command} (received {received}; {why})"
    )


def _users_corpus(spec: TextSpec | CausalLMSpec, data: Path | None, split: str) -> Corpus:
    """The file that the study names, with the columns that it names."""
    field, name = f"workload.{split}_file", spec.train_file if split == "train" else spec.test_file
    if name is None:
        raise RequestError(f'{field}: a .csv or .parquet file, as data_set is "files" (received nothing)')
    file = Path(name).expanduser()
    if not file.is_absolute() and data is None:
        raise RequestError(f"{field}: an absolute path, or one under --data DIR (received {name!r})")
    file = file if data is None else data / file
    if file.suffix not in (".csv", ".parquet"):
        raise RequestError(f"{field}: a .csv or .parquet file (received {name!r})")
    if not file.is_file():
        raise RequestError(f"{field}: a file that is there (received {file})")
    columns = first_row(file) if file.suffix == ".csv" else parquet_columns(file)
    label = spec.label_column if isinstance(spec, TextSpec) else None
    wanted = [("text_columns", text) for text in spec.text_columns]
    for knob, column in [*wanted, *([("label_column", label)] if label else [])]:
        if column not in columns:
            raise RequestError(
                f"workload.{knob}: a column of {file}: {', '.join(columns)} (received {column!r})"
            )
    classes = spec.num_classes if isinstance(spec, TextSpec) else None
    return Corpus((file,), spec.text_columns, label, num_classes=classes, is_users=True)

"""The rows of a corpus: texts, checked to be texts, and raw labels.

They are read as a stream (``datasets``), so that a corpus need not fit into memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from raybench.errors import RequestError
from raybench.workloads.data_files import damaged, first_line
from raybench.workloads.texts import hub
from raybench.workloads.texts.columns import first_row
from raybench.workloads.texts.corpora import Corpus

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
            raise damaged(corpus.files[0], first_line(error.__cause__ or error)) from error  # type: ignore[arg-type]
    if not row:
        raise RequestError(f"data: {corpus.files[0]}: rows after the header line (received none)")


def _reader(corpus: Corpus) -> tuple[str, dict[str, Any]]:
    """The reader of ``datasets`` and its options. Every column of a CSV file is text: nothing is guessed."""
    from datasets import Features, Value

    if corpus.files[0].suffix == ".parquet":
        return "parquet", {}
    names = list(corpus.header or first_row(corpus.files[0]))
    options: dict[str, Any] = {
        "features": Features({name: Value("string") for name in names}),
        "keep_default_na": False,  # "NA" and "null" are words
        "encoding": "utf-8-sig",
    }
    return "csv", options | ({"column_names": names} if corpus.header else {})


def _texts(corpus: Corpus, batch: dict[str, list[Any]], row: int) -> list[str]:
    """The texts of a batch that begins at ``row``; ``RequestError`` for what is not text."""
    for name in corpus.text_columns:
        for offset, value in enumerate(batch[name]):
            if not isinstance(value, str):
                raise _not_text(corpus, name, value, row + offset)
        if not row and all(is_number(value) for value in batch[name]):
            raise _not_text(corpus, name, batch[name][0], 0)
    if len(corpus.text_columns) == 1:
        return list(batch[corpus.text_columns[0]])
    return [" ".join(parts) for parts in zip(*(batch[name] for name in corpus.text_columns), strict=True)]


def is_number(text: str) -> bool:
    """Whether a value of a CSV file is a number."""
    try:
        float(text)
    except ValueError:
        return False
    return True


def _not_text(corpus: Corpus, column: str, value: Any, row: int) -> RequestError:
    field = "workload.text_columns" if corpus.is_users else "data"
    return RequestError(
        f"{field}: {column} of {corpus.files[0]} holds text (received {value!r} in row {row + 1})"
    )

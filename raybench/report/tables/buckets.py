"""The model's gradients, and the buckets in which DDP sends them."""

from __future__ import annotations

from itertools import groupby

from raybench.analysis.labels import knob_words
from raybench.analysis.model_buckets import Buckets
from raybench.analysis.results import StudyResults
from raybench.analysis.whatif.buckets import BucketCap
from raybench.report.format import mebibytes
from raybench.report.tables.base import Column, Table, empty_table, make_table

TITLE = "The gradients and their buckets"
MOST_SIZES = 6  # runs of equal buckets in a cell


def _cap_words(cap: BucketCap) -> str:
    return knob_words("bucket_cap_mb", cap)


def _same_words(row: Buckets) -> str:
    return "" if row.same_as is None else _cap_words(row.same_as)


_COLUMNS: list[Column[Buckets]] = [
    Column("asked", lambda row: _cap_words(row.cap)),
    Column("buckets", lambda row: f"{len(row.sizes):,}", right=True),
    Column("sizes, MiB", lambda row: sizes_words(row.sizes)),
    Column("known from", lambda row: "DDP" if row.is_measured else "DDP's rule"),
    Column("the same as", _same_words),
]


def model_buckets_table(results: StudyResults) -> Table:
    """What each bucket size comes to; empty where no trial tells."""
    model = results.model_buckets
    if model is None:
        return empty_table(TITLE)
    numbers = "" if model.num_parameters is None else f"{model.num_parameters:,} trained parameters"
    tensors = "" if model.num_tensors is None else f"in {model.num_tensors:,} tensors"
    words = f"{numbers} {tensors}".strip()
    caption = (
        f"{f'{words}: ' if words else ''}{mebibytes(model.gradient_bytes)} MiB of gradients on each rank, "
        "buckets in the order in which they are sent."
    )
    if model.doubles:
        caption += " What gives the same buckets is the same setting, and counts once."
    return make_table(TITLE, caption, _COLUMNS, model.rows)


def sizes_words(sizes: tuple[int, ...]) -> str:
    """Sizes in MiB in their order, equal neighbours together: "1.02, 12 x 1.13, 0.563"."""
    runs = [(text, len(list(alike))) for text, alike in groupby(mebibytes(size) for size in sizes)]
    words = [text if number == 1 else f"{number} x {text}" for text, number in runs[:MOST_SIZES]]
    left = sum(number for _, number in runs[MOST_SIZES:])
    return ", ".join([*words, *([f"{left:,} more"] if left else [])])

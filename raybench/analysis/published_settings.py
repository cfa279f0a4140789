"""In what a study that repeats a write-up is not the write-up's.

``studies/published/settings.csv`` has a row for each field of a study (``study``, ``field``, dotted) that its
write-up sets, or would have to: ``value`` as TOML, a list where the write-up has several; empty where the
write-up does not say.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from typing import Any

from raybench.analysis.published import rows_of
from raybench.spec.study import Study
from raybench.spec.toml import flat, literal


@dataclass(frozen=True)
class Departure:
    """A field in which a study is not its write-up's."""

    field: str
    here: str  # as TOML; the values between commas where there are several
    published: str | None  # None: the write-up does not say, so the study had to choose


def departures(study: Study) -> tuple[Departure, ...]:
    """Of the study as it was run, in the file's order; empty for a study that repeats no write-up."""
    here = dict(flat(study.model_dump()))
    rows = [row for row in rows_of("settings") if row["study"] == study.name]
    found = (_departure(row["field"], here.get(row["field"]), row["value"]) for row in rows)
    return tuple(each for each in found if each is not None)


def _departure(field: str, here: Any, text: str) -> Departure | None:
    """None where what is here holds all that the write-up has."""
    values = list(here) if isinstance(here, tuple | list) else [here]
    words = "none" if values == [None] else ", ".join(literal(value) for value in values)
    if not text:
        return Departure(field, words, None)
    stated = tomllib.loads(f"value = {text}")["value"]
    theirs = stated if isinstance(stated, list) else [stated]
    if all(value in values for value in theirs):
        return None
    return Departure(field, words, ", ".join(literal(value) for value in theirs))

"""``predict DIR --what-if``: step times under changes that were not measured, from one trial that was."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from raybench.analysis.simulate.what_if import Change
from raybench.commands.exit_codes import DONE
from raybench.commands.options import parse_bucket_sizes, parse_list
from raybench.commands.swept_links import swept_links
from raybench.errors import RequestError
from raybench.spec.toml import received

if TYPE_CHECKING:
    from rich.console import Console

    from raybench.records.record import TrialRecord

OPTION = "--what-if"
COMPRESSIONS = ("none", "fp16", "bf16")
_RATE = re.compile(r"(?P<number>\d+(?:\.\d+)?) ?(?P<unit>[KMGT]?bit)/s", re.ASCII | re.IGNORECASE)
_BITS = {"bit": 1.0, "kbit": 1e3, "mbit": 1e6, "gbit": 1e9, "tbit": 1e12}


def parse_changes(text: str, option: str = OPTION) -> tuple[Change, ...]:
    """``bucket_cap_mb=1,5,25 batch_size=256``: each combination of the values.

    Raises ``RequestError`` for a name that is none, one given twice, or a value that breaks its rule.
    """
    lists = dict[str, tuple[Any, ...]]()
    for part in text.replace(";", " ").split():
        name, equals, values = part.partition("=")
        known = ", ".join(_PARSERS)
        if name not in _PARSERS or not equals or not values:
            raise RequestError(f"{option}: NAME=VALUES, the name one of {known} (received {received(part)})")
        field, parse = _PARSERS[name]
        if field in lists:
            raise RequestError(f"{option}: each name once (received {name} twice)")
        lists[field] = parse(values, f"{option} {name}")
    if not lists:
        raise RequestError(f"{option}: NAME=VALUES, as bucket_cap_mb=1,5,25 (received {received(text)})")
    return tuple(
        Change(**dict(zip(lists, values, strict=True))) for values in itertools.product(*lists.values())
    )


def run_what_if(
    directory: Path,
    changes: Sequence[Change],
    console: Console,
    *,
    communication: Path | None = None,
    quiet: bool = False,
) -> int:
    """Print what ``changes`` of the directory's headline would bring, beside what was measured.

    ``communication``: results of a sweep of the place. ``quiet`` leaves the table out. Raises
    ``RequestError`` where nothing can be said.
    """
    from raybench.analysis.measured import measured_study
    from raybench.analysis.simulate.what_if import trial_to_ask, what_if
    from raybench.records.store import ResultsDirectory
    from raybench.report.rich_tables import rich_table, width_on
    from raybench.report.tables.what_if import point_words, what_if_table

    if not directory.is_dir():
        raise RequestError(f"{OPTION}: a results directory of a study (received {directory})")
    with ResultsDirectory.open_readonly(directory) as store:
        results = measured_study(store.study(), list(store.latest().values()))
    record = trial_to_ask(results)
    found = links = None
    if communication is not None:
        asked = results.complete if record is None else [record]
        links = swept_links(
            communication, (each.config.device for each in asked), (each.device_name for each in asked)
        )
    if record is not None:
        others = _of_the_study(results.measured, record)
        found = what_if(record, changes, others=others, measured=others, links=links)
    if found is None:
        raise RequestError(
            f"{OPTION}: {directory} has no complete trial of ddp on several devices with all variants and a "
            "timeline of its gradients, which trials of a scaling curve have since they are recorded"
        )
    table = what_if_table(results, found)
    if not quiet:
        console.print(rich_table(table, width_on(console), tight=True))
    else:
        for point in found.points:
            console.print(point_words(point), highlight=False, markup=False)
    console.print(table.caption, highlight=False, markup=False)
    return DONE


def _of_the_study(measured: Sequence[TrialRecord], record: TrialRecord) -> list[TrialRecord]:
    return [each for each in measured if each.trial_id != record.trial_id] + [record]


def _rates(text: str, option: str) -> tuple[float, ...]:
    def convert(word: str) -> float:
        match = _RATE.fullmatch(word)
        if match is None or float(match["number"]) == 0:
            raise ValueError(word)
        return float(match["number"]) * _BITS[match["unit"].lower()]

    return parse_list(text, convert, option, "rates above 0 such as 10Gbit/s")


def _whole(text: str, option: str) -> tuple[int, ...]:
    def convert(word: str) -> int:
        number = int(word)
        if number < 1:
            raise ValueError(word)
        return number

    return parse_list(text, convert, option, "whole numbers above 0 with commas between them")


def _compressions(text: str, option: str) -> tuple[str, ...]:
    def convert(word: str) -> str:
        if word not in COMPRESSIONS:
            raise ValueError(word)
        return word

    return parse_list(text, convert, option, ", ".join(COMPRESSIONS))


_PARSERS: dict[str, tuple[str, Any]] = {
    "bucket_cap_mb": ("bucket_cap_mb", parse_bucket_sizes),
    "batch_size": ("batch_size", _whole),
    "gradient_accumulation": ("gradient_accumulation", _whole),
    "gradient_compression": ("gradient_compression", _compressions),
    "link": ("link_bits_per_s", _rates),
}

"""All that a report says of results, in words and tables, where nobody reads it; and results to damage."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

from rich.console import Console

from raybench.analysis import analyse
from raybench.analysis.collectives import analyse_sweep
from raybench.commands.import_report import report_file
from raybench.machine.environment import capture
from raybench.records.record import TrialRecord
from raybench.records.store import Asked, ResultsDirectory
from raybench.report.answer import answer_of
from raybench.report.communication import print_sweep, sweep_answer
from raybench.report.contents import make_tables
from raybench.report.formats import summary_csv
from tests.support.planted import FakeLearning
from tests.unit.studies import trained_study
from tests.unit.sweeps import KIB, planned, swept


def tell(store: ResultsDirectory) -> None:
    """A study or a sweep."""
    records = list(store.latest().values())
    if store.is_sweep:
        links = analyse_sweep(store.sweep(), records)
        assert sweep_answer(links)
        print_sweep(links, _unseen())
        return
    results = analyse(store.study(), records)
    assert answer_of(results)
    make_tables(results)
    summary_csv(results.summaries)


def tell_file(file: Path) -> None:
    """A CSV file of measurements."""
    report_file(file, None, None, _unseen(), quiet=False)


def directory_of(path: Path, asked: Asked, records: list[TrialRecord]) -> Path:
    """A results directory with these records."""
    with ResultsDirectory.create(path, asked, capture()) as results:
        for record in records:
            results.append(record)
    return path


def trained_records() -> tuple[Asked, list[TrialRecord]]:
    """A study with a training, and a record of each kind that it has."""
    plan, records = trained_study(
        FakeLearning(), training={"epochs": 2, "seeds": 1, "noise_scale": True}, measure={"min_rounds": 3}
    )
    return plan.study, [short(record) for record in records]


def swept_records() -> tuple[Asked, list[TrialRecord]]:
    """A sweep of two messages on two and four devices."""
    fields: dict[str, Any] = {"world_sizes": (2, 4), "message_bytes": (KIB, 1024 * KIB)}
    return planned(**fields).sweep, [short(record) for record in swept(**fields)[0]]


def short(record: TrialRecord) -> TrialRecord:
    """With few rounds: what is damaged is small, and is shown when it is found."""
    rounds = getattr(record.result, "rounds", None)
    if rounds is None or record.result is None:
        return record
    return record.model_copy(update={"result": record.result.model_copy(update={"rounds": rounds[:4]})})


def _unseen() -> Console:
    return Console(file=io.StringIO())

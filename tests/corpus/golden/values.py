"""What raybench finds in a results directory, as plain values: the only module here that calls its analysis.

A section is a dictionary of rows, a row one of values; what is None is left out. An estimate is a list:
its value, the ends of its interval, n. No English is in it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from enum import Enum
from pathlib import Path
from typing import Any
from unittest import mock

from raybench.analysis.collectives import analyse_sweep
from raybench.analysis.findings.case import Around
from raybench.analysis.findings.finding import Finding
from raybench.analysis.resolve import resolve
from raybench.analysis.results import StudyResults, found_in
from raybench.analysis.simulate.what_if import Change, trial_to_ask, what_if
from raybench.analysis.stats.statistics import Estimate, inverse
from raybench.analysis.stats.verdict import Gain
from raybench.commands import predict_run
from raybench.commands.console import make_console
from raybench.commands.notes import left_out_words
from raybench.commands.predict import PredictOptions
from raybench.errors import RequestError
from raybench.plan.notes import left_out
from raybench.records.store import ResultsDirectory
from raybench.report.prediction import prediction_rows
from raybench.spec.knobs import Setting

Row = dict[str, Any]
Sections = dict[str, dict[str, Row]]
LARGE_NODE = 64  # devices
CHANGES = (
    *(Change(bucket_cap_mb=each) for each in ("default", 1.0, 25.0, 100.0)),
    Change(batch_size=512),
    Change(gradient_accumulation=2),
    Change(gradient_compression="fp16"),
    Change(link_bits_per_s=10e9),
)


def values_of(directory: Path) -> Sections:
    """Every golden section of the results in ``directory``."""
    with ResultsDirectory.open_readonly(directory) as store:
        found = _of_sweep(store) if store.is_sweep else _of_study(store)
        is_study = not store.is_sweep
    if is_study:
        found |= {"predict": _predicted(directory), "what_if": _what_if(directory)}
    return {name: _plain(rows) for name, rows in found.items() if rows}


def _of_sweep(store: ResultsDirectory) -> Sections:
    results = analyse_sweep(store.sweep(), list(store.latest().values()))
    rows = [each.row() for each in results.messages]
    keys = ("collective", "world_size", "placement", "message_bytes")
    names = ("latency_s", "algorithm_bandwidth_bytes_per_s", "line")
    return {
        "communication.csv": _keyed((" ".join(str(row.get(key)) for key in keys), row) for row in rows),
        "links": _keyed(
            (f"{each.collective} {each.place.world_size}", {name: getattr(each, name) for name in names})
            for each in results.links
        ),
    }


def _of_study(store: ResultsDirectory) -> Sections:
    study, records, environment = store.study(), list(store.latest().values()), store.environment()
    facts = resolve(study, records, environment)
    notes = left_out(study, records, len(environment.every_node), facts.winners)
    results = found_in(facts, Around(environment, left_out=tuple(left_out_words(each) for each in notes)))
    return {
        "summary.csv": _keyed((row.trial_id, row.row()) for row in results.summaries),
        "findings": _keyed(map(_finding, results.diagnosis)),
        "choice": _choice(results),
        "costs": _keyed(
            (
                f"{each.at.record.trial_id} {each.at.world_size}",
                {name: getattr(each, name) for name in ("speedup", "saved_s", "saved_money")}
                # by steps, also where a run was trained
                | {"cost_ratio": inverse(each.speedup).scaled(each.at.world_size) if each.speedup else None},
            )
            for each in results.costs
        ),
        "phases": _phases(results),
        "training": _training(results),
    }


def _finding(finding: Finding) -> tuple[str, Row]:
    names = ("severity", "values", "explains", "predicted", "change", "reason")
    return f"{finding.name} {finding.trial_id}", {name: getattr(finding, name) for name in names}


def _choice(results: StudyResults) -> dict[str, Row]:
    best, use = results.best, results.recommendation
    return {
        "best": {"trial_id": best.trial_id, "is_default": best is results.default} if best else {},
        "gains": {trial_id: _gain(gain) for trial_id, gain in sorted(results.gains.items())},
        "chosen": {"trial_ids": sorted(each.record.trial_id for each in results.chosen)},
        "recommendation": {
            "is_faster": use.is_faster,
            "setting": use.config.setting.differences(Setting()),
            "environment": dict(use.config.environment),
            "world_size": use.config.world_size,
            "gain": _gain(use.gain),
        }
        if use
        else {},
    }


def _gain(gain: Gain | None) -> Row:
    return {"gain": gain.gain, "verdict": gain.verdict} if gain else {}


def _phases(results: StudyResults) -> dict[str, Row]:
    table, names = results.phases, ("one_s", "many_s", "share_of_gain")
    rows = (*table.rows, table.total) if table else ()
    return {
        f"phase {number}": {name: getattr(each, name) for name in names} for number, each in enumerate(rows)
    }


def _training(results: StudyResults) -> dict[str, Row]:
    training = results.training
    several = (*training.comparisons, *training.changed) if training else ()
    names = ("num_seeds", "difference_points", "parity", "epoch_speedup", "total_speedup")
    return _keyed(
        (
            f"{each.group.runs[0].record.trial_id} {each.base.runs[0].record.trial_id}",
            {name: getattr(each, name) for name in names},
        )
        for each in several
    )


def _predicted(directory: Path) -> dict[str, Row]:
    """As predict does without options, then on one large node, with each scaling."""
    asked: dict[str, dict[str, Any]] = {
        "as measured": {},
        "one node weak": {"devices_per_node": LARGE_NODE, "scaling": "weak"},
        "one node strong": {"devices_per_node": LARGE_NODE, "scaling": "strong"},
    }
    found: dict[str, Row] = {}
    console = make_console()
    console.quiet = True
    keys = ("nodes", "world_size", "batch_size")
    for name, options in asked.items():
        printed = mock.Mock()
        with mock.patch.object(predict_run, "print_outlooks", printed):
            try:
                predict_run.run_predict(PredictOptions([directory], **options), console)
            except RequestError:
                found[name] = {"is_refused": True}
                continue
        # why a prediction is refused is English
        rows = [row | {"refused": None} for row in prediction_rows(printed.call_args.args[0])]
        found |= _keyed((" ".join([name, *(str(row.get(key)) for key in keys)]), row) for row in rows)
    return found


def _what_if(directory: Path) -> dict[str, Row]:
    with ResultsDirectory.open_readonly(directory) as store:
        results = resolve(store.study(), list(store.latest().values()), store.environment())
    record = trial_to_ask(results)
    if record is None:
        return {}
    found: dict[str, Row] = {}
    names = ("num_buckets", "step_time_s", "exposed_s", "throughput_samples_per_s", "gain", "measured_s")
    for change in CHANGES:
        key = " ".join(
            f"{name}={value}" for name, value in dataclasses.asdict(change).items() if value is not None
        )
        try:
            predictions = what_if(record, [change], results.fit)
        except RequestError:
            found[key] = {"is_refused": True}
            continue
        if predictions is not None:
            found[key] = {name: getattr(predictions.points[0], name) for name in names}
    return found


def _keyed(rows: Iterable[tuple[str, Mapping[str, Any]]]) -> dict[str, Row]:
    """The rows by their keys, sorted; a key that comes again is numbered."""
    found: dict[str, Row] = {}
    for key, row in rows:
        number = next(n for n in range(1, 10_000) if (key if n == 1 else f"{key} #{n}") not in found)
        found[key if number == 1 else f"{key} #{number}"] = dict(row)
    return dict(sorted(found.items()))


def _plain(value: Any) -> Any:
    """JSON's own types, without None."""
    if isinstance(value, Estimate):
        return [_plain(each) for each in (value.value, value.low, value.high, value.n)]
    if isinstance(value, Mapping):
        return {str(key): _plain(each) for key, each in value.items() if each is not None}
    if isinstance(value, (list, tuple)):
        return [_plain(each) for each in value]
    if isinstance(value, Enum):
        return str(value.value)
    if isinstance(value, (bool, int, str)):
        return value
    return float(value)

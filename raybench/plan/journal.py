"""Optuna's journal of a search: what optuna-dashboard shows of it."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import optuna
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend, JournalFileOpenLock
from optuna.study import StudyDirection

from raybench.analysis.objectives import UNITS
from raybench.analysis.summary import model_name_of, summarize
from raybench.plan.trials import Plan
from raybench.records.record import TrialRecord

# Of the columns of summary.csv: those that say what a suggestion is worth, in the order of a trial's page.
SHOWN = (
    "efficiency", "efficiency_low", "efficiency_high", "speedup", "throughput_samples_per_s",
    "throughput_tokens_per_s", "step_time_s", "step_time_low_s", "step_time_high_s", "status",
    "peak_memory_bytes", "world_size", "global_batch_size", "rounds", "state", "trial_id",
)  # fmt: skip


def journal_of(plan: Plan, directions: Sequence[StudyDirection], path: Path) -> optuna.Study:
    """A new journal in ``path``: the study by its name, its objectives with their units, what it is about.

    One that lies there is replaced: it is made anew from the records, which are the truth.
    """
    for leftover in (path, path.with_name(path.name + ".lock")):
        leftover.unlink(missing_ok=True)
    # a lock by open(O_EXCL): symbolic links are not to be had on every shared file system
    backend = JournalFileBackend(str(path), lock_obj=JournalFileOpenLock(str(path)))
    study = optuna.create_study(
        study_name=plan.study.name, storage=JournalStorage(backend), directions=list(directions)
    )
    with warnings.catch_warnings():  # experimental since 2023
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        study.set_metric_names([_with_unit(name) for name in plan.study.search.objectives])
    about = {
        "model": model_name_of(plan.study.workload),
        "world_size": plan.target,
        "scaling": plan.study.scaling.mode,
        "device": plan.device,
    }
    for name, value in about.items():
        study.set_user_attr(name, value)
    return study


def attributes(record: TrialRecord) -> dict[str, Any]:
    """What stands beside a trial's values and parameters: its id and state, its speed or why it has none."""
    row = summarize([record])[0].row()
    shown = {name: row[name] for name in SHOWN if row[name] is not None}
    return shown | ({"reason": record.reason} if record.reason else {})


def _with_unit(objective: Any) -> str:
    name, unit = objective.replace("_", " "), UNITS[objective]
    return f"{name} ({unit})" if unit else name

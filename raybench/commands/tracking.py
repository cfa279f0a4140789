"""``--log``: the study and its trials as runs of an experiment tracker, once the report is written."""

from __future__ import annotations

import math
import os
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from raybench.analysis.labels import trial_words
from raybench.analysis.results import StudyResults
from raybench.analysis.summary import METRICS, Summary, own_of_a_script
from raybench.commands.scaling import Tracker
from raybench.errors import RequestError, printable, text_of
from raybench.records.record import TrialRecord

REPORT = "report"


@dataclass(frozen=True)
class Run:
    """What a tracker keeps of a study or of one of its trials."""

    key: str  # the name of a folder
    name: str
    parameters: dict[str, Any]
    metrics: dict[str, float]  # in the units of summary.csv


def refuse_missing(tracker: Tracker) -> None:
    """Raise ``RequestError`` where the tracker's package is not installed."""
    if find_spec(tracker) is None:
        raise RequestError(
            f'--log {tracker}: the package {tracker} is not installed: pip install "raybench[{tracker}]"'
        )


def log_study(tracker: Tracker, results: StudyResults, directory: Path) -> str | None:
    """Log the study in ``directory`` with its report, and a run for each trial under it.

    Returns what went wrong: the results are on disk, whatever a tracker does.
    """
    values = {each.trial_id: _metrics(each) for each in results.trials}
    headline = results.headline.trial_id if results.headline else None
    study = Run(
        key="study",
        name=directory.name,
        parameters={"study": results.study.name, "model": results.study.workload.name},
        metrics=next((_metrics(each) for each in results.summaries if each.trial_id == headline), {}),
    )
    trials = [
        Run(
            key=each.trial_id,
            name=trial_words(results.study, each.study_request),
            parameters=_parameters(each),
            metrics=values.get(each.trial_id, {}),
        )
        for each in results.records
        if each.request.kind != "probe"
    ]
    try:
        _TRACKERS[tracker](study, trials, directory)
    except Exception as error:  # of the library, its server or its files
        return printable(
            f"--log {tracker}: not everything was logged: {type(error).__name__}: {text_of(error)}"
        )
    return None


def _parameters(record: TrialRecord) -> dict[str, Any]:
    """Of a trial, without what a script decides on its own and nobody knows."""
    config = record.config
    found = {
        **config.setting.model_dump(mode="json"),
        "scaling": config.scaling,
        "world_size": config.world_size,
        "global_batch_size": config.global_batch_size,
        "role": record.request.role,
        "state": record.state,
    } | own_of_a_script(record)
    return {name: value for name, value in found.items() if value is not None}


def _metrics(row: Summary) -> dict[str, float]:
    found = {name: getattr(row, name) for name in METRICS}
    return {name: float(value) for name, value in found.items() if value is not None and math.isfinite(value)}


def _to_mlflow(study: Run, trials: Sequence[Run], directory: Path) -> None:
    """Nested runs in the experiment of the study's name, unless MLflow's own variables name another."""
    import mlflow

    def log(run: Run) -> None:
        mlflow.log_params(run.parameters)
        mlflow.log_metrics(run.metrics)

    is_below = mlflow.active_run() is not None  # one of the user's own, whose experiment it is
    if not is_below and not {"MLFLOW_EXPERIMENT_NAME", "MLFLOW_EXPERIMENT_ID"} & os.environ.keys():
        mlflow.set_experiment(study.parameters["study"])
    with mlflow.start_run(run_name=study.name, nested=is_below):
        log(study)
        mlflow.log_artifacts(str(directory / REPORT), REPORT)
        for each in trials:
            with mlflow.start_run(run_name=each.name, nested=True):
                log(each)


def _to_wandb(study: Run, trials: Sequence[Run], directory: Path) -> None:
    """Runs of one group: W&B has none below another."""
    import wandb

    for each in (study, *trials):
        with wandb.init(
            project=os.environ.get("WANDB_PROJECT", "raybench"),
            group=study.name,
            job_type="study" if each is study else "trial",
            name=each.name,
            config=each.parameters,
            reinit="create_new",  # beside one of the user's own
            settings=wandb.Settings(silent=True, console="off"),
        ) as run:
            run.log(each.metrics)
            if each is study:
                report = wandb.Artifact(REPORT, type=REPORT)
                report.add_dir(str(directory / REPORT))
                run.log_artifact(report)


def _to_tensorboard(study: Run, trials: Sequence[Run], directory: Path) -> None:
    """A folder for each run in ``tensorboard`` of the results directory, and the report as text."""
    from torch.utils.tensorboard import SummaryWriter

    for each in (study, *trials):
        folder = directory / "tensorboard" / each.key
        shutil.rmtree(folder, ignore_errors=True)  # what was logged before would stand beside it
        with SummaryWriter(str(folder)) as writer:
            writer.add_hparams({"name": each.name, **each.parameters}, each.metrics, run_name=".")
            if each is study:
                writer.add_text(REPORT, (directory / REPORT / "report.md").read_text(encoding="utf-8"))


_TRACKERS: dict[Tracker, Callable[[Run, Sequence[Run], Path], None]] = {
    "mlflow": _to_mlflow,
    "wandb": _to_wandb,
    "tensorboard": _to_tensorboard,
}

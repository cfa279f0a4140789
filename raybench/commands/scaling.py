"""The command ``scaling`` as it is typed: options that set fields of the study, and those of the run."""

from __future__ import annotations

import functools
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, Literal

import psutil
import typer

from raybench.commands import options as parsed
from raybench.commands.options import FieldOption, Options, StudyName, option, parse_path, with_options
from raybench.commands.process import leave
from raybench.errors import RequestError
from raybench.spec.study import Study
from raybench.spec.user_input import home_path, real_path


@dataclass(frozen=True)
class ScalingOptions(Options):
    """Options of ``scaling`` that are no fields of the study."""

    study: StudyName = None
    smoke: Annotated[bool, typer.Option("--smoke", help="The study's own small sizes.")] = False
    runner: Annotated[Literal["group", "tune"], typer.Option(help="How trials get processes.")] = "group"
    working_dir: Annotated[
        Path | None,
        option("--working-dir", "PATH", parse_path, "Directory that travels to the workers."),
    ] = None
    verify: Annotated[
        bool, typer.Option("--verify", help="Test the changes that the first findings propose.")
    ] = False
    log: Annotated[
        Literal["mlflow", "wandb", "tensorboard"] | None,
        typer.Option(help="A tracker that gets the study and its trials as runs."),
    ] = None
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the plan, start nothing.")] = False
    began: float = field(default_factory=lambda: psutil.Process().create_time())
    lives_on: bool = False  # this process, where it is a notebook's: Ray ends in order after an interrupt


def _data(text: str, option: str) -> str:
    return str(real_path(home_path(text, option)))


FIELDS = (
    FieldOption("--world-sizes", "scaling.world_sizes", "1,2,4", parsed.parse_world_sizes),
    FieldOption("--batch-sizes", "knobs.batch_size", "256,4096", parsed.parse_batch_sizes),
    FieldOption("--bucket-cap-mb", "knobs.bucket_cap_mb", "1,25,default", parsed.parse_bucket_sizes),
    FieldOption("--precision", "knobs.precision", "fp32,bf16", parsed.parse_precisions),
    FieldOption("--scaling", "scaling.mode"),
    FieldOption("--trials", "search.trials"),
    FieldOption("--time-budget", "time_budget_seconds", "10m", parsed.parse_duration),
    FieldOption("--device", "resources.device"),
    FieldOption("--cpus-per-worker", "resources.cpus_per_worker"),
    FieldOption("--oversubscribe", "resources.oversubscribe"),
    FieldOption("--visits", "measure.visits"),
    FieldOption("--steps", "measure.steps"),
    FieldOption("--warmup-steps", "measure.warmup_steps"),
    FieldOption("--data", "data", "PATH", _data, "RAYBENCH_DATA"),
    FieldOption("--profile", "measure.profile"),
    FieldOption("--seed", "seed"),
)


@with_options(ScalingOptions, Study, *FIELDS)
def scaling_options(
    *,
    options: ScalingOptions,
    fields: dict[str, Any],
    grid: Annotated[bool, typer.Option("--grid", help="Every combination of the listed values.")] = False,
    set_: Annotated[list[str] | None, typer.Option("--set", help="dotted.field=value, as in TOML.")] = None,
) -> ScalingOptions:
    """Plan, run, analyse and report a scaling study."""
    if "search.trials" in fields:
        if grid:
            raise RequestError(
                f"--grid: excludes --trials (received both, --trials {fields['search.trials']})"
            )
        fields["search.method"] = "optuna"
    elif grid:
        fields["search.method"] = "grid"
    return replace(
        options, overrides=(*fields.items(), *(parsed.parse_assignment(text) for text in set_ or ()))
    )


@functools.wraps(scaling_options, assigned=("__doc__", "__annotations__"))
def scaling(**typed: Any) -> None:
    """Run the command."""
    options = scaling_options(**typed)
    from raybench.commands.console import make_console
    from raybench.commands.scaling_run import run_scaling

    leave(lambda: run_scaling(options, make_console()).code)

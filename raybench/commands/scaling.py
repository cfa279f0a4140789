"""The command ``scaling`` as it is typed: options, each of which overrides a field of the study."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from raybench.commands import options as parsed
from raybench.commands.options import parse_path as _path
from raybench.commands.options import parse_whole as _whole
from raybench.commands.process import leave
from raybench.errors import RequestError
from raybench.spec.typed import home_path, real_path

StudyName = Annotated[
    str | None,
    typer.Argument(metavar="[STUDY]", help="A name that `list` shows, or the path of a TOML file."),
]


def scaling(
    study: StudyName = None,
    output: Annotated[
        Path | None,
        typer.Option(
            parser=_path("--output"), metavar="PATH", help="Results directory; it must be new or empty."
        ),
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on in --output, measuring nothing twice.")
    ] = False,
    retry: Annotated[str, typer.Option(help="With --resume: states to try again, as crashed,timeout.")] = "",
    world_sizes: Annotated[str, typer.Option(help="Numbers of devices, as 1,2,4, or all.")] = "",
    batch_sizes: Annotated[str, typer.Option(help="Per device (weak scaling) or global (strong).")] = "",
    bucket_cap_mb: Annotated[str, typer.Option(help="DDP's buckets in MiB, as 1,25,default.")] = "",
    precision: Annotated[str, typer.Option(help="Of fp32, tf32, bf16, fp16, default, as fp32,bf16.")] = "",
    scaling: Annotated[Literal["weak", "strong"] | None, typer.Option(help="What stays the same.")] = None,
    grid: Annotated[bool, typer.Option("--grid", help="Every combination of the listed values.")] = False,
    trials: Annotated[
        int | None,
        typer.Option(metavar="N", parser=_whole("--trials"), help="Suggestions that Optuna makes."),
    ] = None,
    time_budget: Annotated[str, typer.Option(help="For the whole command, as 90s, 10m, 2h.")] = "",
    smoke: Annotated[bool, typer.Option("--smoke", help="The study's own small sizes.")] = False,
    device: Annotated[Literal["auto", "cpu", "cuda"] | None, typer.Option(help="Kind of device.")] = None,
    cpus_per_worker: Annotated[
        int | None,
        typer.Option(metavar="N", parser=_whole("--cpus-per-worker"), help="Cores of each worker."),
    ] = None,
    oversubscribe: Annotated[bool, typer.Option("--oversubscribe", help="More workers than cores.")] = False,
    steps: Annotated[
        int | None,
        typer.Option(
            metavar="N", parser=_whole("--steps"), help="Steps of a block, for a fixed number of rounds."
        ),
    ] = None,
    warmup_steps: Annotated[
        int | None,
        typer.Option(metavar="N", parser=_whole("--warmup-steps"), help="Steps before the first round."),
    ] = None,
    runner: Annotated[Literal["group", "tune"], typer.Option(help="How trials get processes.")] = "group",
    address: Annotated[
        str | None, typer.Option(help="Of a Ray cluster; else RAY_ADDRESS, else local.")
    ] = None,
    working_dir: Annotated[
        Path | None,
        typer.Option(
            parser=_path("--working-dir"), metavar="PATH", help="Directory that travels to the workers."
        ),
    ] = None,
    data: Annotated[
        Path | None,
        typer.Option(
            parser=_path("--data"), metavar="PATH", envvar="RAYBENCH_DATA", help="Directory with data sets."
        ),
    ] = None,
    profile: Annotated[
        bool, typer.Option("--profile", help="Traces of the default and the best trial.")
    ] = False,
    verify: Annotated[
        bool, typer.Option("--verify", help="Test the changes that the first findings propose.")
    ] = False,
    seed: Annotated[
        int | None, typer.Option(metavar="N", parser=_whole("--seed"), help="Of weights, batches and search.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the plan, start nothing.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="Print the answer only.")] = False,
    set_: Annotated[list[str] | None, typer.Option("--set", help="dotted.field=value, as in TOML.")] = None,
) -> None:
    """Plan, run, analyse and report a scaling study."""
    if retry and not resume:
        raise RequestError(f"--retry: goes with --resume (received {retry!r})")
    if grid and trials is not None:
        raise RequestError(f"--grid: excludes --trials (received both, --trials {trials})")
    chosen: dict[str, Any] = {
        "scaling.world_sizes": parsed.parse_world_sizes(world_sizes) if world_sizes else None,
        "knobs.batch_size": parsed.parse_batch_sizes(batch_sizes) if batch_sizes else None,
        "knobs.bucket_cap_mb": parsed.parse_bucket_sizes(bucket_cap_mb) if bucket_cap_mb else None,
        "knobs.precision": parsed.parse_precisions(precision) if precision else None,
        "scaling.mode": scaling,
        "search.method": "grid" if grid else "optuna" if trials is not None else None,
        "search.trials": trials,
        "time_budget_seconds": parsed.parse_duration(time_budget) if time_budget else None,
        "resources.device": device,
        "resources.cpus_per_worker": cpus_per_worker,
        "resources.oversubscribe": True if oversubscribe else None,
        "measure.steps": steps,
        "measure.warmup_steps": warmup_steps,
        "measure.profile": True if profile else None,
        "data": str(real_path(home_path(data, "--data"))) if data else None,
        "seed": seed,
    }
    from raybench.commands.console import make_console
    from raybench.commands.request import Options
    from raybench.commands.scaling_run import run_scaling

    options = Options(
        study=study,
        output=output,
        resume=resume,
        retry=parsed.parse_states(retry),
        smoke=smoke,
        device=device,
        overrides=(
            *((field, value) for field, value in chosen.items() if value is not None),
            *(parsed.parse_assignment(text) for text in set_ or ()),
        ),
        runner=runner,
        address=address,
        working_dir=working_dir,
        verify=verify,
        dry_run=dry_run,
        quiet=quiet,
    )
    leave(run_scaling(options, make_console()))

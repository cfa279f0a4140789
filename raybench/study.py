"""The command line: ``python -m raybench.study``, also installed as ``raybench``."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Literal, NoReturn

import typer

from raybench.commands import options as typed
from raybench.errors import NotYetError, RequestError
from raybench.spec.load import find_study, load_study, question, studies
from raybench.spec.toml import received

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    help="Measures how well training scales over devices, why, and what to change.",
)
WRONG_REQUEST = 2

StudyName = Annotated[
    str | None,
    typer.Argument(metavar="[STUDY]", help="A name that `list` shows, or the path of a TOML file."),
]


def _whole(option: str) -> Callable[[str], int]:
    """A parser that says what it received; typer's does not."""

    def parse(text: str) -> int:
        try:
            return int(text)
        except ValueError:
            raise RequestError(f"{option}: a whole number (received {received(text)})") from None

    return parse


@app.command(epilog="Example: python -m raybench.study scaling --batch-sizes 256,4096 --time-budget 10m")
def scaling(
    study: StudyName = None,
    output: Annotated[Path | None, typer.Option(help="Results directory; it must be new or empty.")] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on in --output, measuring nothing twice.")
    ] = False,
    retry: Annotated[str, typer.Option(help="With --resume: states to try again, as crashed,timeout.")] = "",
    world_sizes: Annotated[str, typer.Option(help="Numbers of devices, as 1,2,4, or all.")] = "",
    batch_sizes: Annotated[str, typer.Option(help="Per device (weak scaling) or global (strong).")] = "",
    bucket_cap_mb: Annotated[str, typer.Option(help="DDP's buckets in MiB, as 1,25,default.")] = "",
    precision: Annotated[str, typer.Option(help="Of fp32, tf32, bf16, fp16, as fp32,bf16.")] = "",
    scaling: Annotated[Literal["weak", "strong"] | None, typer.Option(help="What stays the same.")] = None,
    grid: Annotated[bool, typer.Option("--grid", help="Every combination of the listed values.")] = False,
    trials: Annotated[
        int | None,
        typer.Option(metavar="N", parser=_whole("--trials"), help="So many suggestions, chosen by Optuna."),
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
            metavar="N", parser=_whole("--steps"), help="Steps of a block, in place of adaptive ones."
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
    working_dir: Annotated[Path | None, typer.Option(help="Directory that travels to the workers.")] = None,
    data: Annotated[
        Path | None, typer.Option(envvar="RAYBENCH_DATA", help="Directory with data sets.")
    ] = None,
    profile: Annotated[bool, typer.Option("--profile", help="Traces of torch.profiler.")] = False,
    seed: Annotated[
        int | None, typer.Option(metavar="N", parser=_whole("--seed"), help="Of weights, batches and search.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the plan, start nothing.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="Print the answer only.")] = False,
    set_: Annotated[list[str] | None, typer.Option("--set", help="dotted.field=value, as in TOML.")] = None,
) -> None:
    """Plan, run, analyse and report a scaling study."""
    _refuse_not_yet({"--runner tune": runner == "tune", "--profile": profile})
    if retry and not resume:
        raise RequestError(f"--retry: goes with --resume (received {retry!r})")
    if grid and trials is not None:
        raise RequestError(f"--grid: excludes --trials (received both, --trials {trials})")
    chosen: dict[str, Any] = {
        "scaling.world_sizes": typed.parse_world_sizes(world_sizes) if world_sizes else None,
        "knobs.batch_size": typed.parse_batch_sizes(batch_sizes) if batch_sizes else None,
        "knobs.bucket_cap_mb": typed.parse_bucket_sizes(bucket_cap_mb) if bucket_cap_mb else None,
        "knobs.precision": typed.parse_precisions(precision) if precision else None,
        "scaling.mode": scaling,
        "search.method": "grid" if grid else "optuna" if trials is not None else None,
        "search.trials": trials,
        "time_budget_seconds": typed.parse_duration(time_budget) if time_budget else None,
        "resources.device": device,
        "resources.cpus_per_worker": cpus_per_worker,
        "resources.oversubscribe": True if oversubscribe else None,
        "measure.steps": steps,
        "measure.warmup_steps": warmup_steps,
        "data": str(data.expanduser().resolve()) if data else None,
        "seed": seed,
    }
    from raybench.commands import scaling as conduct
    from raybench.commands.display import make_console

    options = conduct.Options(
        study=study,
        output=output,
        resume=resume,
        retry=_states(retry),
        smoke=smoke,
        device=device,
        overrides=(
            *((field, value) for field, value in chosen.items() if value is not None),
            *(typed.parse_assignment(text) for text in set_ or ()),
        ),
        address=address,
        working_dir=working_dir,
        dry_run=dry_run,
        quiet=quiet,
    )
    code = conduct.conduct(options, make_console())
    if code == conduct.INTERRUPTED:  # threads of an abandoned Ray would wait for it, or abort
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    raise typer.Exit(code)


@app.command(epilog="Example: python -m raybench.study report results/default-20260101-120000")
def report(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="A results directory.")],
    quiet: Annotated[bool, typer.Option("--quiet", help="Print the answer only.")] = False,
) -> None:
    """Analysis and report again, from the results on disk."""
    from raybench.commands.display import make_console
    from raybench.commands.scaling import write_and_print
    from raybench.records.store import ResultsDirectory

    with ResultsDirectory.open_readonly(directory) as store:
        raise typer.Exit(write_and_print(store, make_console(), store.warnings, quiet=quiet))


@app.command(epilog="Example: python -m raybench.study compare results/monday results/tuesday")
def compare(
    directories: Annotated[list[Path], typer.Argument(metavar="DIR DIR...", help="Results directories.")],
    fail_if_slower: Annotated[
        bool,
        typer.Option(
            "--fail-if-slower", help="Exit 1 where a default is slower than the first DIR's, noise apart."
        ),
    ] = False,
) -> None:
    """Results side by side: hardware, interconnect, versions, workloads, days."""
    from raybench.commands import compare as comparing
    from raybench.commands.display import make_console

    raise typer.Exit(comparing.compare(directories, make_console(), fail_if_slower=fail_if_slower))


@app.command("list", epilog="Example: python -m raybench.study list")
def list_() -> None:
    """The studies that come with raybench."""
    names = studies()
    width = max(map(len, names), default=0)
    for name, path in names.items():
        typer.echo(f"{name:{width}}  {question(path)}")


@app.command(epilog="Example: python -m raybench.study show resnet18_cifar10 --smoke")
def show(
    study: StudyName = None,
    smoke: Annotated[bool, typer.Option("--smoke", help="With the study's own small sizes.")] = False,
    device: Annotated[Literal["cpu", "cuda"], typer.Option(help="As it would be on this device.")] = "cpu",
    fields: Annotated[bool, typer.Option("--fields", help="Every field, its meaning and unit.")] = False,
) -> None:
    """A study with all its defaults, or every field that a study may have."""
    from raybench.spec import describe

    if fields:
        for row in describe.fields():
            default = "" if row.default is None else f" [{row.default}]"
            typer.echo(f"{row.name}: {row.type}{default}\n    {row.meaning}")
        return
    typer.echo(describe.show(load_study(find_study(study), device=device, smoke=smoke)), nl=False)


@app.command(epilog="Example: python -m raybench.study doctor")
def doctor() -> None:
    """What this machine has, what is missing, and the command that mends it."""
    from raybench.commands import doctor as examination
    from raybench.commands.display import make_console

    checks = examination.examine()
    examination.render(checks, make_console())
    raise typer.Exit(int(any(check.status == "missing" for check in checks)))


@app.command(context_settings={"ignore_unknown_options": True, "allow_extra_args": True}, hidden=True)
def predict() -> None:
    """Not there yet."""
    raise NotYetError("predict")


@app.command(context_settings={"ignore_unknown_options": True, "allow_extra_args": True}, hidden=True)
def communication() -> None:
    """Not there yet."""
    raise NotYetError("communication")


def _refuse_not_yet(asked: dict[str, bool]) -> None:
    for what, is_asked in asked.items():
        if is_asked:
            raise NotYetError(what)


def _states(text: str) -> Any:
    known = ("oom", "timeout", "crashed", "invalid")
    return typed.parse_words(text, known, "--retry") if text else ()


def main() -> NoReturn:
    """Run the command line; a wrong request ends with its lines and exit code 2, never a traceback."""
    try:
        app()
    except RequestError as error:
        for problem in error.problems:
            print(problem, file=sys.stderr)
        sys.exit(WRONG_REQUEST)
    sys.exit(0)  # typer leaves by SystemExit by itself


if __name__ == "__main__":
    main()

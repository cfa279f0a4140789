"""The command ``scaling`` as it is typed: options that set fields of the study, and those of the run."""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, Literal

import psutil
import typer

from raybench.commands import options as parsed
from raybench.commands.networks import parse_network
from raybench.commands.options import (
    FieldOption,
    Options,
    StudyName,
    choice,
    count,
    option,
    path,
    with_options,
)
from raybench.commands.process import leave
from raybench.errors import RequestError
from raybench.spec.load import find_study, load_study
from raybench.spec.study import Study
from raybench.spec.user_input import did_you_mean, home_path, real_path
from raybench.spec.workloads import OWN, OwnCodeSpec, ScriptSpec

Runner = Literal["group", "tune"]
Tracker = Literal["mlflow", "wandb", "tensorboard"]  # the name of its package as well


def _data(text: str, option: str) -> str:
    return str(real_path(home_path(text)))


def _directory(text: str, option: str) -> Path:
    """Where its links lead; what is no directory is refused: Ray would not start."""
    if not Path(text).is_dir():
        raise RequestError(f"{option}: a directory (received {text!r})")
    return real_path(Path(text))


@dataclass(frozen=True)
class ScalingOptions(Options):
    """Options of ``scaling`` that are no fields of the study."""

    study: StudyName = None
    script: Annotated[
        Path | None, option("FILE", path, "Script to measure, as you would give it to torchrun.")
    ] = None
    module: Annotated[str | None, typer.Option(help="The same, as `python -m` would run it.")] = None
    args: Annotated[
        str | None,
        typer.Option("--args", help="Arguments for the script; {batch_size} and other knobs are filled in."),
    ] = None
    samples_per_step: Annotated[
        int | None, option("N", count, "Samples of one device in a step, accumulated ones too.")
    ] = None
    smoke: Annotated[bool, typer.Option("--smoke", help="The study's own small sizes.")] = False
    runner: Annotated[Runner, choice(Runner, "How trials get processes.  [default: group]")] = "group"
    working_dir: Annotated[
        Path | None, option("PATH", _directory, "Directory that travels to the workers.")
    ] = None
    verify: Annotated[
        bool, typer.Option("--verify", help="Test the changes that the first findings propose.")
    ] = False
    log: Annotated[Tracker | None, choice(Tracker, "A tracker that gets study and trials.")] = None
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the plan, start nothing.")] = False
    began: float = field(default_factory=lambda: psutil.Process().create_time())
    lives_on: bool = False  # this process, where it is a notebook's: Ray ends in order after an interrupt


def of_script(options: ScalingOptions) -> ScalingOptions:
    """``options`` with the script, where one is given, as the study's workload; also as the study: train.py.

    Raises ``RequestError`` for a script twice, and for what belongs to one without it.
    """
    if options.study is not None and options.study.endswith(".py"):
        if options.script is not None:
            raise RequestError(f"--script: one script (received {options.study} too)")
        options = replace(options, script=Path(options.study), study=None)
    named = [each for each in (options.script, options.module) if each is not None]
    if len(named) > 1:
        raise RequestError("--module: excludes --script (received both)")
    if not named:
        for name, value in (("--args", options.args), ("--samples-per-step", options.samples_per_step)):
            if value is not None:
                raise RequestError(f"{name}: goes with --script or --module (received {value})")
        return options
    if options.verify:
        raise RequestError("--verify: two settings in the same rounds, which a script cannot have")
    if options.smoke and options.study is None:
        raise RequestError("--smoke: of a study that has small sizes; a script has its own in --args")
    is_module = options.script is None
    script = str(named[0]) if is_module else str(real_path(home_path(named[0])))
    fields = ("script", script), ("is_module", is_module), ("args", options.args)
    workload = dict((*fields, ("samples_per_step", options.samples_per_step)))
    workload = {name: value for name, value in workload.items() if value is not None}
    made: list[tuple[str, Any]] = [("workload", workload)]
    if options.resume and options.study is None:  # of the study that goes on
        made = [(f"workload.{name}", value) for name, value in workload.items()]
    elif options.study is None:
        name = _NOT_IN_A_NAME.sub("-", Path(script).stem if not is_module else script).strip("-._")
        made.append(("name", name or "script"))
    return replace(options, overrides=(*made, *options.overrides))


_NOT_IN_A_NAME = re.compile(r"[^A-Za-z0-9_.-]+")


FIELDS = (
    FieldOption("--world-sizes", "scaling.world_sizes", "1,2,4"),
    FieldOption("--batch-sizes", "knobs.batch_size", "256,4096"),
    FieldOption("--bucket-cap-mb", "knobs.bucket_cap_mb", "1,25,default"),
    FieldOption("--precision", "knobs.precision", "fp32,bf16"),
    FieldOption("--scaling", "scaling.mode"),
    FieldOption("--trials", "search.trials"),
    FieldOption("--time-budget", "time_budget_seconds", "10m", parsed.parse_duration),
    FieldOption("--as-if", "scaling.as_if", "16,64"),
    FieldOption("--network", "network", "8x400Gbit/s", parse_network),
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


MORE_OPTIONS = {"ignore_unknown_options": True, "allow_extra_args": True}  # for ``with_workload``


def with_workload(options: ScalingOptions, context: typer.Context) -> ScalingOptions:
    """``options`` with those that the command lacks as fields of the study's [workload]: --hidden-dim 2048.

    The parser leaves these and what follows them where the study stands. Raises ``RequestError`` for what is
    no field of it, and for a second study.
    """
    further, studies = dict[str, str](), list[str]()
    words = iter([*filter(None, [options.study]), *context.args])
    for word in words:
        name, equals, text = word.partition("=")
        if name.startswith("-"):
            further[name] = text if equals else next(words, "")
        else:
            studies.append(word)
    if len(studies) > 1:
        raise RequestError(f"STUDY: one study (received {' '.join(studies)})")
    options = of_script(replace(options, study=next(iter(studies), None)))
    if not further:
        return options
    file, smoke = study_file(options)
    workload = load_study(file, smoke=smoke, overrides=options.overrides).workload
    fields = {f"--{name.replace('_', '-')}": f"workload.{name}" for name in workload.model_dump()}
    if unknown := next((name for name in further if name not in fields), None):
        there = [*fields, *(name for each in context.command.params for name in each.opts)]
        field = unknown.strip("-").replace("-", "_")
        hint = "scaling --help lists the options, show STUDY the fields of its [workload]"
        if isinstance(workload, ScriptSpec):
            hint = f'arguments of the script go into --args, as --args "{unknown} ..."'
        elif isinstance(workload, OwnCodeSpec):
            hint = f"--set workload.{field}=VALUE is an argument of the study's own code"
        raise RequestError(f"no such option: {unknown}{did_you_mean(unknown, there)}", hint)
    values = ((fields[name], parsed.toml_or_word(text, name)) for name, text in further.items())
    return replace(options, overrides=(*options.overrides, *values))


def study_file(options: ScalingOptions) -> tuple[Path | None, bool]:
    """Its file, None of a script or factory without one, and whether its smoke values apply.

    With ``--resume`` and no name it is that of the directory.
    """
    if options.study is not None:
        return find_study(options.study), options.smoke
    if not options.resume:
        own = {"workload", *(f"workload.{key}" for key in OWN)}.intersection(dict(options.overrides))
        return None if own else find_study(None), options.smoke
    from raybench.records.store import ResultsDirectory

    assert options.output is not None
    with ResultsDirectory.open_readonly(options.output) as store:
        return store.study_file, False


@with_options(ScalingOptions, Study, *FIELDS)
def scaling_options(
    *,
    options: ScalingOptions,
    grid: Annotated[bool, typer.Option("--grid", help="Every combination of the listed values.")] = False,
    set_: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            help="dotted.field=value as in TOML, such as measure.max_seconds=5; for the study's own "
            "[workload], as `show STUDY` prints it, --hidden-dim 8192 will do.",
        ),
    ] = None,
    context: typer.Context = None,  # type: ignore[assignment]  # None: from Python
) -> ScalingOptions:
    """Plan, run, analyse and report a scaling study."""
    trials = dict(options.overrides).get("search.trials")
    if grid and trials:
        raise RequestError(f"--grid: excludes --trials (received both, --trials {trials})")
    method = "grid" if grid else "optuna" if trials else None
    methods = [("search.method", method)] if method else []
    assigned = [parsed.parse_assignment(text) for text in set_ or ()]
    options = replace(options, overrides=(*options.overrides, *methods, *assigned))
    return of_script(options) if context is None else with_workload(options, context)


@functools.wraps(scaling_options, assigned=("__doc__", "__annotations__"))
def scaling(**typed: Any) -> None:
    """Run the command."""
    options = scaling_options(**typed)
    from raybench.commands.console import make_console
    from raybench.commands.runs import run_scaling

    leave(lambda: run_scaling(options, make_console()).code)

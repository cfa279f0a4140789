"""From Python: ``run`` measures a study as ``raybench scaling`` does, ``open`` reads one from disk."""

from __future__ import annotations

import inspect
import time
import warnings
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from raybench.analysis.summary import frame_of
from raybench.commands.console import make_console, shown_path
from raybench.commands.options import from_python
from raybench.commands.process import DONE, INTERRUPTED, NOTHING_COMPLETED, RAY_DIED
from raybench.commands.scaling import scaling_options
from raybench.errors import Interrupted, RayDiedError, RequestError, StoreError, system_words
from raybench.spec.user_input import received

if TYPE_CHECKING:
    import pandas as pd

    from raybench.analysis.results import StudyResults
    from raybench.report.summary_json import FoundCause

# given otherwise, or of no use where there are no results
NOT_FROM_PYTHON = ("study", "dry_run", "set_", "context")
OPTIONS = {
    name: each
    for name, each in inspect.signature(scaling_options).parameters.items()
    if name not in NOT_FROM_PYTHON
}


class Results:
    """The results of a study: its answer, its figures, its findings. ``run`` and ``open`` return it.

    As the last line of a notebook's cell it is the first screen of the report.
    """

    def __init__(self, directory: Path, results: StudyResults) -> None:
        self._directory, self._results = directory, results

    @property
    def directory(self) -> Path:
        """The results directory; ``report/report.html`` in it is the whole report."""
        return self._directory

    @cached_property
    def answer(self) -> str:
        """The answer in sentences, a line for each question: scaling, causes, what to change, trust."""
        from raybench.report.answer import answer

        return "\n".join(each.line for each in answer(self._results, self._results.around.left_out))

    @cached_property
    def points(self) -> pd.DataFrame:
        """The figures: one row a setting and world size, with the columns of ``summary.csv``.

        Times are in s, memory in bytes, efficiencies and shares from 0 to 1; NaN or NA where unknown.
        docs/reference.md describes each column.
        """
        return frame_of(self._results.summaries)

    @cached_property
    def trials(self) -> pd.DataFrame:
        """The trials: one row a record, with the columns of ``trials.csv``; units as in ``points``."""
        return frame_of(self._results.trials)

    @cached_property
    def findings(self) -> tuple[FoundCause, ...]:
        """What slows the training down, and what the figures do not say; what explains the most time first.

        Each has a ``name`` (docs/reference.md lists them), ``explains_s`` (of a step, in s, with its 95%
        interval), ``evidence``, ``next_step``, ``change`` (knobs and values that would be changed) and
        ``command`` (what to type).
        """
        from raybench.report.summary_json import causes

        return tuple(causes(self._results))

    def __repr__(self) -> str:
        return f"<raybench.Results of {shown_path(self._directory)}>\n{self.answer}"

    def _repr_html_(self) -> str:
        from raybench.report.document import first_screen

        return first_screen(self._results)


def run(
    study: str | Path | None = None,
    *,
    factory: str | Callable[..., Any] | None = None,
    knobs: Mapping[str, Any] | None = None,
    set: Mapping[str, Any] | None = None,
    **options: Any,
) -> Results:
    """Plan, run, analyse and report a study, as ``raybench scaling`` does; the same files are written.

    Progress is printed in plain lines. A kernel's interrupt, or Ctrl-C, ends it: what was measured is kept,
    the report is written, and ``resume=True`` with the same ``output`` goes on. From a thread that is not
    the main one a study runs to its end: Python has no signals there.

    Args:
        study: a name that ``raybench list`` shows, the path of a TOML file, or a script that ends in ``.py``
            (docs/scripts.md). None: the default study, or with ``factory`` or ``script`` that alone.
        factory: what makes the workload, ``"package.module:function"`` or the function itself, which workers
            must be able to import: not one of a notebook's cells.
        knobs: values, or lists of values to explore, by the names of knobs: ``{"batch_size": [64, 256]}``.
        set: any field of the study by its dotted name: ``{"measure.max_seconds": 5}``.
        options: the options of ``raybench scaling``, with underscores; lists in the place of commas. See
            below.

    Returns:
        The results, also where no trial completed: ``answer`` says why.

    Raises:
        RequestError: the request is wrong: a line for each fault, with the field, the rule and the value.
        StoreError: the results directory is in use or cannot be written.
        RayDiedError: Ray died. What was measured is kept; a notebook's kernel is to be restarted.
        KeyboardInterrupt: the run was interrupted. What was measured is kept.
    """
    unknown = next((name for name in options if name not in OPTIONS), None)
    if unknown is not None:
        raise TypeError(f"run() got an unexpected keyword argument {unknown!r}")
    named = None if study is None else str(study)
    typed = scaling_options(study=named, **from_python(OPTIONS.values(), options))
    fields = {f"knobs.{name}": value for name, value in (knobs or {}).items()} | dict(set or {})
    if factory is not None:
        path = _importable(factory)
        alone = {"name": path.split(":")[0].split(".")[-1]} if study is None else {}
        fields = alone | {"workload.factory": path} | fields
    overrides = (*typed.overrides, *fields.items())
    return _measured(replace(typed, overrides=overrides, began=time.time(), lives_on=True))


def open(directory: str | Path) -> Results:
    """Read a results directory, and analyse its records again; nothing is written.

    ``directory``: the ``output`` of ``run`` or of ``raybench scaling``. What is wrong with its files, and no
    reason to refuse them, is a warning.

    Raises:
        StoreError: it is not a results directory, is of a newer raybench, or has a sweep of
            ``raybench communication`` in the place of a study.
    """
    from raybench.commands.report import analysed
    from raybench.records.store import ResultsDirectory

    path = Path(directory)
    with ResultsDirectory.open_readonly(path) as store:
        for words in store.warnings:
            warnings.warn(words, stacklevel=2)
        return Results(path, analysed(store))


def _measured(options: Any) -> Results:
    from raybench.commands.runs import run_scaling
    from raybench.launch import signals

    try:
        with signals.raising():
            ended = run_scaling(options, make_console())
    except RayDiedError:
        raise
    except Interrupted as interrupted:
        raise KeyboardInterrupt(str(interrupted)) from None
    except OSError as error:
        raise StoreError(system_words(error)) from error
    assert ended.directory is not None
    if ended.code == INTERRUPTED:
        raise KeyboardInterrupt(f"what was measured is kept in {ended.directory}")
    if ended.code == RAY_DIED:
        raise RayDiedError(f"Ray died, what it said is in {ended.directory / 'ray.log'}")
    if ended.code not in (DONE, NOTHING_COMPLETED):
        raise StoreError(f"{ended.directory}: cannot be written")
    return open(ended.directory)


def _importable(factory: str | Callable[..., Any]) -> str:
    if isinstance(factory, str):
        return factory
    module, name = getattr(factory, "__module__", ""), getattr(factory, "__qualname__", repr(factory))
    if module == "__main__" or not name.isidentifier():
        raise RequestError(
            "factory: a function of a module that workers can import, in a notebook one written by "
            f"%%writefile (received {received(f'{module}:{name}')})"
        )
    return f"{module}:{name}"


def _describe_options() -> None:
    """Give ``run`` the signature that it has, and a line for each option."""
    own = [each for each in inspect.signature(run).parameters.values() if each.kind is not each.VAR_KEYWORD]
    more = [each.replace(annotation=inspect.Parameter.empty) for each in OPTIONS.values()]
    run.__signature__ = inspect.Signature([*own, *more], return_annotation="Results")  # type: ignore[attr-defined]
    lines = (f"    {name}: {each.annotation.__metadata__[0].help}" for name, each in OPTIONS.items())
    run.__doc__ = "\n".join([str(inspect.getdoc(run)), "", "Options:", *lines, ""])


_describe_options()

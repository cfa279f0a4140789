"""From a study's name or path to a validated study: file, then GPU values, smoke values, options."""

from __future__ import annotations

import copy
import tomllib
from collections.abc import Mapping, Sequence
from itertools import takewhile
from pathlib import Path
from typing import Any, Literal

from pydantic import ValidationError

import raybench
from raybench.errors import RequestError
from raybench.spec.base import M
from raybench.spec.study import Study
from raybench.spec.user_input import did_you_mean, flat, home_path, real_path, received
from raybench.spec.validation import fields, from_validation
from raybench.spec.workloads import OwnCodeSpec, ScriptSpec

DEFAULT_STUDY = "default"


def studies_folder() -> Path | None:
    """Where the studies that come with raybench lie: ``studies/``, or its copy in the wheel."""
    package = Path(raybench.__file__).parent
    folders = (package / "_studies", package.parent / "studies")
    return next((folder for folder in folders if folder.is_dir()), None)


def studies() -> dict[str, Path]:
    """The studies that come with raybench, by name, sorted."""
    folder = studies_folder()
    paths = sorted(folder.glob("*.toml")) if folder else []
    return {path.stem: path for path in paths if path.is_file()}


def find_study(name_or_path: str | None) -> Path:
    """The file of a study: a name of ``studies()``, a path, or None for the default study.

    Raises ``RequestError`` for what is neither, with the nearest name and the list.
    """
    name = DEFAULT_STUDY if name_or_path is None else name_or_path
    known = studies()
    if name in known:
        return known[name]
    path = home_path(name)
    if path.exists() or path.suffix == ".toml" or "/" in name:
        return path  # reading it says what is wrong with it
    raise RequestError(
        f"unknown study {received(name)}{did_you_mean(name, known)}",
        f"a path to a TOML file, or one of: {', '.join(known) or 'none here'}",
    )


def load_study(
    path: Path | None,
    *,
    device: Literal["cpu", "cuda"] = "cpu",
    smoke: bool = False,
    overrides: Sequence[tuple[str, Any]] = (),
) -> Study:
    """The study in ``path`` with its ``[cuda]`` values on GPUs, its ``[smoke]`` values and ``overrides``.

    Later ones win. Without a ``path`` they alone make the study. What comes back has neither table: it says
    what is done, whatever the machine.

    Raises:
        RequestError: one line for each fault: the dotted field, the rule, the value received.
    """
    data = dict[str, Any]()
    if path is not None:
        data = read_toml(path)
        data.setdefault("question", question(path))
    study = resolve(data, device=device, smoke=smoke, overrides=overrides)
    workload = study.workload
    is_module = isinstance(workload, ScriptSpec) and workload.is_module  # for which python -m looks here
    if not (is_module or isinstance(workload, OwnCodeSpec)) or study.code_folder is not None:
        return study
    folder = real_path(path).parent if path and not is_module else Path.cwd()
    return study.model_copy(update={"code_folder": str(folder)})


def read_toml(path: Path) -> dict[str, Any]:
    """The tables of a TOML file; raises ``RequestError`` in one line for a file that is none."""
    try:
        with path.open("rb") as file:
            return tomllib.load(file)
    except OSError as error:
        raise RequestError(f"{path}: cannot be read: {error.strerror or error}") from None
    except (ValueError, RecursionError) as error:  # not UTF-8, thousands of digits or of tables, too
        raise RequestError(f"{path}: not TOML: {error}") from None


def resolve(
    data: Mapping[str, Any],
    *,
    device: Literal["cpu", "cuda"] = "cpu",
    smoke: bool = False,
    overrides: Sequence[tuple[str, Any]] = (),
) -> Study:
    """``load_study`` for tables that are in memory; ``data`` stays as it is."""
    merged: dict[str, Any] = copy.deepcopy(dict(data))
    layers: list[tuple[str, Any]] = []
    for name, applies in (("cuda", device == "cuda"), ("smoke", smoke)):
        # what is no table is refused with the other fields
        table = merged.pop(name) if isinstance(merged.get(name), Mapping) else {}
        layers += list(flat(table)) if applies else []
        if name == "smoke" and applies and table:
            layers.append(("is_smoke", True))
    return _as_typed(validated(Study, merged, [*layers, *overrides]))


def validated(model: type[M], data: dict[str, Any], overrides: Sequence[tuple[str, Any]]) -> M:
    """Return ``data`` as a ``model``, once ``overrides`` of dotted fields are put into it.

    Raises:
        RequestError: one line for each fault: the dotted field, the rule, the value received.
    """
    for field, value in overrides:
        _put(data, field, value)
    try:
        return model.model_validate(data)
    except ValidationError as error:
        raise RequestError(*from_validation(error, data, fields(model))) from None


def _where_it_is(link: str, script: ScriptSpec) -> str:
    """The absolute path of a link: beside the script, or in the current directory."""
    folders = [Path.cwd()] if script.is_module else [Path(script.script).parent, Path.cwd()]
    found = next((folder / link for folder in folders if (folder / link).exists()), None)
    if found is None:
        raise RequestError(f"workload.links: files and folders that are there (received {link!r})")
    return str(found)


def _as_typed(study: Study) -> Study:
    """With what is known where the study is typed: the knobs that it sets, and where links lead."""
    script = study.workload
    if not isinstance(script, ScriptSpec) or script.ddp_knobs is not None:
        return study
    named = tuple(name for name in script.DDP_KNOBS if name in study.knobs.model_fields_set)
    links = tuple(_where_it_is(link, script) for link in script.links)
    known = script.model_copy(update={"ddp_knobs": named, "links": links})
    return study.model_copy(update={"workload": known})


def _put(data: dict[str, Any], field: str, value: Any) -> None:
    *tables, last = field.split(".")
    if not last or not all(tables):
        raise RequestError(f"{received(field)}: a dotted field such as knobs.batch_size")
    here = data
    for depth, name in enumerate(tables):
        inner = here.setdefault(name, {})
        if not isinstance(inner, dict):
            above = ".".join(tables[: depth + 1])
            raise RequestError(f"{field}: unknown field, {above} is a value (received {received(inner)})")
        here = inner
    here[last] = copy.deepcopy(value)


def question(path: Path) -> str:
    """What the study asks: the first line of the comment at the head of its file."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError):
        return ""
    head = (line.removeprefix("#").strip() for line in takewhile(lambda line: line.startswith("#"), lines))
    return next(filter(None, head), "")

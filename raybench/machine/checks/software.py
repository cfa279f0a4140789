"""Python and the packages that raybench needs."""

from __future__ import annotations

import platform
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.version import Version

import raybench
from raybench.machine.checks.check import Check


@dataclass(frozen=True)
class Wanted:
    """What raybench needs, as its metadata says: a node to which it travels has no metadata of it."""

    python: str  # versions
    packages: tuple[str, ...]  # requirements


def wanted() -> Wanted:
    """Of the installed package, else of the checkout."""
    try:
        python = str(metadata.metadata("raybench")["Requires-Python"] or "")
        return Wanted(python, tuple(metadata.requires("raybench") or ()))
    except metadata.PackageNotFoundError:
        project = _project()
        return Wanted(str(project.get("requires-python", "")), tuple(project.get("dependencies", ())))


def python(wanted: Wanted) -> Iterator[Check]:
    """Python, and whether raybench runs on it."""
    version = platform.python_version()
    text = f"{version} ({sys.executable})"
    if wanted.python and Version(version) not in SpecifierSet(wanted.python):
        needed = f"{text}, raybench needs {wanted.python}"
        yield Check("Python", "missing", needed, "python3.12 -m venv .venv")
    else:
        yield Check("Python", "ok", text)


def packages(wanted: Wanted) -> Iterator[Check]:
    """Packages against the lower bounds of raybench's own metadata, extras left out."""
    have, bad = [], []
    for requirement in map(Requirement, wanted.packages):
        if requirement.marker is not None and not requirement.marker.evaluate({"extra": ""}):
            continue
        try:
            version = metadata.version(requirement.name)
        except metadata.PackageNotFoundError:
            bad.append((requirement, "not installed"))
            continue
        if requirement.specifier.contains(version, prereleases=True):
            have.append(f"{requirement.name} {version}")
        else:
            bad.append((requirement, f"{version}, needs {requirement.specifier}"))
    if have:
        yield Check("packages", "ok", ", ".join(have))
    for requirement, why in bad:
        extras = f"[{','.join(sorted(requirement.extras))}]" if requirement.extras else ""
        command = f'python -m pip install "{requirement.name}{extras}{requirement.specifier}"'
        yield Check("packages", "missing", f"{requirement.name}: {why}", command)


def installed_version(name: str) -> str:
    """The version of a package, empty where it is not installed."""
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return ""


def _project() -> dict[str, list[str]]:
    path = Path(raybench.__file__).parent.parent / "pyproject.toml"
    if not path.is_file():
        return {}
    project: dict[str, list[str]] = tomllib.loads(path.read_text()).get("project", {})
    return project

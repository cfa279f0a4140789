"""Python and the packages that raybench needs."""

from __future__ import annotations

import platform
import sys
import tomllib
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.version import Version

import raybench
from raybench.machine.checks.check import Check


def python() -> Iterator[Check]:
    """Python, and whether raybench runs on it."""
    version, wanted = platform.python_version(), _python_wanted()
    text = f"{version} ({sys.executable})"
    if wanted and Version(version) not in SpecifierSet(wanted):
        yield Check("Python", "missing", f"{text}, raybench needs {wanted}", "python3.12 -m venv .venv")
    else:
        yield Check("Python", "ok", text)


def packages() -> Iterator[Check]:
    """Packages against the lower bounds of raybench's own metadata."""
    have, bad = [], []
    for requirement in _requirements():
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


def _requirements() -> list[Requirement]:
    """What raybench needs, extras left out: of the installed package, else of the checkout."""
    try:
        lines = metadata.requires("raybench") or []
    except metadata.PackageNotFoundError:
        lines = _project().get("dependencies", [])
    every = [Requirement(line) for line in lines]
    return [needed for needed in every if needed.marker is None or needed.marker.evaluate({"extra": ""})]


def _python_wanted() -> str:
    try:
        return str(metadata.metadata("raybench")["Requires-Python"] or "")
    except metadata.PackageNotFoundError:
        return str(_project().get("requires-python", ""))


def _project() -> dict[str, list[str]]:
    path = Path(raybench.__file__).parent.parent / "pyproject.toml"
    if not path.is_file():
        return {}
    project: dict[str, list[str]] = tomllib.loads(path.read_text()).get("project", {})
    return project

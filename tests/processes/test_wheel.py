"""The wheel carries the studies, works from any directory, and needs nothing that is only in ``[test]``."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import ROOT

# Imports every module, runs commands, and prints what came of each. What is only in
# [test] is not to be found.
CHILD = """
import contextlib, importlib, io, json, pkgutil, sys

class Without:
    def __init__(self, finder):
        self._finder = finder

    def find_spec(self, name, path=None, target=None):
        return None if name.partition(".")[0] in BLOCKED else self._finder.find_spec(name, path, target)

BLOCKED = set(json.loads(sys.argv[1]))
sys.meta_path[:] = map(Without, sys.meta_path)
import raybench
every = pkgutil.walk_packages(raybench.__path__, "raybench.", onerror=lambda name: None)
modules = [each.name for each in every]
failed = {}
for name in modules:
    try:
        importlib.import_module(name)
    except Exception as error:
        failed[name] = repr(error)
from raybench.study import main
said = []
for typed in json.loads(sys.argv[2]):
    sys.argv, out = ["raybench", *typed], io.StringIO()
    with contextlib.redirect_stdout(out):
        try:
            main()
        except SystemExit as end:
            said.append([end.code, out.getvalue()])
print(json.dumps({"file": raybench.__file__, "modules": modules, "failed": failed, "said": said}))
"""
COMMANDS = [["list"], ["show", "default"], ["scaling", "--dry-run", "--device", "cpu"]]


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built by the backend that is here, without asking a registry."""
    folder = tmp_path_factory.mktemp("wheel")
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    alone = ["--no-deps", "--no-index"]
    _done([*pip, "wheel", "--no-build-isolation", *alone, "--wheel-dir", str(folder), str(ROOT)])
    (wheel,) = folder.glob("raybench-*.whl")
    site = folder / "site"
    _done([*pip, "install", *alone, "--target", str(site), str(wheel)])
    return site


def _done(command: list[str], **options: Any) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False, **options)
    assert done.returncode == 0, done.stderr
    return done.stdout


def only_in_test() -> list[str]:
    """Modules of distributions that ``[test]`` has and what is always installed has not."""

    def named(requirements: list[str]) -> set[str]:
        names = {re.match(r"[\w.-]+", each).group() for each in requirements}  # type: ignore[union-attr]
        return {re.sub(r"[-_.]+", "-", name).lower() for name in names}

    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    test = named(project["optional-dependencies"]["test"]) - named(project["dependencies"])
    found = packages_distributions()
    return sorted(
        module
        for module, distributions in found.items()
        if {re.sub(r"[-_.]+", "-", name).lower() for name in distributions} <= test
    )


@pytest.mark.promise("wheel")
def test_works_from_any_directory_without_what_is_only_for_tests(installed: Path, tmp_path: Path) -> None:
    blocked = only_in_test()
    assert {"pytest", "hypothesis", "nbclient"} <= set(blocked)
    code = [sys.executable, "-c", CHILD, json.dumps(blocked), json.dumps(COMMANDS)]
    environment = {**os.environ, "PYTHONPATH": str(installed)}  # before the checkout's editable copy
    found = json.loads(_done(code, cwd=tmp_path, env=environment).splitlines()[-1])
    assert Path(found["file"]).is_relative_to(installed)
    files = {path.stem for path in (installed / "raybench").rglob("*.py") if "testing" not in path.parts}
    assert len(found["modules"]) > 0.9 * len(files)
    assert found["failed"] == {}
    listed, shown, planned = found["said"]
    assert [code for code, _ in found["said"]] == [0, 0, 0]
    names = {path.stem for path in (ROOT / "studies").glob("*.toml")}
    assert {line.split()[0] for line in listed[1].splitlines()} == names
    assert tomllib.loads(shown[1])["name"] == "default"
    assert planned[1].startswith("default: optuna, world sizes 1")


def test_carries_templates_and_types(installed: Path) -> None:
    names = {str(path.relative_to(installed)) for path in installed.rglob("*") if path.is_file()}
    assert "raybench/py.typed" in names
    for name in ("template.html.j2", "template.md.j2", "page.css", "page.js"):
        assert f"raybench/report/{name}" in names
    assert "raybench/_studies/default.toml" in names
    assert "raybench/_studies/published/mlp_scaling.csv" in names
    assert any(name.endswith("licenses/LICENSE") for name in names)

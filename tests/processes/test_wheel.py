"""The wheel carries the studies and works from any directory."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    build = [
        sys.executable,
        "-m",
        "pip",
        "wheel",
        "--quiet",
        "--no-deps",
        "--wheel-dir",
        str(folder),
        str(ROOT),
    ]
    done = subprocess.run(build, capture_output=True, text=True)
    if done.returncode and "No matching distribution" in done.stderr:
        pytest.skip("the build backend cannot be fetched: no package index")
    assert done.returncode == 0, done.stderr
    (wheel,) = folder.glob("raybench-*.whl")
    site = folder / "site"
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site)
    return site


def run(installed: Path, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    # the installed copy comes before the checkout's editable one
    return subprocess.run(
        [sys.executable, "-m", "raybench.study", *arguments],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(installed)},
        capture_output=True,
        text=True,
    )


def test_lists_and_plans_studies_from_any_directory(installed: Path, tmp_path: Path) -> None:
    listed = run(installed, tmp_path, "list")
    names = {path.stem for path in (ROOT / "studies").glob("*.toml")}
    assert {line.split()[0] for line in listed.stdout.splitlines()} == names
    planned = run(installed, tmp_path, "scaling", "--dry-run")
    assert planned.returncode == 0, planned.stderr
    assert planned.stdout.startswith("default: world sizes 1")


def test_carries_templates_and_types(installed: Path) -> None:
    names = {str(path.relative_to(installed)) for path in installed.rglob("*") if path.is_file()}
    assert "raybench/py.typed" in names
    for name in ("template.html.j2", "template.md.j2", "page.css", "page.js"):
        assert f"raybench/report/{name}" in names
    assert "raybench/_studies/default.toml" in names
    assert "raybench/_studies/published/mlp_scaling.csv" in names
    assert any(name.endswith("licenses/LICENSE") for name in names)

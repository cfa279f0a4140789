"""Every module of benchmarks/ is started one way, ``python -m benchmarks.NAME``, and says so."""

import ast
from pathlib import Path

import pytest

from tests.conftest import ROOT

FOLDER = ROOT / "benchmarks"
MODULES = sorted(FOLDER.glob("*.py"))
NAMES = {path.stem for path in MODULES}


def imported(tree: ast.Module) -> set[str]:
    """The modules that are imported, by the first part of their names."""
    found = set[str]()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module.partition(".")[0])
    return found


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.stem)
def test_a_module_finds_its_neighbours_from_the_root_and_names_how_it_is_started(path: Path) -> None:
    tree = ast.parse(path.read_text())
    # without the folder on the path a neighbour has no short name; what is installed may have the same one
    assert not imported(tree) & NAMES
    text = ast.get_docstring(tree) or ""
    commands = [line.strip() for line in text.splitlines() if line.strip().startswith("python ")]
    assert all(line.startswith(f"python -m benchmarks.{path.stem}") for line in commands)
    is_started = 'if __name__ == "__main__":' in path.read_text() and path.stem != "plain_ddp"
    assert bool(commands) == is_started


def test_the_readme_says_how() -> None:
    text = (FOLDER / "README.md").read_text()
    assert "`python -m benchmarks.prediction`" in text
    assert "python benchmarks/" not in text + (ROOT / "README.md").read_text()

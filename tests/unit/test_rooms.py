"""The order of rooms in `raybench/`, read from the imports; the listing of the package in CONTRIBUTING.md.

Every import counts for the order: those inside functions and those for type checking as well, since a reader
follows them all. `python -m tests.unit.test_rooms` prints the listing as it should be, the words that are
already there in their places, the first line of the docstring for a module that is new.
"""

from __future__ import annotations

import ast
import re
import sys
import textwrap
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

from tests.conftest import ROOT

PACKAGE = ROOT / "raybench"
CONTRIBUTING = ROOT / "CONTRIBUTING.md"

# A room imports itself and what stands before it.
ROOMS = (
    "errors", "spec", "machine", "workloads", "records", "analysis", "plan", "worker", "launch", "run",
    "report", "commands", "study",
)  # fmt: skip
TESTING = "testing"  # stands beside them: only tests and benchmarks import it
TESTING_REACHES = "launch"
LOOSE = {"study.py", "errors.py", "__init__.py", "py.typed"}

# Packages that only these modules import; a name that ends in a dot is a whole room.
ONLY = {
    "ray": ("raybench.launch.", "raybench.worker.serve"),
    "optuna": ("raybench.plan.search", "raybench.plan.sampler", "raybench.plan.journal"),
}
NEVER = {"analysis": {"torch", "ray"}, "report": {"torch", "ray"}, "worker": {"optuna", "pandas"}}
# The driver, and the processes in which Ray unpickles what it is handed, start without torch: 1 to 2 s each.
NEVER_ON_IMPORT = {**NEVER, "launch": {"torch", "ray.train.torch"}}

WORDS_COLUMN, WIDTH = 34, 118  # of the listing


@dataclass(frozen=True)
class Import:
    """One import statement's target: a module of raybench by its full name, or another package's name."""

    module: str
    target: str
    path: Path
    line: int
    eager: bool  # it runs when the module is imported

    def __str__(self) -> str:
        return f"{self.path.relative_to(ROOT)}:{self.line}: {self.module} imports {self.target}"


@cache
def modules() -> dict[str, Path]:
    """Every module by its full name; a package's `__init__.py` has the package's name."""
    named = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        named[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return named


@cache
def imports() -> tuple[Import, ...]:
    """Every import of every module."""
    return tuple(
        found for module, path in modules().items() for found in _of_tree(module, path, _parsed(path), True)
    )


@cache
def _parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def _of_tree(module: str, path: Path, node: ast.AST, eager: bool) -> Iterator[Import]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Import):
            targets = [alias.name for alias in child.names]
        elif isinstance(child, ast.ImportFrom):
            targets = _from(module, path, child)
        else:
            is_function = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
            is_typing = isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test)
            yield from _of_tree(module, path, child, eager and not is_function and not is_typing)
            continue
        for target in targets:
            yield Import(module, target, path, child.lineno, eager)


def _from(module: str, path: Path, node: ast.ImportFrom) -> list[str]:
    """`from a import b`: the module a.b where there is one, else a."""
    base = node.module or ""
    if node.level:  # relative: one dot is the module's own package
        package = module.split(".") if path.name == "__init__.py" else module.split(".")[:-1]
        above = package[: len(package) - node.level + 1]
        base = ".".join([*above, *([node.module] if node.module else [])])
    named = [f"{base}.{alias.name}" for alias in node.names]
    return list(dict.fromkeys(name if name in modules() else base for name in named))


def room(module: str) -> str:
    """The room in which a module stands; the package's own `__init__` is a room below all others."""
    parts = module.split(".")
    return parts[1] if len(parts) > 1 else ""


def is_ours(target: str) -> bool:
    return target == "raybench" or target.startswith("raybench.")


def lines(found: Iterable[object]) -> str:
    return "\n" + "\n".join(map(str, found))


def test_every_file_stands_in_a_room() -> None:
    loose = {path.name for path in PACKAGE.iterdir() if path.is_file()}
    assert loose == LOOSE
    folders = {path.name for path in PACKAGE.iterdir() if path.is_dir() and path.name != "__pycache__"}
    assert folders == {*ROOMS, TESTING} - {"study", "errors"}
    without = [
        path.relative_to(ROOT)
        for path in PACKAGE.rglob("*")
        if path.is_dir() and any(path.glob("*.py")) and not (path / "__init__.py").is_file()
    ]
    assert not without, f"no __init__.py in {without}"


def test_a_room_imports_itself_and_rooms_before_it() -> None:
    reach = {"": (), TESTING: (*ROOMS[: ROOMS.index(TESTING_REACHES) + 1], TESTING)}
    reach |= {name: ROOMS[: place + 1] for place, name in enumerate(ROOMS)}
    backwards = [
        each
        for each in imports()
        if is_ours(each.target) and room(each.target) not in ("", *reach[room(each.module)])
    ]
    assert not backwards, f"against the order {', '.join(ROOMS)}:{lines(backwards)}"


def edges() -> dict[str, set[str]]:
    """Which modules each module needs, for circles.

    Importing a.b.c runs a and a.b first, so they are needed as well; but for the packages in which the
    importing module itself stands: those have begun by then, and a package that offers what its modules make
    (`analysis` its `analyse`) is no circle. One of its modules that imports a name from it is.
    """
    needed: dict[str, set[str]] = {module: set() for module in modules()}
    for each in imports():
        if not is_ours(each.target):
            continue
        parts = each.target.split(".")
        above = {".".join(parts[:depth]) for depth in range(1, len(parts))}
        own = {".".join(each.module.split(".")[:depth]) for depth in range(1, each.module.count(".") + 2)}
        needed[each.module] |= {each.target} | (above - own)
    return needed


def circles(needed: dict[str, set[str]]) -> list[list[str]]:
    """The strongly connected components (Tarjan) of several modules, and modules that need themselves."""
    order: dict[str, int] = {}
    lowest: dict[str, int] = {}
    stack: list[str] = []
    components: list[list[str]] = []

    def visit(module: str) -> None:
        order[module] = lowest[module] = len(order)
        stack.append(module)
        for other in sorted(needed.get(module, ())):
            if other not in order:
                visit(other)
                lowest[module] = min(lowest[module], lowest[other])
            elif other in stack:
                lowest[module] = min(lowest[module], order[other])
        if lowest[module] == order[module]:
            place = stack.index(module)
            component = stack[place:]
            del stack[place:]
            if len(component) > 1 or module in needed.get(module, ()):
                components.append(sorted(component))

    for module in sorted(needed):
        if module not in order:
            visit(module)
    return components


def test_no_circle_between_modules() -> None:
    found = circles(edges())
    members = {module: number for number, component in enumerate(found) for module in component}
    between = [
        each
        for each in imports()
        if each.module in members and members.get(each.target) == members[each.module]
    ]
    assert not found, f"circles: {found}{lines(between)}"


def test_a_circle_would_be_found() -> None:
    assert circles({"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"a"}}) == [["a", "b", "c"]]
    assert circles({"a": {"b"}, "b": {"c"}, "c": set()}) == []
    assert circles({"a": {"a"}}) == [["a"]]


def heavy(each: Import) -> str:
    return each.target.split(".")[0]


@pytest.mark.parametrize("package", ONLY)
def test_heavy_packages_have_one_place(package: str) -> None:
    elsewhere = [
        each
        for each in imports()
        if heavy(each) == package
        and not any(each.module == place or f"{each.module}.".startswith(place) for place in ONLY[package])
    ]
    assert not elsewhere, f"only {', '.join(ONLY[package])} import {package}:{lines(elsewhere)}"


@pytest.mark.parametrize("name", NEVER)
def test_what_a_room_never_imports(name: str) -> None:
    own = [each for each in imports() if room(each.module) == name and heavy(each) in NEVER[name]]
    assert not own, f"{name} imports none of {sorted(NEVER[name])}:{lines(own)}"


@pytest.mark.parametrize("name", NEVER_ON_IMPORT)
def test_what_importing_a_room_never_brings(name: str) -> None:
    """Through other rooms, on import alone; what a function imports when it is called may be more."""
    eager: dict[str, list[Import]] = {}
    for each in imports():
        if each.eager:
            eager.setdefault(each.module, []).append(each)
    reached, waiting, brought = set(), [module for module in modules() if room(module) == name], []
    while waiting:
        module = waiting.pop()
        if module in reached:
            continue
        reached.add(module)
        brought += [each for each in eager.get(module, ()) if is_of(each, NEVER_ON_IMPORT[name])]
        for each in eager.get(module, ()):
            parts = each.target.split(".")
            waiting += [".".join(parts[: n + 1]) for n in range(len(parts))] if is_ours(each.target) else []
    assert not brought, f"importing {name} brings {sorted(NEVER_ON_IMPORT[name])}:{lines(brought)}"


def is_of(each: Import, packages: set[str]) -> bool:
    """Whether it is one of these, or in one."""
    return any(f"{each.target}.".startswith(f"{package}.") for package in packages)


def test_testing_is_for_tests() -> None:
    users = [
        e for e in imports() if room(e.target) == TESTING and is_ours(e.target) and room(e.module) != TESTING
    ]
    assert not users, lines(users)


# --- the listing in CONTRIBUTING.md


def listed() -> dict[str, str]:
    """The words of each line of the listing, by path below `raybench/`; folders end in a slash."""
    words, above = {}, [""]
    for line in written_listing().splitlines()[1:]:
        match = re.fullmatch(r"(?P<bars>(?:│   |    )*)(?:├── |└── )(?P<name>\S+) *(?P<words>.*)", line)
        assert match is not None, f"CONTRIBUTING.md: no line of a listing: {line!r}"
        depth = len(match["bars"]) // 4
        path = above[depth] + match["name"]
        del above[depth + 1 :]
        above.append(path)
        words[path] = match["words"]
    return words


def written_listing() -> str:
    text = CONTRIBUTING.read_text(encoding="utf-8")
    match = re.search(r"^```\n(raybench/\n.*?)^```$", text, re.MULTILINE | re.DOTALL)
    assert match is not None, "CONTRIBUTING.md: no block that begins with raybench/"
    return match[1]


def expected_listing(words: dict[str, str]) -> str:
    """The tree, rooms in their order, each path with its words or the first line of its docstring."""
    return "raybench/\n" + "".join(f"{line}\n" for line in _below(PACKAGE, "", words))


def _below(folder: Path, bars: str, words: dict[str, str]) -> Iterator[str]:
    inside = [
        path
        for path in folder.iterdir()
        if path.name not in ("__init__.py", "__pycache__") and (path.is_dir() or path.suffix != ".pyc")
    ]
    inside.sort(key=lambda path: _place(path, folder))
    for path in inside:
        last = path == inside[-1]
        below = path.relative_to(PACKAGE).as_posix() + ("/" if path.is_dir() else "")
        head = f"{bars}{'└── ' if last else '├── '}{path.name}{'/' if path.is_dir() else ''}"
        yield f"{head + ' ':{WORDS_COLUMN}}{words.get(below) or _first_line(path)}".rstrip()
        if path.is_dir():
            yield from _below(path, bars + ("    " if last else "│   "), words)


def _place(path: Path, folder: Path) -> tuple[int, str]:
    """The rooms in the order of the data; inside a room modules before folders, by name."""
    if folder == PACKAGE:
        return (ROOMS.index(path.stem), "") if path.stem in ROOMS else (len(ROOMS), path.name)
    return int(path.is_dir()), path.name


def _first_line(path: Path) -> str:
    module = path / "__init__.py" if path.is_dir() else path
    if module.suffix != ".py":
        return ""
    line = (ast.get_docstring(_parsed(module)) or "").partition("\n")[0]
    return textwrap.shorten(line, WIDTH - WORDS_COLUMN, placeholder=" ...") if line else ""


def test_the_listing_is_the_tree() -> None:
    words = listed()
    expected = expected_listing(words)
    there, wanted = set(written_listing().splitlines()), set(expected.splitlines())
    missing = [line for line in expected.splitlines() if line not in there]
    superfluous = [line for line in written_listing().splitlines() if line not in wanted]
    if missing or superfluous:
        pytest.fail(
            "CONTRIBUTING.md: `python -m tests.unit.test_rooms` prints the listing as it should be\n"
            f"missing:{lines(missing)}\nsuperfluous:{lines(superfluous)}"
        )
    assert written_listing() == expected, "CONTRIBUTING.md: the lines of the listing are in another order"


def test_every_line_of_the_listing_says_what_is_there() -> None:
    silent = [path for path, words in listed().items() if not words]
    assert not silent, f"CONTRIBUTING.md: no words at {silent}"
    wide = [line for line in written_listing().splitlines() if len(line) > WIDTH]
    assert not wide, f"CONTRIBUTING.md: long lines:{lines(wide)}"


if __name__ == "__main__":
    sys.stdout.write(expected_listing(listed()))

"""A factory that leaves or fails before any worker starts: one line, never a silent end."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from raybench.errors import RequestError
from raybench.spec.workloads import FactorySpec
from raybench.workloads import check

MODULE = """
import sys
class OwnError(BaseException): ...
class Own:
    def __init__(self, given): self._given = given
    def model(self): pass
    def loss(self, model, batch): pass
    def dataset(self, split):
        if self._given == "exits": sys.exit(0)
        if self._given == "raises": raise OSError("no file a\\udcff")
        return {"none": None, "iterator": iter([1]), "number": 3, "negative": Sized(-1)}[self._given]
class Sized:
    def __init__(self, length): self._length = length
    def __getitem__(self, index): return index
    def __len__(self):
        return self._length
def build(given="", leaves=""):
    if leaves == "exit": sys.exit(0)
    if leaves == "half of it": return type("Half", (), {"model": id})()
    if leaves == "own error": raise OwnError("mine")
    return Own(given)
"""


@pytest.fixture
def factory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    (tmp_path / "own_factory.py").write_text(MODULE)
    (tmp_path / "exits_when_imported.py").write_text("import sys\nsys.exit(0)\n")
    monkeypatch.syspath_prepend(tmp_path)

    def make(name: str = "own_factory:build", **arguments: Any) -> FactorySpec:
        return FactorySpec.model_validate({"factory": name, "input": "real", **arguments})

    yield make
    for name in ("own_factory", "exits_when_imported"):
        sys.modules.pop(name, None)


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ({"leaves": "exit"}, "own_factory:build raised SystemExit: 0"),
        ({"leaves": "own error"}, "own_factory:build raised OwnError: mine (own_factory.py, line "),
        ({"leaves": "half of it"}, "; loss, dataset missing"),
        ({"name": "exits_when_imported:build"}, "importing exits_when_imported raised SystemExit: 0"),
        ({"given": "none"}, "is a map-style data set, with __len__ and __getitem__ (received a NoneType)"),
        ({"given": "iterator"}, "(received a list_iterator)"),
        ({"given": "number"}, "(received a int)"),
        ({"given": "exits"}, 'dataset("train") raised SystemExit: 0'),
        ({"given": "raises"}, r"raised OSError: no file a\udcff"),
        ({"given": "negative"}, 'dataset("train") raised ValueError'),
    ],
)
def test_one_line_says_what_the_code_did(arguments: dict[str, Any], told: str, factory: Any) -> None:
    for is_trained in (False, True):
        with pytest.raises(RequestError) as refused:
            check(factory(**arguments), None, is_trained=is_trained)
        (line,) = refused.value.problems
        assert told in line
        assert line.startswith("workload")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (
            "import torch\n\nimport torhc\n",
            "ModuleNotFoundError: No module named 'torhc' (own_train.py, line 3)",
        ),
        ("import torch\nfrom torch import nm\n", "(own_train.py, line 2)"),
        ("import own_parts\n", "No module named 'torhc' (own_parts.py, line 2)"),
        ("\nx = NAME\n", "NameError: name 'NAME' is not defined (own_train.py, line 2)"),
        ("\ndef build(:\n", "SyntaxError: invalid syntax (own_train.py, line 2)"),
    ],
    ids=["missing", "name", "deeper", "raises", "syntax"],
)
def test_a_fault_in_the_users_file_is_told_with_file_and_line(
    text: str, told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "own_train.py").write_text(text)
    (tmp_path / "own_parts.py").write_text("\nimport torhc\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(RequestError) as refused:
        check(FactorySpec(factory="own_train:build"), None)
    (line,) = refused.value.problems
    assert line.startswith("workload.factory: importing own_train raised ")
    assert line.endswith(told)


@pytest.mark.parametrize("name", ["own_trian:build", "own_trian.parts:build"])
def test_a_file_that_is_not_there_is_no_fault_of_a_line(name: str) -> None:
    with pytest.raises(RequestError) as refused:
        check(FactorySpec(factory=name), None)
    told = f"workload.factory: a module that imports: No module named 'own_trian' (received '{name}')"
    assert refused.value.problems == (told,)

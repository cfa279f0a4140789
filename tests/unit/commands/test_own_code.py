"""A factory is found beside the study's file and in the current folder, whatever started raybench."""

from __future__ import annotations

import io
import shlex
import sys
import sysconfig
from pathlib import Path
from typing import Any

import pytest

from raybench.commands.compare import CompareOptions
from raybench.commands.compare_run import compare_directories
from raybench.commands.console import make_console
from raybench.commands.measuring import search_folders
from raybench.commands.scaling import scaling_options
from raybench.errors import RequestError
from raybench.launch.runtime_env import import_path as import_path_of_driver
from raybench.launch.runtime_env import own_code_path, runtime_environment
from raybench.machine.environment import capture
from raybench.records.store import ResultsDirectory
from raybench.spec.load import load_study
from raybench.spec.workloads import FactorySpec, ScriptSpec
from raybench.worker.serve import merged_path
from tests.conftest import ROOT
from tests.unit.commands.test_compare import planted

STUDY = """
name = "own"
[workload]
factory = "own_model:build"
[knobs]
batch_size = [8]
"""
MODULE = """
import torch
class Own:
    def model(self): return torch.nn.Linear(2, 1)
    def loss(self, model, batch): return model(batch).mean()
    def batch(self, size, generator): return torch.ones(size, 2)
def build():
    from pathlib import Path
    Path({mark!r}).write_text("imported")
    return Own()
"""


def own_study(folder: Path, mark: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "own_model.py").write_text(MODULE.format(mark=str(mark)))
    (folder / "own.toml").write_text(STUDY)
    return folder / "own.toml"


@pytest.fixture
def import_path(monkeypatch: pytest.MonkeyPatch) -> None:
    """Put back when the test is over; as an installed program has it, without the current folder."""
    monkeypatch.setattr(sys, "path", [path for path in sys.path if path not in ("", str(Path.cwd()))])


def test_the_kept_study_names_the_folder_of_its_code(tmp_path: Path, import_path: None) -> None:
    """So the line under "Again" and --resume find its code from any folder."""
    study = own_study(tmp_path / "my studies", tmp_path / "mark")
    spec = load_study(study)
    assert spec.code_folder == str(study.parent)
    with ResultsDirectory.create(tmp_path / "out", spec, capture()) as store:
        assert load_study(store.study_file) == spec
    search_folders(spec.code_folder)
    assert sys.path[:2] == [str(study.parent), str(Path.cwd())]
    travelling = runtime_environment(FactorySpec(factory="own_model:build"), None)["py_modules"]
    assert str(study.parent / "own_model.py") in travelling


def test_workers_take_the_module_that_the_driver_has_taken() -> None:
    """Ray puts the current folder first, and what travelled to a node before the driver's older copy."""
    driver = ["/home/me/study", "/home/me", "/venv/lib/python3.11/site-packages"]
    here = ["/home/me", "/usr/lib/python3.11"]
    own = ["/home/me/study", "/home/me"]
    assert merged_path(here, driver, own) == [*own, "/usr/lib/python3.11", driver[-1]]
    sent = "/tmp/ray/session/runtime_resources/py_modules_files/x"
    assert merged_path([sent, *here], driver, own)[:2] == [sent, own[0]]


def test_what_is_installed_for_one_user_is_no_own_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the driver has it: pip --user, Debian's packages and linked checkouts after the standard library.

    A worker takes its own before these, else it had other versions than the driver.
    """
    names = "study", "mine", ".local/lib/python3/site-packages", "lib/python3/dist-packages", "checkout"
    study, mine, user, debian, checkout = (str(tmp_path / name) for name in names)
    for folder in (study, mine, user, debian, checkout):
        Path(folder).mkdir(parents=True)
    standard = str(Path(sysconfig.get_path("stdlib")).resolve())
    absent = str(tmp_path / "python3.zip")
    monkeypatch.setattr(sys, "path", [study, mine, absent, standard, user, debian, checkout])
    assert own_code_path() == [study, mine]
    here = [standard, "/venv/lib/python3/site-packages"]
    found = merged_path(here, import_path_of_driver(), own_code_path())
    assert found[:4] == [study, mine, *here]
    assert set(found[4:]) >= {user, debian, checkout}
    for folder, travels in ((user, False), (debian, False), (mine, True), (checkout, True)):
        name = f"module_in_{Path(folder).name.replace('-', '_')}"
        (Path(folder) / f"{name}.py").touch()
        travelling = runtime_environment(FactorySpec(factory=f"{name}:build"), None)["py_modules"]
        assert (len(travelling) == 2) == travels


def test_a_study_of_nobodys_code_names_nothing() -> None:
    assert load_study(ROOT / "studies/default.toml").code_folder is None


def test_again_of_a_comparison_works_in_any_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It names two directories with a space in them, typed relative to another folder."""
    (tmp_path / "of mine").mkdir()
    for name in ("monday", "tuesday"):
        planted(tmp_path / "of mine", name, 0.01, quiet=True)
    monkeypatch.chdir(tmp_path / "of mine")
    console = make_console(io.StringIO())
    compare_directories(CompareOptions([Path("monday"), Path("tuesday")], output=Path("both")), console)
    (again,) = {
        line for line in Path("both/report.md").read_text().split("`") if line.startswith("python -m")
    }
    _, _, _, command, *directories, option, output = shlex.split(again)
    assert (command, option) == ("compare", "--output")
    monkeypatch.chdir(tmp_path)
    compare_directories(CompareOptions([*map(Path, directories)], output=Path(output)), console)
    assert (tmp_path / "of mine" / "both-again" / "report.html").exists()


def test_a_module_is_looked_for_in_the_current_directory_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As ``python -m`` does; an installed ``raybench`` has the folder of programs there."""
    monkeypatch.chdir(tmp_path)
    options = scaling_options(module="pkg.train", args="--bs {batch_size}")
    spec = load_study(None, overrides=options.overrides)
    assert isinstance(spec.workload, ScriptSpec)
    assert (spec.workload.script, spec.workload.is_module, spec.name) == ("pkg.train", True, "pkg.train")
    assert spec.code_folder == str(tmp_path)
    file = scaling_options(script=tmp_path / "train.py")
    assert load_study(None, overrides=file.overrides).code_folder is None


@pytest.mark.parametrize("way", [{"script": Path("train.py")}, {"module": "train"}])
def test_a_knob_that_nothing_of_a_script_takes_is_refused_by_name(way: dict[str, Any]) -> None:
    options = scaling_options(**way, set_=["knobs.compile=true"])
    with pytest.raises(RequestError) as refused:
        load_study(None, overrides=options.overrides)
    assert "knobs.compile: neither DDP nor the script's arguments take it" in refused.value.problems[0]

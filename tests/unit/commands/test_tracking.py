"""``--log``: refused before anything is measured, and worth a line where it fails afterwards."""

from __future__ import annotations

import io
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

from raybench.commands import runs, tracking
from raybench.commands.measuring import EndedCommand
from raybench.commands.scaling import ScalingOptions, scaling_options
from raybench.errors import RequestError
from raybench.machine.environment import capture
from raybench.machine.host import Resources
from raybench.records.store import ResultsDirectory
from raybench.spec.knobs import Setting
from raybench.workloads import Checked
from tests.support.analysis import analyse
from tests.unit.studies import asked, failed, grid, study


def test_a_missing_package_is_refused_with_the_line_that_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tracking, "find_spec", lambda name: None)
    with pytest.raises(RequestError) as error:
        runs.run_scaling(scaling_options(log="wandb", device="cpu"), Console(file=io.StringIO()))
    assert error.value.problems == (
        '--log wandb: the package wandb is not installed: pip install "raybench[wandb]"',
    )


@pytest.fixture
def said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Runs a study that measures two trials, and returns its exit code and what was said after the report."""
    spec = study(resources={"device": "cpu"})
    cluster: Any = SimpleNamespace(
        is_local=True,
        await_places=lambda *_: None,
        resources=lambda needs: Resources("cpu", 2, "a CPU"),
        environments=lambda needs: [capture()],
        close=lambda: None,
    )

    def measure(store: ResultsDirectory, *_: Any, **named: Any) -> EndedCommand:
        assert named["command"].endswith(" --log mlflow")  # what goes on logs as well
        for record in grid(spec, (1, 2))[0]:
            store.append(record)
        return EndedCommand(130, store.path)

    monkeypatch.setattr(tracking, "find_spec", lambda name: True)
    monkeypatch.setattr(runs, "check_workload", lambda *_: Checked())
    monkeypatch.setattr(runs, "measure_and_report", measure)
    monkeypatch.setattr(runs, "request_of", lambda options: (cluster, spec))

    def run() -> tuple[int, str]:
        console = Console(file=io.StringIO(), width=400)
        ended = runs.run_scaling(ScalingOptions(output=tmp_path / "out", log="mlflow"), console)
        assert isinstance(console.file, io.StringIO)
        return ended.code, console.file.getvalue()

    return run


def test_what_was_measured_until_an_interrupt_is_logged(said: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    logged: list[tuple[tracking.Run, list[tracking.Run]]] = []
    log = {"mlflow": lambda study, trials, directory: logged.append((study, trials))}
    monkeypatch.setattr(tracking, "_TRACKERS", log)
    assert said() == (130, "")
    ((of_study, trials),) = logged
    assert of_study.name == "out"
    assert of_study.metrics["efficiency"] > 0
    assert [each.parameters["world_size"] for each in trials] == [1, 2]
    assert all(each.parameters["state"] == "complete" for each in trials)
    assert all(each.metrics["step_time_s"] > 0 for each in trials)


def test_a_tracker_that_fails_is_a_line_and_costs_nothing(said: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: Any) -> None:
        raise ConnectionError("no answer\nfrom there")

    monkeypatch.setattr(tracking, "_TRACKERS", {"mlflow": fails})
    code, words = said()
    assert code == 130
    assert words == "note: --log mlflow: not everything was logged: ConnectionError: no answer from there\n"


def test_of_a_script_only_what_is_known_of_it_is_logged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody knows its buckets and accumulation, nor, on several devices, whether it has DDP."""
    logged: list[Any] = []
    monkeypatch.setattr(tracking, "_TRACKERS", {"wandb": lambda *given: logged.append(given)})
    script = {"script": "train.py", "args": "--bs {batch_size}"}
    spec = study(workload=script, knobs={"batch_size": [8]})
    record = failed(asked(spec, "scaling", Setting(batch_size=8), 2), "oom", "planted")
    assert tracking.log_study("wandb", analyse(spec, [record]), tmp_path) is None
    ((_, (trial,), _),) = logged
    known = trial.parameters
    assert {"bucket_cap_mb", "gradient_compression", "gradient_accumulation", "strategy"}.isdisjoint(known)
    assert (known["batch_size"], known["global_batch_size"]) == (8, 16)


def test_a_trial_without_figures_has_its_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    logged: list[Any] = []
    monkeypatch.setattr(tracking, "_TRACKERS", {"wandb": lambda *given: logged.append(given)})
    spec = study()
    record = failed(grid(spec, (2,))[0][0].study_request, "oom", "planted")
    assert tracking.log_study("wandb", analyse(spec, [record]), tmp_path) is None
    ((of_study, (trial,), directory),) = logged
    assert directory == tmp_path
    assert of_study.metrics == {}
    assert trial.parameters["state"] == "oom"
    assert set(trial.metrics) <= {"wall_time_s"}

"""The command line as a user meets it: what it answers, and how it refuses."""

from __future__ import annotations

import csv
import json
import re
import shutil
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

from raybench import study
from raybench.commands import runs
from raybench.commands.measuring import EndedCommand
from raybench.machine import environment as environments
from raybench.machine import gpus
from raybench.machine.host import usable_cores
from raybench.records.record import TrialRecord
from raybench.records.store import ResultsDirectory
from raybench.spec.load import load_study, resolve
from raybench.spec.study import Study
from tests.support.answers import Answer, answer_of
from tests.support.planted import FakeRunner
from tests.unit.studies import searched

MOST_LINES = 6
CONTROL = re.compile(r"[\x00-\x09\x0b-\x1f\x7f]")
LIMIT_S = 30.0  # of what may hang
TINY = {"name": "tiny", "workload": {"name": "mlp"}, "resources": {"device": "cpu"}}


def command(*arguments: str | Path) -> Answer:
    """Within this process; what a process of its own shows is in tests/processes/test_command.py."""
    return answer_of(study.main, list(map(str, arguments)), LIMIT_S)


def scaling(*arguments: str | Path) -> Answer:
    """Dry, on CPUs: if a wrong request is not refused, nothing starts all the same."""
    return command("scaling", "--dry-run", "--device", "cpu", *arguments)


def refused(answer: Answer) -> str:
    """The lines on stderr of a request that was refused as the contract says."""
    assert answer.code == 2, answer
    assert answer.output == ""
    lines = answer.errors.splitlines()
    assert 1 <= len(lines) <= MOST_LINES, answer.errors
    return answer.errors


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    """Nothing that a command writes lands in the checkout, and nothing that is set here changes it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    for name in ("RAYBENCH_DATA", "RAY_ADDRESS", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)


# --- the study


def test_an_unknown_study_offers_the_nearest_name():
    found = refused(scaling("resnet18_cifr10"))
    assert 'unknown study "resnet18_cifr10", did you mean resnet18_cifar10?' in found
    assert "default" in found  # and the list of all


def test_a_file_that_is_no_study(tmp_path):
    """In a line; which line for what is asked in spec/test_load.py."""
    (tmp_path / "mine.toml").write_bytes(b"name = [1,\n")
    assert "not TOML" in refused(scaling("mine.toml"))


def test_a_directory_is_no_study(tmp_path):
    assert "cannot be read: Is a directory" in refused(scaling(tmp_path))
    assert "cannot be read: No such file" in refused(scaling(tmp_path / "none.toml"))


# --- options

WRONG_OPTIONS: dict[str, tuple[list[str], str, str]] = {
    # what is typed, the field, the value received
    "unknown field": (["--set", "knobs.bucket_cap=25"], "knobs.bucket_cap", "bucket_cap_mb"),
    "unknown table": (["--set", "knob.batch_size=8"], "knob", "knobs"),
    "text for a number": (["--set", "measure.max_seconds=long"], "measure.max_seconds", '"long"'),
    "number for text": (["--set", "scaling.mode=3"], "scaling.mode", "3"),
    "a fraction of a trial": (["--set", "search.trials=2.5"], "search.trials", "2.5"),
    "no assignment": (["--set", "knobs.batch_size"], "--set", "knobs.batch_size"),
    "no number of trials": (["--trials", "false"], "search.trials", "received false"),
    "typo of the workload": (["--set", "worklod.input_dim=4"], "worklod", "workload"),
    "world size 0": (["--world-sizes", "0"], "scaling.world_sizes", "received 0"),
    "world size -1": (["--world-sizes=-1"], "scaling.world_sizes", "received -1"),
    "no world size": (["--world-sizes", "two"], "scaling.world_sizes", 'received "two"'),
    "more than there is": (["--world-sizes", "1,4096"], "scaling.world_sizes", "4096"),
    "batch 0": (["--batch-sizes", "256,0"], "knobs.batch_size[1]", "received 0"),
    "batch twice": (["--batch-sizes", "64,64"], "knobs.batch_size", "64 stands there twice"),
    "bucket negative": (["--bucket-cap-mb=-5"], "knobs.bucket_cap_mb", "received -5"),
    "bucket no number": (["--bucket-cap-mb", "nan"], "knobs.bucket_cap_mb", "received nan"),
    "unknown precision": (["--precision", "fp32,bf61"], "knobs.precision[1]", 'received "bf61"'),
    "impossible precision": (["--precision", "tf32"], "knobs", "GPUs only"),
    "trials negative": (["--trials", "-3"], "search.trials", "-3"),
    "trials none": (["--trials", "0"], "search.trials", "0"),
    "trials a word": (["--trials", "many"], "search.trials", 'received "many"'),
    "a time that is none": (["--time-budget", "soon"], "--time-budget", '"soon"'),
    "no time": (["--time-budget", "0s"], "--time-budget", '"0s"'),
    "a negative time": (["--time-budget=-5m"], "--time-budget", '"-5m"'),
    "seed negative": (["--seed", "-1"], "seed", "-1"),
    "steps 0": (["--steps", "0"], "measure.steps", "0"),
    "warm-up negative": (["--warmup-steps", "-1"], "measure.warmup_steps", "-1"),
    "cores 0": (["--cpus-per-worker", "0"], "resources.cpus_per_worker", "0"),
    "more cores than there are": (["--cpus-per-worker", "4096"], "resources.cpus_per_worker", "4096"),
    "retry alone": (["--retry", "crashed"], "--retry", "--resume"),
    "retry of no state": (["--resume", "--output", "x", "--retry", "complete"], "--retry", '"complete"'),
    "grid with trials": (["--grid", "--trials", "3"], "--grid", "--trials 3"),
    "resume nothing": (["--resume"], "--resume", "--output DIR"),
    "unknown runner": (["--runner", "ray"], "--runner", 'group, tune (received "ray")'),
    "unknown tracker": (["--log", "neptune"], "--log", 'received "neptune"'),
    "unknown option": (["--frobnicate"], "--frobnicate", "--help"),
    "tune and ranks": (
        ["--runner", "tune", "--set", "scaling.placement=[[0, 1]]"],
        "scaling.placement",
        "--runner tune",
    ),
    "strategy": (["--set", "knobs.strategy=tp"], "knobs.strategy", 'received "tp"'),
    "dp on CPUs": (["--set", "knobs.strategy=dp"], "strategy dp", "GPUs only"),
    "fsdp excludes": (
        ["--set", "knobs.strategy=fsdp", "--set", "knobs.static_graph=true"],
        "strategy fsdp",
        "excludes static_graph",
    ),
    "training on made-up input": (["--set", "training.epochs=3"], "training", "'synthetic'"),
}


@pytest.mark.parametrize("name", WRONG_OPTIONS)
def test_a_wrong_option_is_named_with_the_value(name):
    typed, field, value = WRONG_OPTIONS[name]
    found = refused(scaling(*typed))
    assert field in found
    assert value in found


def test_a_wrong_choice_of_other_commands_is_a_line_too():
    assert (
        refused(command("report", "x.csv", "--scaling", "both"))
        == '--scaling: weak, strong (received "both")\n'
    )
    assert 'received "csv"' in refused(command("report", "out", "--format", "csv"))
    assert 'received "tpu"' in refused(command("show", "default", "--device", "tpu"))


def test_batches_that_do_not_divide_under_strong_scaling():
    typed = ("--scaling", "strong", "--world-sizes", "1,3", "--oversubscribe", "--batch-sizes", "48,64")
    found = refused(scaling(*typed))
    assert "knobs.batch_size" in found
    assert "divisible" in found
    assert "received 64" in found


def test_gpus_that_are_not_there(monkeypatch):
    monkeypatch.setattr(gpus, "gpu_names", list)
    assert "there is none (received 'cuda')" in refused(command("scaling", "--dry-run", "--device", "cuda"))


# --- workloads


def test_a_vision_study_without_its_data(tmp_path):
    found = refused(scaling("resnet18_cifar10", "--data", tmp_path))
    assert "data" in found
    assert str(tmp_path) in found


# --- the results directory


@pytest.fixture
def results(tmp_path) -> Path:
    """An unfinished study of this machine, to resume."""
    study = load_study(write(tmp_path / "tiny.toml", TINY))
    study = study.model_copy(update={"scaling": study.scaling.model_copy(update={"world_sizes": (1,)})})
    path = tmp_path / "results"
    ResultsDirectory.create(path, study, environments.capture()).close()
    return path


def write(path: Path, data: dict[str, Any]) -> Path:
    from raybench.spec.user_input import render

    path.write_text(render(data))
    return path


def start(*arguments: str | Path) -> Answer:
    """Not dry: directories are looked at when a study starts. All of these are refused before that."""
    return command("scaling", "--device", "cpu", *arguments)


def resumed(path: Path, *arguments: str) -> str:
    return refused(start("--resume", "--output", path, *arguments))


def test_an_output_that_is_not_empty(tmp_path, results):
    found = refused(start("--output", results))
    assert f"{results}: not empty" in found
    assert "--resume" in found
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "cat.jpg").write_text("")
    assert "not a results directory of raybench" in refused(start("--output", tmp_path / "photos"))
    assert [entry.name for entry in (tmp_path / "photos").iterdir()] == ["cat.jpg"]  # and it is left alone


def test_an_output_that_cannot_be_a_directory(tmp_path):
    (tmp_path / "file").write_text("")
    assert "cannot be written: Not a directory" in refused(start("--output", tmp_path / "file"))
    assert "cannot be written" in refused(start("--output", tmp_path / "file" / "deeper"))


def test_resuming_what_is_no_results_directory(tmp_path):
    assert "no such directory" in resumed(tmp_path / "none")
    assert "not a results directory of raybench" in resumed(tmp_path)


def test_resuming_a_newer_schema(results):
    line = json.loads('{"schema_version": 99}')
    (results / "trials.jsonl").write_text(json.dumps(line) + "\n")
    found = resumed(results)
    assert "schema_version 99" in found
    assert "newer" in found
    assert "schema_version 99" in refused(command("report", results))


def test_resuming_a_directory_in_use(results):
    with ResultsDirectory.resume(results):
        assert "in use by another process" in resumed(results)


def altered(results: Path, **changes: Any) -> None:
    path = results / "environment.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"cpu_model": "Another CPU"}, "cpu_model: Another CPU before"),
        ({"packages": {"torch": "1.0.0"}}, "packages.torch: 1.0.0 before"),
        ({"memory_bytes": 1 << 20}, "memory_bytes"),
        ({"gpus": []}, None),
    ],
    ids=["hardware", "versions", "memory", "the same"],
)
def test_resuming_on_another_machine(results, changes, expected):
    altered(results, **changes)
    if expected is None:  # what has not changed is no reason: only the option below is
        found = resumed(results, "--seed", "7")
        assert found.splitlines()[1:] == ["seed: 0 before, 7 now"]
        return
    done = start("--resume", "--output", results)
    assert done.code == 2
    assert "cannot go on, these differ" in done.errors
    assert expected in done.errors
    assert "Traceback" not in done.errors


def test_resuming_with_options_that_disagree(results):
    found = resumed(results, "--seed", "7", "--batch-sizes", "64", "--set", "workload.hidden_dim=32")
    assert "cannot go on, these differ" in found
    assert "seed: 0 before, 7 now" in found
    assert "knobs.batch_size: [32] before, [64] now" in found
    assert "workload.hidden_dim: 1024 before, 32 now" in found


def test_resuming_another_study(results):
    assert "cannot go on, these differ" in start("default", "--resume", "--output", results).errors


def test_a_refused_resume_leaves_the_directory_free_and_as_it_was(results):
    before = {path.name: path.read_bytes() for path in results.iterdir() if path.is_file()}
    resumed(results, "--seed", "7")
    after = {path.name: path.read_bytes() for path in results.iterdir() if path.is_file()}
    assert {name: after[name] for name in before} == before
    ResultsDirectory.resume(results).close()


def test_reports_of_what_is_none(tmp_path):
    assert "no such directory" in refused(command("report", tmp_path / "none"))
    assert "not a results directory" in refused(command("report", tmp_path))
    assert "compare takes several directories" in refused(command("report", tmp_path, tmp_path))


# --- what answers at once


@pytest.mark.parametrize("name", ["scaling", "report", "predict", "communication", "list", "show", "doctor"])
def test_every_command_has_help_with_an_example(name):
    done = command(name, "--help")
    assert done.code == 0
    assert f"python -m raybench.study {name}" in done.output


def test_list_names_each_study_with_its_question():
    lines = command("list").output.splitlines()
    assert {line.split()[0] for line in lines} >= {"default", "resnet18_cifar10", "resnet18_fashion_mnist"}
    assert all("?" in line for line in lines)


@pytest.mark.promise("studies")
def test_what_show_prints_is_a_study(tmp_path):
    (tmp_path / "shown.toml").write_text(command("show", "default").output)
    assert load_study(tmp_path / "shown.toml") == load_study(Path(packaged("default")))


def packaged(name: str) -> Path:
    from raybench.spec.load import find_study

    return find_study(name)


def test_every_field_is_explained():
    shown = command("show", "--fields").output
    for name in ("name", "workload.hidden_dim", "knobs.batch_size", "measure.max_seconds", "search.trials"):
        assert re.search(rf"^{name}: .+\n    \S", shown, re.MULTILINE), name


@pytest.mark.promise("dry run")
def test_a_dry_run_prints_the_plan_and_starts_nothing(tmp_path):
    done = scaling("--world-sizes", "1", "--batch-sizes", "64,32", "--precision", "fp32,bf16", "--grid")
    assert done.code == 0
    assert "default: grid, world sizes 1 on " in done.output
    # one device: the buckets of the default study cannot matter, 2 batches x 2 precisions remain
    trials = re.findall(r"^  ([0-9a-f]{12})  1 device, (batch .*)$", done.output, re.MULTILINE)
    assert len({trial_id for trial_id, _ in trials}) == len(trials) == 4
    words = {f"batch {batch}, {precision}" for batch in (64, 32) for precision in ("fp32", "bf16")}
    assert {setting for _, setting in trials} == words
    assert list(tmp_path.iterdir()) == []


def test_a_dry_run_says_that_the_largest_batch_is_found_first():
    typed = ("--world-sizes", "1", "--batch-sizes", "64,max", "--precision", "fp32,bf16", "--grid")
    done = scaling(*typed)
    assert done.code == 0
    assert "Finding the largest batch that fits on 1 device, for each of 2 combinations" in done.output
    trials = re.findall(r"^  ([0-9a-f]{12})  1 device, batch (\d+)", done.output, re.MULTILINE)
    assert [batch for _, batch in trials] == ["64", "64"]  # the others have no number yet, so no id
    assert "batch_size: 64, max" in done.output


def test_options_override_the_study():
    cores = usable_cores()
    typed = ("--oversubscribe", "--world-sizes", f"1,{cores + 1}", "--trials", "5", "--time-budget", "1h30m")
    done = scaling(*typed, "--set", "knobs.gradient_accumulation=[1,4]")
    assert f"world sizes 1, {cores + 1} on cpu" in done.output
    assert "4 suggestions" in done.output  # and the default
    assert "gradient_accumulation: 1, 4" in done.output
    assert "time budget: 90 min" in done.output


@pytest.mark.parametrize(
    "typed",
    [
        ("mlp_scaling", "--hidden-dim", "2048", "--num-layers=6"),
        ("--hidden-dim", "2048", "--num-layers", "6", "mlp_scaling"),
    ],
)
def test_a_field_of_the_studys_workload_is_an_option(typed, monkeypatch):
    monkeypatch.setattr(runs, "run_scaling", lambda options, _: found.append(options) or EndedCommand(0))
    found = []
    assert command("scaling", *typed).code == 0
    assert found[0].study == "mlp_scaling"
    assert found[0].overrides == (("workload.hidden_dim", 2048), ("workload.num_layers", 6))


def test_arguments_of_a_factory_are_options_where_the_study_has_them(tmp_path, monkeypatch):
    (tmp_path / "own.toml").write_text('name = "own"\n[workload]\nfactory = "own:build"\nwidth = 8\n')
    monkeypatch.setattr(runs, "run_scaling", lambda options, _: found.append(options) or EndedCommand(0))
    found = []
    assert command("scaling", "own.toml", "--width", "[16, 32]").code == 0
    assert found[0].overrides == (("workload.width", [16, 32]),)
    assert refused(command("scaling", "own.toml", "--qqq", "3")).startswith("no such option: --qqq\n")


def test_an_option_that_neither_command_nor_workload_has_offers_the_nearest():
    answers = {"--hiden-dim": "--hidden-dim", "--batch-size": "--batch-sizes", "-h": ""}
    for typed, meant in answers.items():
        ends = f", did you mean {meant}?" if meant else ""
        assert refused(scaling("mlp_scaling", typed, "8")).startswith(f"no such option: {typed}{ends}\n")
    assert "workload.hidden_dim: a whole number" in refused(scaling("mlp_scaling", "--hidden-dim"))
    assert '--args "--lr ..."' in refused(scaling("train.py", "--lr", "0.1"))
    assert "--smoke: of a study that has small sizes" in refused(scaling("train.py", "--smoke"))
    assert refused(scaling("mlp_scaling", "default")) == "STUDY: one study (received mlp_scaling default)\n"


def test_raybench_is_on_the_path_after_installation():
    (entry,) = (each for each in metadata.entry_points(group="console_scripts") if each.name == "raybench")
    assert entry.value == "raybench.study:main"
    assert callable(entry.load())


# --- report


@pytest.fixture(scope="module")
def measured(tmp_path_factory) -> Path:
    """A finished study on fake hardware."""
    study = resolve(
        {
            "name": "fake",
            "workload": {"name": "mlp"},
            "knobs": {
                "batch_size": [512, 32],
                "bucket_cap_mb": ["default", 1],
                "precision": ["fp32", "bf16"],
            },
            "search": {"method": "optuna", "trials": 6},
            "scaling": {"world_sizes": [1, 2]},
        }
    )
    path = tmp_path_factory.mktemp("measured") / "results"
    with ResultsDirectory.create(path, study, environments.capture()) as store:
        for record in records_of(study):
            store.append(record)
    return path


def records_of(study: Study) -> list[TrialRecord]:
    winner = study.knobs.default().model_copy(update={"precision": "bf16"})
    return searched(study, (1, 2), winner, FakeRunner(seed=4, num_devices=2))


def test_report_prints_the_answer_and_writes_the_files(measured, monkeypatch):
    monkeypatch.chdir(measured.parent)
    done = command("report", measured.name)
    assert done.code == 0, done.errors
    answer = " ".join(done.output.split())  # of one line or several
    assert "2 devices train " in done.output
    assert "times the default's speed on 2 devices" in answer.rpartition("% of each step is lost")[2]
    assert not CONTROL.search(done.output)
    directory = measured / "report"
    for name in ("report.html", "report.md", "summary.csv"):
        assert (directory / name).stat().st_size > 0, name
    plots = {each.suffix for each in (directory / "plots").iterdir()}
    assert plots == {".png", ".svg"}
    # paths as short as they are from where the command was typed
    assert f"\nReport:  {Path(measured.name) / 'report' / 'report.html'}\n" in done.output
    assert done.output.endswith(f"\nResults: {measured.name}\n")
    settings, rows = (
        list(csv.DictReader((directory / name).read_text().splitlines()))
        for name in ("summary.csv", "trials.csv")
    )
    assert len(rows) == len(ResultsDirectory.open_readonly(measured).latest())
    assert {row["role"] for row in rows} == {"search", "scaling"}
    assert sum(int(row["visits"]) for row in settings) == len(rows)
    assert list(rows[0]) == list(settings[0])
    assert list(rows[0])[:5] == ["study", "model", "device_name", "input", "trial_id"]


def test_quiet_prints_the_answer_and_where_the_files_are(measured):
    lines = command("report", measured, "--quiet").output.splitlines()
    answer, *rest = [line for line in lines if line]
    assert answer.startswith("2 devices train ")
    assert "times the default's speed on 2 devices" in answer.rpartition("% of each step is lost")[2]
    assert [line.split(":")[0] for line in rest] == ["Report", "Results"]


def test_a_report_of_nothing_says_so_and_exits_1(tmp_path):
    study = resolve(TINY)
    path = tmp_path / "empty"
    ResultsDirectory.create(path, study, environments.capture()).close()
    done = command("report", path)
    assert done.code == 1
    assert "Nothing was measured" in done.output


def test_a_torn_last_line_is_told(measured, tmp_path):
    torn = tmp_path / "torn"
    shutil.copytree(measured, torn)
    content = (torn / "trials.jsonl").read_bytes()
    (torn / "trials.jsonl").write_bytes(content[:-200])
    done = command("report", torn)
    assert done.code == 0
    assert "note: " in done.output
    assert "cut off" in done.output

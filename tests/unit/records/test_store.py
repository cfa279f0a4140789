"""A results directory: nothing lost, one writer, and a clear word to everyone else."""

import errno
import json
import os
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from raybench.errors import RequestError, StoreError
from raybench.machine.environment import Environment
from raybench.records import store
from raybench.records.messages import BlockStepTimes
from raybench.records.record import SCHEMA_VERSION, TrialRecord, is_readable
from raybench.records.requests import Configuration, StepsRequest
from raybench.records.results import Block, Round, StepsResult
from raybench.records.store import ResultsDirectory
from raybench.spec.knobs import Setting
from raybench.spec.load import resolve
from raybench.spec.study import MeasureSpec, OptimizerSpec
from tests.support.planted import StepCosts
from tests.unit.studies import measured

STUDY = resolve({"name": "x", "workload": {"name": "mlp"}, "knobs": {"batch_size": [8, 16]}})
ENVIRONMENT = Environment(
    hostname="here",
    os="Linux",
    kernel="6",
    cpu_model="a CPU",
    cores=2,
    usable_cores=2,
    memory_bytes=8 * 2**30,
    python="3.12.1",
    packages={"torch": "2.14.1"},
)


def record(batch_size=8, state="complete", reason=None):
    config = Configuration(
        workload=STUDY.workload,
        optimizer=OptimizerSpec(),
        setting=Setting(batch_size=batch_size),
        world_size=2,
    )
    request = StepsRequest(role="search", config=config, variants=("plain", "ddp"), measure=MeasureSpec())
    block = Block(variant="ddp", ranks=(0, 1), step_time_s=(0.1, 0.2), slowest_s=0.2, num_steps=5)
    measurement = StepsResult(
        rounds=(Round(blocks=(block,), at_s=0.0), Round(blocks=(block,), at_s=1.0)),
        stopped_by="half_width",
        batch_size=batch_size,
        global_batch_size=2 * batch_size,
        samples_per_step=2.0 * batch_size,
        setup_s=0.1,
        warmup_s=0.1,
        measure_s=1.0,
    )
    return TrialRecord(
        study="x",
        trial_id=request.trial_id,
        request=request,
        state=state,
        reason=reason,
        started_at="2026-01-01T00:00:00Z",
        wall_time_s=1.5,
        result=measurement if state == "complete" else None,
    )


def samples(round_=0):
    times = np.array([[0.1, 0.11, 0.12], [0.2, 0.21, 0.22]])
    return BlockStepTimes(variant="ddp", round=round_, ranks=(0, 1), step_time_s=times)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "results"


def refused(call, *arguments):
    with pytest.raises(StoreError) as caught:
        call(*arguments)
    assert all("\n" not in line for line in caught.value.problems)
    return str(caught.value)


def test_what_was_written_is_read(path):
    with ResultsDirectory.create(path, STUDY, ENVIRONMENT) as results:
        results.append(record(8), [samples(0), samples(1)])
        results.append(record(16, "oom", "no memory"))
        assert (path / "trials.jsonl").read_text().count("\n") == 2
    again = ResultsDirectory.open_readonly(path)
    assert again.records() == [record(8), record(16, "oom", "no memory")]
    assert again.study() == STUDY
    assert again.environment() == ENVIRONMENT
    assert again.warnings == []
    table = pq.read_table(again.samples_path(record(8).trial_id)).to_pydict()
    assert list(table) == ["variant", "round", "rank", "step", "step_time_s"]
    assert table["variant"] == ["ddp"] * 12
    assert table["round"] == [0] * 6 + [1] * 6
    assert table["rank"] == [0, 0, 0, 1, 1, 1] * 2
    assert table["step"] == [0, 1, 2] * 4
    assert table["step_time_s"][:6] == [0.1, 0.11, 0.12, 0.2, 0.21, 0.22]
    assert not again.samples_path(record(16).trial_id).exists()


def test_a_retry_counts_last_and_replaces_the_samples(path):
    first, second = record(8, "timeout", "hung"), record(8)
    with ResultsDirectory.create(path, STUDY, ENVIRONMENT) as results:
        results.append(second, [samples()])
        results.append(first)
        assert results.latest() == {first.trial_id: first}
        assert not results.samples_path(first.trial_id).exists()
        results.append(second, [samples()])
        assert results.samples_path(first.trial_id).exists()
    again = ResultsDirectory.open_readonly(path)
    assert len(again.records()) == 3
    assert again.latest() == {second.trial_id: second}


def test_nothing_is_left_open_or_half_written(path):
    with ResultsDirectory.create(path, STUDY, ENVIRONMENT) as results:
        results.append(record(8), [samples()])
    assert {entry.name for entry in path.iterdir()} - {".lock"} == {
        "study.toml",
        "environment.json",
        "trials.jsonl",
        "samples",
    }
    assert [entry.suffix for entry in (path / "samples").iterdir()] == [".parquet"]


# --- directories that are refused


def test_a_directory_with_results_needs_resume(path):
    ResultsDirectory.create(path, STUDY, ENVIRONMENT).close()
    assert "not empty: --resume goes on in it" in refused(ResultsDirectory.create, path, STUDY, ENVIRONMENT)
    ResultsDirectory.resume(path).close()


def test_an_empty_directory_is_taken(path):
    path.mkdir()
    ResultsDirectory.create(path, STUDY, ENVIRONMENT).close()
    assert ResultsDirectory.open_readonly(path).study() == STUDY


def test_the_directory_of_someone_else(path):
    path.mkdir()
    (path / "thesis.tex").write_text("chapter 1")
    for call in (ResultsDirectory.resume, ResultsDirectory.open_readonly):
        assert "not a results directory of raybench, it has no study.toml and no trials.jsonl" in refused(
            call, path
        )
    assert "not empty: not a results directory" in refused(ResultsDirectory.create, path, STUDY, ENVIRONMENT)
    assert [entry.name for entry in path.iterdir()] == ["thesis.tex"]


def test_a_file_and_nothing_at_all(path):
    assert "no such directory" in refused(ResultsDirectory.resume, path)
    path.write_text("")
    assert "cannot be written: Not a directory" in refused(ResultsDirectory.create, path, STUDY, ENVIRONMENT)
    assert "a file, not a results directory" in refused(ResultsDirectory.open_readonly, path)
    assert "cannot be written: Not a directory" in refused(
        ResultsDirectory.create, path / "in", STUDY, ENVIRONMENT
    )


def test_an_unwritable_directory(path):
    # /proc takes no directories, from root either.
    line = refused(ResultsDirectory.create, Path("/proc/raybench-results"), STUDY, ENVIRONMENT)
    assert line.startswith("/proc/raybench-results: cannot be written: ")
    if os.geteuid() != 0:
        path.mkdir(mode=0o500)
        assert "cannot be written: Permission denied" in refused(
            ResultsDirectory.create, path, STUDY, ENVIRONMENT
        )


def test_records_from_before_requests_had_kinds_are_refused_in_a_line(path):
    with ResultsDirectory.create(path, STUDY, ENVIRONMENT) as results:
        results.append(record(8))
    trials = path / "trials.jsonl"
    old = json.loads(trials.read_text()) | {"schema_version": 1}
    trials.write_text(json.dumps(old) + "\n")
    line = refused(ResultsDirectory.open_readonly, path)
    assert f"schema_version 1, this raybench reads {SCHEMA_VERSION}: measure again" in line


def test_an_older_minor_version_is_read():
    major, minor = SCHEMA_VERSION.split(".")
    assert is_readable(SCHEMA_VERSION)
    assert all(is_readable(f"{major}.{each}") for each in range(int(minor)))
    for other in (f"{major}.{int(minor) + 1}", f"{int(major) + 1}.0", "0.1", "1", 5, None):
        assert not is_readable(other)


@pytest.mark.parametrize("newer", ["3.99", "4.0"])
def test_a_newer_schema_in_a_line_or_in_the_environment(path, newer):
    with ResultsDirectory.create(path, STUDY, ENVIRONMENT) as results:
        results.append(record(8))
    for name in ("trials.jsonl", "environment.json"):
        old = (path / name).read_text()
        data = json.loads(old)
        (path / name).write_text(json.dumps(data | {"schema_version": newer, "unknown": 1}) + "\n")
        call = (
            ResultsDirectory.resume
            if name == "trials.jsonl"
            else lambda p: ResultsDirectory.open_readonly(p).environment()
        )
        line = refused(call, path)
        assert f'schema_version "{newer}", this raybench reads {SCHEMA_VERSION}' in line
        (path / name).write_text(old)
    ResultsDirectory.resume(path).close()  # and a refusal holds no lock


# --- damage


def test_a_torn_last_line_is_survived_reported_and_cut_off(path):
    with ResultsDirectory.create(path, STUDY, ENVIRONMENT) as results:
        results.append(record(8))
        results.append(record(16))
    trials = path / "trials.jsonl"
    trials.write_bytes(trials.read_bytes()[:-40])
    reader = ResultsDirectory.open_readonly(path)
    assert reader.records() == [record(8)]
    (warning,) = reader.warnings
    assert "line 2 was cut off" in warning
    with ResultsDirectory.resume(path) as results:
        assert len(results.warnings) == 1
        results.append(record(32))
    whole = ResultsDirectory.open_readonly(path)
    assert whole.records() == [record(8), record(32)]
    assert whole.warnings == []


@pytest.mark.parametrize("torn", [b"{", b"\xff\xfe", b"\0" * 300, b'{"schema_version": 9'])
def test_whatever_a_torn_line_holds(path, torn):
    with ResultsDirectory.create(path, STUDY, ENVIRONMENT) as results:
        results.append(record(8))
    with (path / "trials.jsonl").open("ab") as file:
        file.write(torn)
    reader = ResultsDirectory.open_readonly(path)
    assert len(reader.records()) == 1
    assert "line 2 was cut off" in reader.warnings[0]


@pytest.mark.parametrize("damage", ["{broken", "3", "{}", ""])
def test_a_damaged_line_in_the_middle_is_named(path, damage):
    with ResultsDirectory.create(path, STUDY, ENVIRONMENT) as results:
        for size in (8, 16, 32):
            results.append(record(size))
    trials = path / "trials.jsonl"
    lines = trials.read_text().split("\n")
    lines[1] = damage
    trials.write_text("\n".join(lines))
    assert f"{trials}: line 2 is damaged" in refused(ResultsDirectory.resume, path)
    reader = ResultsDirectory.open_readonly(path)  # what is left can be looked at
    assert len(reader.records()) == 2
    assert f"{trials}: line 2 is damaged" in reader.warnings[0]


def test_a_record_that_contradicts_itself_is_named(path):
    with ResultsDirectory.create(path, STUDY, ENVIRONMENT) as results:
        results.append(record(8))
    trials = path / "trials.jsonl"
    trials.write_text(trials.read_text().replace('"state":"complete"', '"state":"finished"'))
    assert "line 1 is damaged: state:" in refused(ResultsDirectory.open_readonly, path)


def test_damaged_environment(path):
    ResultsDirectory.create(path, STUDY, ENVIRONMENT).close()
    (path / "environment.json").write_text("[1]")
    assert "damaged" in refused(ResultsDirectory.open_readonly(path).environment)


# --- a full disk


def fill(folder):
    with pytest.raises(OSError, match="No space left"):
        (folder / "ballast").write_bytes(b"\0" * 2**20)


def test_half_a_line_before_the_disk_was_full(path, monkeypatch):
    """The same without a file system to fill: the first write takes a part, the second none."""
    with ResultsDirectory.create(path, STUDY, ENVIRONMENT) as results:
        results.append(record(8))
        before = (path / "trials.jsonl").read_bytes()
        write, calls = os.write, []

        def half(descriptor, data):
            calls.append(len(data))
            if len(calls) > 1:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            return write(descriptor, data[: len(data) // 2])

        monkeypatch.setattr(store.os, "write", half)
        assert "No space left on device" in refused(results.append, record(16))
        monkeypatch.undo()
        assert len(calls) == 2
        assert (path / "trials.jsonl").read_bytes() == before
        results.append(record(32))
    assert [each.config.setting.batch_size for each in ResultsDirectory.open_readonly(path).records()] == [
        8,
        32,
    ]


# --- the lock


def test_one_process_opens_a_directory_once(path):
    with ResultsDirectory.create(path, STUDY, ENVIRONMENT) as results:
        assert "in use by another process" in refused(ResultsDirectory.resume, path)
    results.close()
    ResultsDirectory.resume(path).close()


def test_reading_writes_nothing(path):
    ResultsDirectory.create(path, STUDY, ENVIRONMENT).close()
    assert "for reading only" in refused(ResultsDirectory.open_readonly(path).append, record(8))


# --- going on


def test_the_same_goes_on(path):
    ResultsDirectory.create(path, STUDY, ENVIRONMENT).close()
    with ResultsDirectory.resume(path) as results:
        results.check_same(STUDY, ENVIRONMENT)
        longer = STUDY.model_copy(
            update={"time_budget_seconds": 60.0, "measure": MeasureSpec(timeout_seconds=900, starts=3)}
        )
        results.check_same(longer, ENVIRONMENT.model_copy(update={"hostname": "there", "clock_mhz": 9.0}))
        assert results.warnings == []
        results.write_asked(longer)
    with ResultsDirectory.open_readonly(path) as results:
        assert results.study() == longer


def test_what_differs_is_named_with_both_values(path):
    ResultsDirectory.create(path, STUDY, ENVIRONMENT).close()
    other = resolve(
        {
            "name": "x",
            "workload": {"name": "mlp", "hidden_dim": 64},
            "knobs": {"batch_size": 8},
            "environment": {"NCCL_ALGO": "Ring"},
            "data": "/d",
        }
    )
    elsewhere = ENVIRONMENT.model_copy(update={"cpu_model": "another", "packages": {"torch": "2.15.0"}})
    with ResultsDirectory.resume(path) as results, pytest.raises(RequestError) as caught:
        results.check_same(other, elsewhere)
    assert caught.value.problems == (
        f"{path}: cannot go on, these differ",
        "workload.hidden_dim: 1024 before, 64 now",
        "knobs.batch_size: [8, 16] before, [8] now",
        'data: nothing before, "/d" now',
        'environment.NCCL_ALGO: nothing before, ["Ring"] now',
        "cpu_model: a CPU before, another now",
        "packages.torch: 2.14.1 before, 2.15.0 now",
    )


def test_lines_that_are_no_measurement_are_left_out(path):
    whole = measured(StepCosts(plain_s=0.02), seed=1)
    with ResultsDirectory.create(path, STUDY, ENVIRONMENT) as results:
        results.append(whole)
    lines = path / store.TRIALS
    data = json.loads(lines.read_text())
    without_rounds = {**data, "result": {**data["result"], "rounds": []}}
    without_version = {key: value for key, value in data.items() if key != "schema_version"}
    with lines.open("a") as file:
        file.writelines(json.dumps(each) + "\n" for each in (without_rounds, without_version))
    found = ResultsDirectory.open_readonly(path)
    assert len(found.records()) == 1
    assert ["line 2" in found.warnings[0], "line 3" in found.warnings[1]] == [True, True]

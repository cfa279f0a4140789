"""A results directory on a disk that is full, and one that another process has open."""

import shutil
import signal

import numpy as np
import pytest

from raybench.errors import StoreError
from raybench.records.messages import BlockStepTimes, RankFile
from raybench.records.store import ResultsDirectory
from tests.processes.starting import program
from tests.support.planted import faults
from tests.unit.records.test_store import ENVIRONMENT, STUDY, fill, record, refused, samples


@pytest.fixture
def path(tmp_path):
    return tmp_path / "results"


@pytest.fixture(scope="module")
def disk(tmp_path_factory):
    """A file system of 64 KiB, whose last page can be filled."""
    place = tmp_path_factory.mktemp("disk") / "small"
    with faults.small_disk(place, "64k") as is_small:
        if not is_small:
            pytest.skip("no small disk without the right to mount one")
        yield place


@pytest.fixture
def small_disk(disk):
    """It is empty for each test."""
    for entry in disk.iterdir():
        shutil.rmtree(entry) if entry.is_dir() else entry.unlink()
    return disk


def test_a_full_disk_keeps_what_is_there(small_disk):
    path = small_disk / "results"
    with ResultsDirectory.create(path, STUDY, ENVIRONMENT) as results:
        results.append(record(8))
        fill(small_disk)
        before = (path / "trials.jsonl").read_bytes()
        many = (results.append(record(size)) for size in range(9, 400))
        with pytest.raises(StoreError) as caught:  # the page at its end has room for a few records
            list(many)
        (line,) = caught.value.problems
        kept = len(results.records())
        assert "cannot be written: No space left on device" in line
        assert "is lost" in line
        after = (path / "trials.jsonl").read_bytes()
        assert after.startswith(before)
        assert after.endswith(b"\n")
        (small_disk / "ballast").unlink()
        results.append(record(1000))
    again = ResultsDirectory.open_readonly(path)
    assert len(again.records()) == kept + 1
    assert again.warnings == []
    assert again.records()[-1] == record(1000)


def test_a_disk_too_full_for_samples_keeps_the_record(small_disk):
    path = small_disk / "results"
    many = BlockStepTimes(
        variant="plain", round=0, ranks=(0,), step_time_s=np.random.default_rng(0).random((1, 20000))
    )
    with ResultsDirectory.create(path, STUDY, ENVIRONMENT) as results:
        with pytest.raises(
            StoreError,
            match=r"No space left on device: the record of trial .* is kept, its step times are not",
        ):
            results.append(record(8), [many])
        assert list((path / "samples").iterdir()) == []
        results.append(record(16), [samples()])
    assert len(ResultsDirectory.open_readonly(path).records()) == 2


def test_a_disk_too_full_for_traces_keeps_the_record(small_disk):
    path, first = small_disk / "results", record(8)
    files = [RankFile("rank0.pt.trace.json.gz", b"small"), RankFile("rank1.pt.trace.json.gz", bytes(2**20))]
    with ResultsDirectory.create(path, STUDY, ENVIRONMENT) as results:
        results.append(first)
        with pytest.raises(
            StoreError, match=r"No space left on device: the record of trial .* is kept, its traces"
        ):
            results.add_traces(first.trial_id, files)
        assert [each.name for each in (path / "traces" / first.trial_id).iterdir()] == [files[0].name]
        results.append(record(16))
    assert len(ResultsDirectory.open_readonly(path).records()) == 2


def test_a_disk_too_full_to_begin(small_disk):
    fill(small_disk)
    path = small_disk / "results"
    assert "No space left on device" in refused(ResultsDirectory.create, path, STUDY, ENVIRONMENT)
    (small_disk / "ballast").unlink()
    line = refused(ResultsDirectory.create, path, STUDY, ENVIRONMENT)
    assert "it has no study.toml and no trials.jsonl; --output takes a new or empty directory" in line


HOLDER = """
import sys, time
from pathlib import Path
from raybench.records.store import ResultsDirectory
with ResultsDirectory.resume(Path(sys.argv[1])):
    print("holding", flush=True)
    time.sleep(60)
"""


@pytest.fixture
def holder(path):
    """Another process that has the directory open for writing."""
    ResultsDirectory.create(path, STUDY, ENVIRONMENT).close()
    process = program(HOLDER, path)
    assert process.stdout is not None
    assert process.stdout.readline().strip() == "holding"
    yield process
    process.kill()
    process.wait()
    process.stdout.close()


def test_two_processes_on_one_directory(path, holder):
    line = refused(ResultsDirectory.resume, path)
    assert "in use by another process" in line
    assert ResultsDirectory.open_readonly(path).records() == []  # reading is free


def test_a_dead_process_holds_nothing(path, holder):
    holder.send_signal(signal.SIGKILL)
    holder.wait()
    with ResultsDirectory.resume(path) as results:
        results.append(record(8))
    assert ResultsDirectory.open_readonly(path).records() == [record(8)]

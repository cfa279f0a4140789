"""Seconds of cores: a planted process that works a known share of the time is found again."""

import os
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from raybench.machine import host
from tests.support.working import WORKS, scheduled_s

pytestmark = pytest.mark.alone

SECONDS, TICKS_S = 1.5, 0.05


@pytest.fixture(scope="module")
def process():
    """One that wants a core all the time."""
    with subprocess.Popen([sys.executable, "-c", WORKS]) as working:
        yield working
        working.kill()


def test_a_process_that_works_is_in_the_sum(process):
    time.sleep(0.3)
    busy_before = host.busy_core_seconds()
    own_before = host.own_core_seconds(with_children=False)
    with_children = host.own_core_seconds(with_children=True)
    begun = scheduled_s(process.pid)
    time.sleep(SECONDS)
    least = scheduled_s(process.pid) - begun
    own = host.own_core_seconds(with_children=False) - own_before
    with_children = host.own_core_seconds(with_children=True) - with_children
    busy = host.busy_core_seconds()
    assert busy is not None
    assert busy_before is not None
    # a busy machine gives it less than it asks for; user and system time are told in ticks of 0.01 s
    assert busy - busy_before > least - TICKS_S
    assert with_children - own > least - TICKS_S


def test_a_child_that_has_ended_stays_in_the_sum():
    """As the processes of a script's loader, which a child of the rank starts anew in each epoch."""
    works = "import time\nwhile time.process_time() < 0.3: pass"
    program = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {works!r}]); input()"
    with subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE) as starts:
        before = host.own_core_seconds(with_children=True)
        while not psutil.Process(starts.pid).cpu_times().children_user:
            time.sleep(0.05)
        alive = host.own_core_seconds(with_children=True)
    ended = host.own_core_seconds(with_children=True)
    assert alive - before > 0.3 - TICKS_S
    assert ended >= alive


V1, V2 = Path("/sys/fs/cgroup/cpu"), Path("/sys/fs/cgroup")


@pytest.fixture
def group(process):
    """The process in a control group with a quota of 0.2 cores, by either version of the interface."""
    is_v1 = (V1 / "cpu.stat").exists()
    folder = (V1 if is_v1 else V2) / f"raybench-test-{os.getpid()}"
    try:
        folder.mkdir()
        quota = {"cpu.cfs_quota_us": "20000"} if is_v1 else {"cpu.max": "20000 100000"}
        for name, text in (quota | {"cgroup.procs": str(process.pid)}).items():
            (folder / name).write_text(text)
    except OSError:
        pytest.skip("no control group of one's own")
    yield folder
    process.kill()
    process.wait()
    folder.rmdir()


def test_a_process_with_a_fifth_of_the_core_that_it_wants_uses_up_its_quota(group, monkeypatch):
    monkeypatch.setattr(host, "control_group_folders", lambda controller: iter([group]))
    time.sleep(0.2)
    periods = host.quota_periods()
    time.sleep(1.0)
    share = host.quota_used_up(periods)
    assert share is not None
    assert share > 0.8

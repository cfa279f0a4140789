"""What doctor says of machines that lack this and that, and how it says it."""

import io
import os
import random
import resource
import shutil
import sys
from collections import namedtuple

from rich.console import Console

from raybench.commands import doctor
from raybench.commands.doctor import examine, render
from raybench.machine import checks
from raybench.machine import host as machine
from raybench.machine.checks import Check, all_reduce_words, median_interval
from raybench.machine.host import Gpu, Graphics

Usage = namedtuple("Usage", "total used free")
GPU = Gpu(name="H200", memory_bytes=141 * 2**30, pci_bus_id="0000:01:00.0", power_limit_watts=700)


def printed(found, width=80):
    out = io.StringIO()
    render(found, Console(file=out, width=width))
    return out.getvalue()


def one(look):
    (found,) = look()
    return found


def test_this_machine_is_examined_and_two_workers_all_reduce():
    found = examine()
    assert {"Python", "packages", "devices", "peer-to-peer", "busy", "gloo interface", "NCCL interface"} < {
        each.name for each in found
    }
    assert {"memory", "shared memory", "disk (here)", "disk (temp)", "open files", "Ray"} < {
        each.name for each in found
    }
    assert [each for each in found if each.status == "missing"] == []
    last = found[-1]
    assert last.name == "all-reduce"
    assert "2 workers, gloo, 16 MiB: median" in last.found or "nccl" in last.found
    assert "n = 20" in last.found


def test_a_check_that_fails_hides_no_other(monkeypatch):
    def broken():
        raise OSError("no /proc here")
        yield

    monkeypatch.setattr(checks, "memory", broken)
    found = examine(all_reduce=False)
    assert Check("memory", "warning", "could not be examined: OSError: no /proc here") in found
    assert found[-1].name == "Ray"


# --- how it is shown


CHECKS = [
    Check("Python", "ok", "3.12.1"),
    Check(
        "shared memory",
        "warning",
        "64 MiB free of 64 MiB " + "and more words " * 10,
        "docker run " + "--long " * 20,
    ),
    Check("packages", "missing", "ray: [not installed]", 'python -m pip install "ray[default]>=2.55"'),
]


def test_lines_fit_80_columns_and_commands_stay_whole():
    text = printed(CHECKS)
    lines = text.splitlines()
    assert lines[0] == "ok       Python         3.12.1"
    assert any(line.strip() == "-> " + ("docker run " + "--long " * 20).strip() for line in lines)
    assert all(len(line) <= 80 for line in lines if "->" not in line)
    assert all(line == line.rstrip() for line in lines if "->" not in line)
    assert "ray: [not installed]" in text
    assert '-> python -m pip install "ray[default]>=2.55"' in text
    assert lines[-1] == "1 ok, 1 warning, 1 missing"
    assert "\x1b" not in text


def test_nothing_to_mend_is_said_of_what_is_well():
    assert "->" not in printed([Check("Python", "ok", "3.12", "do this")])
    assert printed([]) == "0 ok\n"


# --- what is missing


def test_packages_that_are_missing_or_too_old(monkeypatch):
    from packaging.requirements import Requirement

    wanted = [Requirement("torch>=2.11"), Requirement("raybench-none[x]>=3"), Requirement("rich>=999")]
    monkeypatch.setattr(checks, "_requirements", lambda: wanted)
    good, absent, old = checks.packages()
    assert good.status == "ok"
    assert good.found.startswith("torch ")
    assert absent == Check(
        "packages", "missing", "raybench-none: not installed", 'python -m pip install "raybench-none[x]>=3"'
    )
    assert "needs >=999" in old.found


def test_the_lower_bounds_are_known():
    names = {requirement.name for requirement in checks._requirements()}
    assert {"torch", "ray", "optuna", "pydantic"} <= names
    assert "pytest" not in names


def test_another_python(monkeypatch):
    monkeypatch.setattr(checks, "_python_wanted", lambda: ">=3.99")
    assert one(checks.python).status == "missing"


def test_gpus_without_peer_to_peer(monkeypatch):
    graphics = Graphics(
        gpus=(GPU, GPU),
        links=(("X", "SYS"), ("SYS", "X")),
        peer_to_peer=((None, False), (False, None)),
        driver_version="570",
        cuda_version="12.8",
        processes=((os.getpid(), 1),),
    )
    monkeypatch.setattr(machine, "graphics", lambda: graphics)
    found = one(checks.topology)
    assert found.status == "warning"
    assert found.found == "SYS: 0-1; no peer-to-peer between 0-1: transfers go through main memory"
    assert any("GPU 1: H200, 141 GiB, 0000:01:00.0, limit 700 W" in each.found for each in checks.devices())
    assert any(
        f"process {os.getpid()}" in each.found and "is on GPU 1" in each.found for each in checks.busy()
    )


def test_a_torch_without_cuda(monkeypatch):
    monkeypatch.setattr(machine, "graphics", lambda: Graphics(gpus=(GPU,)))
    monkeypatch.setattr(checks, "_installed", lambda name: "2.14.1+cpu")
    assert list(checks.devices())[-1].found == "this torch is built without CUDA"


def test_a_busy_machine(monkeypatch):
    monkeypatch.setattr(checks.os, "getloadavg", lambda: (50.0, 0.0, 0.0))
    assert next(iter(checks.busy())).status == "warning"


def test_interfaces_that_do_not_exist(monkeypatch):
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "eth77")
    monkeypatch.setenv("NCCL_SOCKET_IFNAME", "=ib77")
    gloo, nccl = checks.network()
    assert (gloo.status, gloo.mend) == ("missing", "unset GLOO_SOCKET_IFNAME")
    assert gloo.found.startswith("GLOO_SOCKET_IFNAME=eth77: no such interface, there are ")
    assert nccl.status == "missing"


def test_too_little_of_everything(monkeypatch):
    monkeypatch.setattr(checks, "_WORKER_BYTES", 2**60)
    assert one(checks.memory).status == "warning"
    monkeypatch.setattr(shutil, "disk_usage", lambda path: Usage(64 * 2**20, 0, 64 * 2**20))
    assert one(checks.shared_memory).status == "warning"
    assert [each.status for each in checks.disks()] == ["warning", "warning"]
    monkeypatch.setattr(resource, "getrlimit", lambda what: (1024, 4096))
    assert one(checks.open_files) == Check(
        "open files",
        "warning",
        "at most 1024 in a process, Ray needs some thousands with many workers",
        "ulimit -n 4096",
    )


def test_the_container_limit_is_told(monkeypatch):
    monkeypatch.setattr(machine, "memory_limit_bytes", lambda: 512 * 2**20)
    found = one(checks.memory)
    assert "the container's limit is 512 MiB" in found.found
    assert found.status == "warning"


def test_rays_token_is_found_but_never_shown(monkeypatch, tmp_path):
    token = tmp_path / "token"
    token.write_text("s3cr3t")
    monkeypatch.setenv("RAY_ADDRESS", "ray://me:s3cr3t@head:10001")
    monkeypatch.setenv("RAY_AUTH_MODE", "token")
    monkeypatch.setenv("RAY_AUTH_TOKEN_PATH", str(token))
    monkeypatch.delenv("RAY_AUTH_TOKEN", raising=False)
    text = printed(list(checks.ray()), width=200)
    assert "RAY_ADDRESS ray://...@head:10001" in text
    assert f"RAY_AUTH_MODE=token, the token is in {token}" in text
    assert "s3cr3t" not in text
    token.unlink()
    assert list(checks.ray())[-1].mend == "ray get-auth-token --generate"
    monkeypatch.setenv("RAY_AUTH_TOKEN", "s3cr3t")
    assert "s3cr3t" not in printed(list(checks.ray()), width=200)


# --- the all-reduce


def _self_test_that(monkeypatch, code):
    popen = checks.subprocess.Popen

    def instead(command, **options):
        return popen([sys.executable, "-c", code], **options)

    monkeypatch.setattr(checks.subprocess, "Popen", instead)


def test_workers_that_hang_are_ended(monkeypatch):
    _self_test_that(monkeypatch, "import time; time.sleep(60)")
    monkeypatch.setattr(checks, "ALL_REDUCE_TIMEOUT_S", 0.5)
    found = one(checks.all_reduce)
    assert found.status == "missing"
    assert "did not finish" in found.found


def test_workers_that_fail_say_why(monkeypatch):
    _self_test_that(monkeypatch, "raise SystemExit('no route to host')")
    found = one(checks.all_reduce)
    assert found.found == "two workers failed with code 1: no route to host"


def test_the_words_of_an_all_reduce():
    words = all_reduce_words("gloo", 16 * 2**20, [0.01] * 19 + [0.02])
    assert (
        words == "2 workers, gloo, 16 MiB: median 10.00 ms [10.00, 10.00], n = 20; 1.68 GB/s of bus bandwidth"
    )


def test_the_interval_of_a_median():
    assert median_interval([float(i) for i in range(20)]) == (5.0, 14.0)  # tables: ranks 6 and 15
    assert median_interval([float(i) for i in range(10)]) == (1.0, 8.0)  # ranks 2 and 9
    assert median_interval([3.0, 1.0, 2.0]) == (1.0, 3.0)
    assert median_interval([1.0]) == (1.0, 1.0)
    rng = random.Random(0)
    hits = 0
    for _ in range(2000):
        low, high = median_interval([rng.expovariate(1) for _ in range(20)])
        hits += low <= 0.6931 <= high
    assert 0.94 <= hits / 2000 <= 0.98


def test_examine_without_the_workers_is_quick():
    assert all(each.name != "all-reduce" for each in doctor.examine(all_reduce=False))

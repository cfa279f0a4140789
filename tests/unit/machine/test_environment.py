"""What is told of a machine, what never is, and when two of them compare."""

import json
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

import raybench
from raybench.machine import environment
from raybench.machine import host as machine
from raybench.machine.environment import Environment, Gpu, capture, differences
from tests.conftest import ROOT


def an_environment(**changes):
    plain = {
        "hostname": "a",
        "os": "Linux",
        "kernel": "6.1",
        "cpu_model": "CPU",
        "cores": 4,
        "usable_cores": 4,
        "memory_bytes": 8 * 2**30,
        "python": "3.12.1",
        "packages": {"torch": "2.14.1"},
        "gpus": [{"name": "V100", "memory_bytes": 16 * 2**30, "power_limit_watts": 300.0, "pci_bus_id": "1"}],
    }
    return Environment.model_validate(plain | changes)


def test_capture_is_quick_and_survives_json():
    began = time.perf_counter()
    found = capture()
    assert time.perf_counter() - began < 2  # 30 ms here; a busy machine has more
    assert Environment.model_validate_json(found.model_dump_json()) == found
    assert 1 <= found.usable_cores <= found.cores
    assert found.memory_bytes > 2**28
    assert found.packages["raybench"] == raybench.__version__
    assert {"torch", "ray", "numpy"} <= set(found.packages)
    assert differences(found, found) == []


def test_capture_imports_neither_torch_nor_ray():
    code = (
        "import sys; from raybench.machine.environment import capture; capture();"
        "print([m for m in ('torch', 'ray', 'pandas', 'numpy') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("model", [Environment, Gpu])
def test_every_field_has_a_meaning(model):
    assert [name for name, field in model.model_fields.items() if not field.description] == []


# --- secrets


SECRETS = {
    "RAY_AUTH_TOKEN": "s3cr3t",
    "RAY_AUTH_TOKEN_PATH": "/s3cr3t",
    "RAY_REDIS_PASSWORD": "s3cr3t",
    "CUDA_API_KEY": "s3cr3t",
    "NCCL_SECRET": "s3cr3t",
    "TORCH_credential": "s3cr3t",
    "SLURM_JWT_Token": "s3cr3t",
    "RAY_JOB_CONFIG_JSON_ENV_VAR": '{"env_vars": {"WANDB": "s3cr3t"}}',
    "RAY_ADDRESS": "ray://me:s3cr3t@head:10001",
    "RAY_OTHER": "http://head/?token=s3cr3t",
    "AWS_ACCESS_KEY_ID": "s3cr3t",
    "HF_TOKEN": "s3cr3t",
    "HOME": "/s3cr3t",
}
TOLD = {
    "NCCL_ALGO": "Ring",
    "OMP_NUM_THREADS": "1",
    "RAY_AUTH_MODE": "token",
    "RAY_TMPDIR": "/tmp",
    "SLURM_JOB_ID": "7",
}


def test_no_secret_is_ever_captured(monkeypatch):
    for name, value in {**SECRETS, **TOLD}.items():
        monkeypatch.setenv(name, value)
    found = capture()
    assert "s3cr3t" not in found.model_dump_json()
    assert TOLD.items() <= found.variables.items()
    assert not SECRETS.keys() & found.variables.keys()


# --- comparing


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({"cpu_model": "CPU 2"}, "cpu_model: CPU before, CPU 2 now"),
        ({"usable_cores": 2}, "usable_cores: 4 before, 2 now"),
        ({"governor": "powersave"}, "governor: none before, powersave now"),
        ({"python": "3.13.0"}, "python: 3.12.1 before, 3.13.0 now"),
        ({"packages": {"torch": "2.15.0"}}, "packages.torch: 2.14.1 before, 2.15.0 now"),
        ({"packages": {}}, "packages.torch: 2.14.1 before, none now"),
        ({"memory_bytes": 4 * 2**30}, f"memory_bytes: {8 * 2**30} before, {4 * 2**30} now"),
        ({"driver_version": "560.1"}, "driver_version: none before, 560.1 now"),
        ({"variables": {"NCCL_ALGO": "Ring"}}, "variables.NCCL_ALGO: none before, Ring now"),
        (
            {"gpus": [{"name": "A100", "memory_bytes": 16 * 2**30, "power_limit_watts": 300.0}]},
            "gpus[0].name: V100 before, A100 now",
        ),
        (
            {"gpus": [{"name": "V100", "memory_bytes": 16 * 2**30, "power_limit_watts": 250.0}]},
            "gpus[0].power_limit_watts: 300.0 before, 250.0 now",
        ),
        ({"gpu_links": [["X", "NV4"], ["NV4", "X"]]}, "gpu_links[0]: none before, X NV4 now"),
    ],
)
def test_what_makes_two_incomparable_is_named(changes, line):
    assert line in differences(an_environment(), an_environment(**changes))


@pytest.mark.parametrize(
    "changes",
    [
        {"hostname": "b"},
        {"load_average": 3.0},
        {"clock_mhz": 999.0},
        {"kernel": "6.2"},
        {"memory_bytes": 8 * 2**30 - 10 * 2**20},
        {
            "variables": {
                "RAY_ADDRESS": "auto",
                "SLURM_JOB_ID": "8",
                "CUDA_VISIBLE_DEVICES": "1",
                "NCCL_DEBUG": "INFO",
            }
        },
        {
            "gpus": [
                {
                    "name": "V100",
                    "memory_bytes": 16 * 2**30,
                    "power_limit_watts": 300.0,
                    "uuid": "x",
                    "clock_mhz": 3,
                }
            ]
        },
    ],
)
def test_what_may_change(changes):
    assert differences(an_environment(), an_environment(**changes)) == []


def test_another_commit_is_a_warning():
    before, now = an_environment(commit="a"), an_environment(commit="b", kernel="7")
    assert differences(before, now) == []
    assert environment.warnings(before, now) == ["commit: a before, b now", "kernel: 6.1 before, 7 now"]
    assert environment.warnings(an_environment(commit="a", dirty=True), an_environment(commit="a")) != []
    assert environment.warnings(before, before) == []


def test_fields_of_a_later_version_are_ignored():
    assert Environment.model_validate({**an_environment().model_dump(), "later": 1}) == an_environment()


# --- cores and memory of a container


@pytest.fixture
def cgroup(tmp_path, monkeypatch):
    def lay(files, line="0::/a/b"):
        for name, text in files.items():
            file = tmp_path / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text + "\n")
        read = machine._read
        fake = {Path("/proc/self/cgroup"): line}
        monkeypatch.setattr(machine, "_CGROUPS", tmp_path)
        monkeypatch.setattr(machine, "_read", lambda path: fake[path] if path in fake else read(path))
        monkeypatch.setattr(machine.os, "sched_getaffinity", lambda _: set(range(8)))

    return lay


@pytest.mark.parametrize(
    ("files", "line", "cores"),
    [
        ({}, "0::/a/b", 8),
        ({"a/b/cpu.max": "max 100000"}, "0::/a/b", 8),
        ({"a/b/cpu.max": "250000 100000"}, "0::/a/b", 2),
        ({"a/cpu.max": "300000 100000", "a/b/cpu.max": "max 100000"}, "0::/a/b", 3),
        ({"cpu.max": "150000 100000"}, "0::/", 1),
        ({"a/b/cpu.max": "50000 100000"}, "0::/a/b", 1),
        ({"cpu,io/x/cpu.cfs_quota_us": "400000", "cpu,io/x/cpu.cfs_period_us": "100000"}, "3:cpu,io:/x", 4),
        ({"cpu/x/cpu.cfs_quota_us": "-1", "cpu/x/cpu.cfs_period_us": "100000"}, "3:cpu:/x", 8),
    ],
)  # fmt: skip
def test_usable_cores_respect_the_quota(cgroup, files, line, cores):
    cgroup(files, line)
    assert machine.usable_cores() == cores


def test_memory_limit_of_a_container(cgroup):
    cgroup({"a/b/memory.max": "max", "a/memory.max": "1048576"})
    assert machine.memory_limit_bytes() == 1048576


def test_no_memory_limit(cgroup):
    cgroup({"memory/x/memory.limit_in_bytes": "9223372036854771712"}, "4:memory:/x")
    assert machine.memory_limit_bytes() is None


def test_available_memory_is_the_containers_where_it_has_less_than_the_host(cgroup, monkeypatch):
    host = machine.psutil.virtual_memory().available
    monkeypatch.setattr(machine.psutil, "virtual_memory", lambda: SimpleNamespace(available=host))
    cgroup({"memory.max": "max", "memory.current": "5"})
    assert machine.available_memory_bytes() == host
    cgroup(
        {
            "a/memory.max": "1048576",
            "a/memory.current": "1000000",
            "a/memory.stat": "anon 7\ninactive_file 500000",
        }
    )
    assert machine.available_memory_bytes() == 1048576 - 1000000 + 500000
    cgroup({"a/b/memory.max": "4096", "a/b/memory.current": "5000"})
    assert machine.available_memory_bytes() == 0


def test_available_memory_in_the_older_control_groups(cgroup):
    files = {
        "memory/x/memory.limit_in_bytes": "2097152",
        "memory/x/memory.usage_in_bytes": "1048576",
        "memory/x/memory.stat": "total_inactive_file 4096",
    }
    cgroup(files, "4:memory:/x")
    assert machine.available_memory_bytes() == 1048576 + 4096


# --- network interfaces


@pytest.fixture
def network(monkeypatch):
    def lay(addresses, hostname_leads_to="10.0.0.1"):
        monkeypatch.setattr(machine, "interfaces", lambda: addresses)
        found = [(None, None, None, "", (hostname_leads_to, 0))]
        monkeypatch.setattr(machine.socket, "getaddrinfo", lambda *_: found)
        monkeypatch.delenv("GLOO_SOCKET_IFNAME", raising=False)
        monkeypatch.delenv("NCCL_SOCKET_IFNAME", raising=False)

    return lay


EVERY = {
    "lo": "127.0.0.1",
    "docker0": "172.17.0.1",
    "eth0": "10.0.0.1",
    "eth1": "10.1.0.1",
    "ib0": "10.2.0.1",
}


def test_gloo_takes_where_the_hostname_leads(network, monkeypatch):
    network(EVERY)
    assert machine.network_interface() == ("eth0", "10.0.0.1")
    network(EVERY, "127.0.1.1")
    assert machine.network_interface() == ("lo", "127.0.0.1")
    network(EVERY, "192.168.9.9")
    assert machine.network_interface() == ("lo", "127.0.0.1")
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "eth1")
    assert machine.network_interface() == ("eth1", "10.1.0.1")
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "eth7")
    assert machine.network_interface() == ("eth7", "")
    network({})
    assert machine.network_interface() is None


def test_nccl_takes_infiniband_then_what_is_neither_docker_nor_loopback(network):
    left = dict(EVERY)
    network(left)
    for name in ("ib0", "eth0", "eth1", "docker0", "lo"):
        assert machine.nccl_interface() == (name, EVERY[name])
        del left[name]
    assert machine.nccl_interface() is None


@pytest.mark.parametrize(
    ("wanted", "name"),
    [
        ("eth", "eth0"),
        ("=eth1", "eth1"),
        ("=eth", ""),
        ("^ib,docker,lo", "eth0"),
        ("^=lo,docker0,eth0", "eth1"),
        ("ens", ""),
    ],
)
def test_nccl_interface_by_name(network, monkeypatch, wanted, name):
    network(EVERY)
    monkeypatch.setenv("NCCL_SOCKET_IFNAME", wanted)
    assert machine.nccl_interface() == ((name, EVERY[name]) if name else (wanted, ""))


def test_the_interfaces_of_this_machine():
    found = machine.interfaces()
    assert all(found.values())


# --- GPUs, with a driver of paper


def paper_driver(**changes):
    """As much of pynvml as is used: two GPUs with two NVLinks between them, and a third without."""

    def unsupported(*_):
        raise RuntimeError("not supported")

    def bus(handle):
        return SimpleNamespace(busId=f"0000:0{handle[-1]}:00.0".encode())

    def memory(handle):
        return SimpleNamespace(total=150 * 10**9)

    answers = {
        "NVML_CLOCK_SM": 1,
        "NVML_CLOCK_MEM": 2,
        "NVML_NVLINK_MAX_LINKS": 4,
        "nvmlInit": lambda: None,
        "nvmlShutdown": lambda: None,
        "nvmlSystemGetDriverVersion": lambda: "570.1",
        "nvmlSystemGetCudaDriverVersion_v2": lambda: 12080,
        "nvmlDeviceGetCount": lambda: 3,
        "nvmlDeviceGetHandleByIndex": lambda index: f"gpu{index}",
        "nvmlDeviceGetUUID": lambda handle: f"GPU-{handle[-1]}abc",
        "nvmlDeviceGetName": lambda handle: "H200",
        "nvmlDeviceGetMemoryInfo": memory,
        "nvmlDeviceGetPciInfo": bus,
        "nvmlDeviceGetPowerManagementLimit": lambda handle: 700000,
        "nvmlDeviceGetMaxClockInfo": lambda handle, kind: 1980 if kind == 1 else 3201,
        "nvmlDeviceGetClockInfo": lambda handle, kind: 345,
        "nvmlDeviceGetMaxPcieLinkGeneration": lambda handle: 5,
        "nvmlDeviceGetMaxPcieLinkWidth": unsupported,
        "nvmlDeviceGetComputeRunningProcesses": lambda handle: [SimpleNamespace(pid=7)] * (handle == "gpu1"),
        "nvmlDeviceGetTopologyCommonAncestor": lambda a, b: 50,
        "nvmlDeviceGetP2PStatus": lambda a, b, index: 0 if {a, b} == {"gpu0", "gpu1"} else 4,
        "nvmlDeviceGetNvLinkState": lambda handle, link: handle != "gpu2" and link < 2,
        "nvmlDeviceGetNvLinkRemotePciInfo": lambda handle, link: bus("gpu1" if handle == "gpu0" else "gpu0"),
    }
    return SimpleNamespace(**answers | changes)


@pytest.fixture
def paper(monkeypatch):
    monkeypatch.setitem(sys.modules, "pynvml", paper_driver())
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)


def test_gpus_their_links_and_what_they_do_not_tell(paper):
    found = machine.graphics()
    assert found.gpus[0].name == "H200"
    assert found.gpus[0].power_limit_watts == 700
    assert (found.gpus[0].max_clock_mhz, found.gpus[0].max_memory_clock_mhz) == (1980, 3201)
    assert found.gpus[0].pcie_width is None
    assert found.links == (("X", "NV2", "SYS"), ("NV2", "X", "SYS"), ("SYS", "SYS", "X"))
    assert found.peer_to_peer == ((None, True, False), (True, None, False), (False, False, None))
    assert (found.driver_version, found.cuda_version) == ("570.1", "12.8")
    assert found.processes == ((7, 1),)
    assert len(capture().gpus) == 3
    assert json.loads(capture().model_dump_json())["gpu_links"][0] == ["X", "NV2", "SYS"]


@pytest.mark.parametrize(
    ("visible", "num"),
    [
        ("", 0),
        ("-1", 0),
        ("0", 1),
        ("2,0", 2),
        ("0,9,1", 1),
        ("GPU-1", 1),
        ("GPU-2abc,0", 2),
        ("0,0", 1),
        ("GPU-", 0),
    ],
)
def test_only_the_visible_gpus_count(paper, monkeypatch, visible, num):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert len(machine.gpu_names()) == num


def test_no_driver_is_no_gpu(monkeypatch):
    def lost(handle):
        raise RuntimeError("GPU is lost")

    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setitem(sys.modules, "pynvml", paper_driver(nvmlDeviceGetMemoryInfo=lost))
    assert machine.graphics() == machine.Graphics()
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert machine.graphics() == machine.Graphics()

"""GPUs as a driver of paper describes them."""

import json
import re
import sys
from importlib import metadata
from types import SimpleNamespace

import pytest

from raybench.errors import RequestError
from raybench.launch.cluster import Cluster
from raybench.machine import checks, gpus, host
from raybench.machine.environment import capture
from raybench.machine.host import WorkerNeeds


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
        "nvmlDeviceGetCudaComputeCapability": lambda handle: [9, 0],
        "nvmlDeviceGetMemoryInfo": memory,
        "nvmlDeviceGetPciInfo": bus,
        "nvmlDeviceGetPowerManagementLimit": lambda handle: 700000,
        "nvmlDeviceGetMaxClockInfo": lambda handle, kind: 1980 if kind == 1 else 3201,
        "nvmlDeviceGetClockInfo": lambda handle, kind: 345,
        "nvmlDeviceGetMaxPcieLinkGeneration": lambda handle: 5,
        "nvmlDeviceGetMaxPcieLinkWidth": unsupported,
        "nvmlDeviceGetComputeMode": lambda handle: 3 if handle == "gpu2" else 0,
        "nvmlDeviceGetMigMode": unsupported,
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


def test_gpus_their_links_and_what_they_do_not_tell(paper, monkeypatch):
    found = gpus.graphics()
    assert found.gpus[0].name == "H200"
    assert found.gpus[0].compute_capability == "9.0"
    assert found.gpus[0].power_limit_watts == 700
    assert (found.gpus[0].max_clock_mhz, found.gpus[0].max_memory_clock_mhz) == (1980, 3201)
    assert found.gpus[0].pcie_width is None
    assert [gpu.is_exclusive for gpu in found.gpus] == [False, False, True]
    assert found.gpu_links == (("X", "NV2", "SYS"), ("NV2", "X", "SYS"), ("SYS", "SYS", "X"))
    assert found.peer_to_peer == ((None, True, False), (True, None, False), (False, False, None))
    assert (found.driver_version, found.cuda_version) == ("570.1", "12.8")
    assert len(capture().gpus) == 3
    assert json.loads(capture().model_dump_json())["gpu_links"][0] == ["X", "NV2", "SYS"]


def plant_nodes(folder, monkeypatch, gpu_nodes, cores):
    """GPUs by PCI address and nodes with their cores, as the kernel's files have them."""
    for place, node in gpu_nodes.items():
        (folder / "pci" / place).mkdir(parents=True)
        (folder / "pci" / place / "numa_node").write_text(f"{node}\n")
    for node, each in enumerate(cores):
        (folder / f"node{node}").mkdir()
        (folder / f"node{node}" / "cpulist").write_text(f"{each}\n")
    monkeypatch.setattr(gpus, "PCI_DEVICES", folder / "pci")
    monkeypatch.setattr(host, "NODES", folder)
    monkeypatch.setattr(gpus, "allowed_cores", lambda: (0, 1, 66))


def test_cores_near_a_gpu_are_those_of_its_numa_node(paper, monkeypatch, tmp_path):
    places = {"0000:00:00.0": 0, "0000:01:00.0": 1, "0000:02:00.0": -1, "0000:3b:00.0": 2}
    plant_nodes(tmp_path, monkeypatch, places, ["0-31,64-95", "32-63,96-127", ""])
    assert [gpu.cores_near for gpu in gpus.graphics().gpus] == [3, 0, None]
    assert gpus.cores_near("00000000:01:00.0") == (1, 0)
    assert gpus.cores_near("00000000:3B:00.0") is None  # a node of memory alone
    assert gpus.cores_near("") is None


def test_of_one_numa_node_there_is_nothing_to_say(monkeypatch, tmp_path):
    plant_nodes(tmp_path, monkeypatch, {"0000:01:00.0": 0}, ["0-127"])
    assert gpus.cores_near("0000:01:00.0") is None


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
    assert len(gpus.gpu_names()) == num


@pytest.mark.parametrize(
    ("visible", "version", "line"),
    [
        ("0,MIG-f2", "2.14.1", "CUDA_VISIBLE_DEVICES: whole GPUs, and no slices of one (received 'MIG-f2')"),
        ("0,1", "2.14.1+rocm7.1", 'torch: built for CUDA, or device = "cpu": AMD is not measured yet'),
        ("0,1", "2.14.1+cu130", None),
    ],
)
def test_slices_of_a_gpu_and_amds_are_refused_and_no_study_on_cores_instead(
    monkeypatch, visible, version, line
):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    monkeypatch.setattr(metadata, "version", lambda name: version)
    monkeypatch.setattr(gpus, "gpu_names", list)
    cluster = Cluster()
    if line is None:
        assert gpus.unsupported() is None
        assert cluster.device_kind() == "cpu"
        return
    for ask in (cluster.device_kind, lambda: cluster.resources(WorkerNeeds("cuda", 1))):
        with pytest.raises(RequestError, match=re.escape(line)):
            ask()
    assert cluster.resources(WorkerNeeds("cpu", 1)).device == "cpu"
    assert line in next(each.found for each in checks.devices() if each.status == "missing")


def test_a_gpu_that_mig_divides_is_refused_and_not_taken_for_none(paper, monkeypatch):
    """Of such a one the driver tells the memory to root alone."""

    def refuses(handle):
        raise RuntimeError("insufficient permissions")

    divided = {
        "nvmlDeviceGetMigMode": lambda handle: [int(handle == "gpu1"), 0],
        "nvmlDeviceGetMemoryInfo": refuses,
    }
    assert gpus.unsupported() is None
    monkeypatch.setitem(sys.modules, "pynvml", paper_driver(**divided))
    assert [gpu.is_sliced for gpu in gpus.graphics().gpus] == [False, True, False]
    assert [gpu.memory_bytes for gpu in gpus.graphics().gpus] == [None] * 3
    with pytest.raises(RequestError, match="with MIG off"):
        Cluster().device_kind()
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,2")
    assert gpus.unsupported() is None
    assert any("GPU 0: H200, memory unknown" in each.found for each in checks.devices())


@pytest.mark.parametrize(
    ("visible", "files", "is_refused"),
    [
        (None, ["nvidia0"], True),
        ("0", ["nvidia3", "nvidiactl"], True),  # Slurm sets it whatever the container has
        ("", ["nvidia0"], False),
        ("-1", ["nvidia0"], False),
        ("NoDevFiles", ["nvidia0"], False),
        ("0", ["nvidiactl"], False),
    ],
)
def test_a_gpu_whose_driver_is_silent_is_refused_and_not_taken_for_none(
    monkeypatch, tmp_path, visible, files, is_refused
):
    for name in files:
        (tmp_path / name).touch()
    monkeypatch.setattr(gpus, "DEVICE_FILES", tmp_path)
    monkeypatch.setitem(sys.modules, "pynvml", None)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert ("missing" in {each.status for each in checks.devices()}) is is_refused
    assert any("no GPU visible" in each.found for each in checks.devices()) is not is_refused
    if is_refused:
        with pytest.raises(RequestError, match="driver"):
            Cluster().device_kind()
    else:
        assert Cluster().device_kind() == "cpu"


def test_a_visible_list_without_a_gpu_is_no_silent_driver(paper, monkeypatch, tmp_path):
    (tmp_path / "nvidia0").touch()
    monkeypatch.setattr(gpus, "DEVICE_FILES", tmp_path)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "9")
    assert gpus.unsupported() is None


def test_no_driver_is_no_gpu(monkeypatch):
    def lost(handle):
        raise RuntimeError("GPU is lost")

    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setitem(sys.modules, "pynvml", paper_driver(nvmlDeviceGetName=lost))
    assert gpus.graphics() == gpus.Graphics()
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert gpus.graphics() == gpus.Graphics()

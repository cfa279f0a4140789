"""GPUs without peer-to-peer, a torch without CUDA."""

import pytest

from raybench.machine import checks, gpus, host
from raybench.machine.gpus import Gpu, Graphics

GPU = Gpu(name="H200", memory_bytes=141 * 2**30, pci_bus_id="0000:01:00.0", power_limit_watts=700)


def test_gpus_without_peer_to_peer(monkeypatch):
    graphics = Graphics(
        gpus=(GPU, GPU),
        gpu_links=(("X", "SYS"), ("SYS", "X")),
        peer_to_peer=((None, False), (False, None)),
        driver_version="570",
        cuda_version="12.8",
    )
    monkeypatch.setattr(gpus, "graphics", lambda: graphics)
    (found,) = checks.topology()
    assert found.status == "warning"
    assert found.found == "SYS: 0-1; no peer-to-peer between 0-1: transfers go through main memory"
    assert any("GPU 1: H200, 141.0 GiB, 0000:01:00.0, limit 700 W" in each.found for each in checks.devices())


def test_without_gpus_nothing_reads_the_memory_of_another(monkeypatch):
    monkeypatch.setattr(gpus, "graphics", Graphics)
    assert list(checks.topology()) == []


def test_a_torch_without_cuda(monkeypatch):
    monkeypatch.setattr(gpus, "graphics", lambda: Graphics(gpus=(GPU,)))
    monkeypatch.setattr(host, "installed_version", lambda name: "2.14.1+cpu")
    assert list(checks.devices())[-1].found == "this torch is built without CUDA"


def test_a_gpu_far_from_all_cores(monkeypatch):
    far, near = (GPU.model_copy(update={"cores_near": cores}) for cores in (0, 4))
    monkeypatch.setattr(gpus, "graphics", lambda: Graphics(gpus=(near, far, GPU)))
    (found,) = (each for each in checks.devices() if "far from" in each.found)
    assert found.status == "warning"
    assert found.found.startswith("GPU 1 ")


def test_a_gpu_for_one_process_alone(monkeypatch):
    exclusive = GPU.model_copy(update={"is_exclusive": True})
    monkeypatch.setattr(gpus, "graphics", lambda: Graphics(gpus=(GPU, exclusive)))
    (found,) = (each for each in checks.devices() if each.mend and "nvidia-smi" in each.mend)
    assert (found.status, found.mend) == ("warning", "sudo nvidia-smi -i 1 -c DEFAULT")
    assert "script" in found.found


@pytest.mark.parametrize(
    ("capability", "runs"), [("7.0", False), ("7.5", True), ("8.9", True), ("10.3", True), ("12.1", True)]
)
def test_a_gpu_for_which_torch_has_no_kernels(monkeypatch, capability, runs):
    gpu = GPU.model_copy(update={"compute_capability": capability})
    monkeypatch.setattr(gpus, "graphics", lambda: Graphics(gpus=(gpu,)))
    compiled = ["sm_75", "sm_80", "sm_86", "sm_90a", "sm_100", "compute_120"]
    monkeypatch.setattr(checks, "torch_architectures", lambda: compiled)
    found = [each for each in checks.devices() if "compute capability" in each.found]
    assert not found if runs else found[0].status == "missing"


def test_a_torch_that_names_no_kernels_is_not_held_against_a_gpu(monkeypatch):
    gpu = GPU.model_copy(update={"compute_capability": "9.0"})
    monkeypatch.setattr(gpus, "graphics", lambda: Graphics(gpus=(gpu,)))
    monkeypatch.setattr(checks, "torch_architectures", list)
    assert not any("compute capability" in each.found for each in checks.devices())

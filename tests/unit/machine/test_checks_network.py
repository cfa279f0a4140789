"""Interfaces that are named and not there."""

from raybench.machine import checks, gpus
from raybench.machine.gpus import Gpu, Graphics

GPU = Gpu(name="H200", memory_bytes=141 * 2**30, pci_bus_id="0000:01:00.0", power_limit_watts=700)


def test_interfaces_that_do_not_exist(monkeypatch):
    monkeypatch.setattr(gpus, "graphics", lambda: Graphics(gpus=(GPU,)))
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "eth77")
    monkeypatch.setenv("NCCL_SOCKET_IFNAME", "=ib77")
    gloo, nccl = checks.network()
    assert (gloo.status, gloo.mend) == ("missing", "unset GLOO_SOCKET_IFNAME")
    assert gloo.found.startswith("GLOO_SOCKET_IFNAME=eth77: no such interface, there are ")
    assert nccl.status == "missing"


def test_without_gpus_the_interface_of_nccl_is_not_used_whatever_it_is(monkeypatch):
    monkeypatch.setattr(gpus, "graphics", Graphics)
    monkeypatch.setenv("NCCL_SOCKET_IFNAME", "=ib77")
    assert [each.name for each in checks.network()] == ["gloo interface"]

"""Interfaces that are named and not there."""

from raybench.machine.checks import network


def test_interfaces_that_do_not_exist(monkeypatch):
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "eth77")
    monkeypatch.setenv("NCCL_SOCKET_IFNAME", "=ib77")
    gloo, nccl = network.network()
    assert (gloo.status, gloo.mend) == ("missing", "unset GLOO_SOCKET_IFNAME")
    assert gloo.found.startswith("GLOO_SOCKET_IFNAME=eth77: no such interface, there are ")
    assert nccl.status == "missing"

"""Which interface gloo and NCCL take."""

import pytest

from raybench.machine import network as interfaces


@pytest.fixture
def network(monkeypatch):
    def lay(addresses, hostname_leads_to="10.0.0.1"):
        monkeypatch.setattr(interfaces, "interfaces", lambda: addresses)
        found = [(None, None, None, "", (hostname_leads_to, 0))]
        monkeypatch.setattr(interfaces.socket, "getaddrinfo", lambda *_: found)
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
    assert interfaces.gloo_interface() == ("eth0", "10.0.0.1")
    network(EVERY, "127.0.1.1")
    assert interfaces.gloo_interface() == ("lo", "127.0.0.1")
    network(EVERY, "192.168.9.9")
    assert interfaces.gloo_interface() == ("lo", "127.0.0.1")
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "eth1")
    assert interfaces.gloo_interface() == ("eth1", "10.1.0.1")
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "eth7")
    assert interfaces.gloo_interface() == ("eth7", "")
    network({})
    assert interfaces.gloo_interface() is None


def test_nccl_takes_infiniband_then_what_is_neither_docker_nor_loopback(network):
    left = dict(EVERY)
    network(left)
    for name in ("ib0", "eth0", "eth1", "docker0", "lo"):
        assert interfaces.nccl_interface() == (name, EVERY[name])
        del left[name]
    assert interfaces.nccl_interface() is None


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
    assert interfaces.nccl_interface() == ((name, EVERY[name]) if name else (wanted, ""))


def test_the_interfaces_of_this_machine():
    found = interfaces.interfaces()
    assert "127.0.0.1" in found.values()
    assert all(found.values())


def test_the_loopback_interface_is_found_by_its_address(network):
    network(EVERY)
    assert interfaces.loopback_interface() == "lo"
    network({"eth0": "10.0.0.1", "lo0": "127.0.0.1"})
    assert interfaces.loopback_interface() == "lo0"
    network({"eth0": "10.0.0.1"})
    assert interfaces.loopback_interface() is None


def test_adapters_that_are_up_and_need_no_sockets(monkeypatch, tmp_path):
    monkeypatch.setattr(interfaces, "RDMA", tmp_path)
    assert interfaces.rdma_devices() == ()
    for name, state in {"mlx5_1": "4: ACTIVE", "mlx5_0": "4: ACTIVE", "mlx5_2": "1: DOWN"}.items():
        port = tmp_path / name / "ports" / "1"
        port.mkdir(parents=True)
        (port / "state").write_text(f"{state}\n")
    assert interfaces.rdma_devices() == ("mlx5_0", "mlx5_1")

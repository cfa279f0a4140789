"""Networks as data: their names, what an all-reduce takes on them, and what is refused."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from raybench.spec.network import NVLINKS, PRESETS, Network, all_reduce_s, named_network

GBIT = 1e9 / 8


def exact(**given: object) -> Network:
    """A network without ranges: 1 GB/s between nodes, 10 GB/s within, 10 us and 1 us a step."""
    fields = {
        "devices_per_node": 4,
        "bytes_per_s": 1e9,
        "latency_s": 10e-6,
        "local_bytes_per_s": 10e9,
        "local_latency_s": 1e-6,
        "algorithms": ("ring",),
    }
    return Network.model_validate(fields | given)


def test_a_rate_is_a_range_of_what_collectives_reach_of_it() -> None:
    found = named_network("8x400Gbit/s")
    assert found is not None
    assert found.devices_per_node == 8
    assert found.bytes_per_s is not None
    worst, best = found.bytes_per_s
    assert 0.4 * 400 * GBIT < worst < best < 400 * GBIT


def test_links_of_a_node_add_up() -> None:
    one, eight = named_network("8xinfiniband-400"), named_network("8x8xinfiniband-400")
    assert one is not None
    assert eight is not None
    assert one.bytes_per_s is not None
    assert eight.bytes_per_s == pytest.approx([8 * each for each in one.bytes_per_s])


@pytest.mark.parametrize("link", [*PRESETS, *NVLINKS])
def test_every_preset_has_a_range(link: str) -> None:
    found = named_network(f"8x{link}")
    worst, best = found.bytes_per_s or found.local_bytes_per_s or (0.0, 0.0)
    assert 0 < worst < best


@pytest.mark.parametrize(
    ("algorithm", "steps_s", "share"),
    [
        # 16 devices on 4 nodes of 4
        ("ring", 22 * 1e-6 + 8 * 10e-6, 2 * 15 / 16 / 1e9),
        ("tree", 6 * 1e-6 + 4 * 10e-6, 2 * 15 / 16 / 1e9),
        ("hierarchical", 6 * 1e-6 + 6 * 10e-6, 2 * 3 / 4 / 10e9 + 2 * 3 / 4 / 1e9),
    ],
)
def test_what_an_all_reduce_takes_by_each_algorithm(algorithm: str, steps_s: float, share: float) -> None:
    ((latency_s, s_per_byte),) = exact(algorithms=(algorithm,)).lines(16)
    assert latency_s == pytest.approx(steps_s)
    assert s_per_byte == pytest.approx(share)


def test_the_fastest_algorithm_counts_for_each_message() -> None:
    lines = exact(algorithms=("ring", "tree")).lines(16)
    assert all_reduce_s(lines, 0) == pytest.approx(min(line[0] for line in lines))


def test_within_one_node_its_own_links_decide() -> None:
    assert exact().lines(4) == ((6e-6, 2 * 3 / 4 / 10e9),)


def test_switches_that_are_oversubscribed_divide_the_links() -> None:
    plain, halved = (exact(oversubscription=each).lines(16)[0][1] for each in (1.0, 2.0))
    assert halved == pytest.approx(2 * plain)


def test_the_ends_of_a_range_are_slow_and_fast() -> None:
    network = exact(bytes_per_s=(1e9, 4e9))
    slow, middle, fast = (network.lines(16, towards)[0][1] for towards in (0.0, 0.5, 1.0))
    assert slow / middle == pytest.approx(2)
    assert middle / fast == pytest.approx(2)


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("0x10Gbit/s", "8x400Gbit/s"),
        ("8x10Gb/s", "a rate such as"),
        ("8x0Gbit/s", "a rate such as"),
        ("8x4xnvlink-4", "8xnvlink-4, whose rate is that of all links"),
    ],
)
def test_what_is_no_network_is_refused_by_name(text: str, fault: str) -> None:
    with pytest.raises(ValueError, match=fault):
        named_network(text)


def test_one_node_has_no_more_devices_than_it_has() -> None:
    network = named_network("8xnvlink-4")
    assert network.nodes(8) == 1
    with pytest.raises(ValueError, match="8 devices on its one node"):
        network.lines(16)


@pytest.mark.parametrize("ends", [{"bytes_per_s": [2e9, 1e9]}, {"latency_s": [1e-6, 2e-6]}])
def test_a_range_is_from_worst_to_best(ends: dict[str, list[float]]) -> None:
    given = {"devices_per_node": 8, "bytes_per_s": 1e9} | ends
    Network.model_validate(given | {name: each[::-1] for name, each in ends.items()})
    with pytest.raises(ValidationError, match="a range is from worst to best"):
        Network.model_validate(given)


def test_a_network_carries_something() -> None:
    with pytest.raises(ValidationError, match="bytes_per_s of the links"):
        Network(devices_per_node=8)

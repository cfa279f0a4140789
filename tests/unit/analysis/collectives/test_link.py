"""The line through messages: planted latencies and rates are found again; where it does not hold is said."""

from __future__ import annotations

import pytest

from raybench.analysis.collectives.link import LinkKey, link
from tests.support.planted import QUIET, FakeLink, Noise
from tests.unit.sweeps import KIB, MIB, swept

PLANTED = FakeLink(latency_s=80e-6, bandwidth_bytes_per_s=1.25e9)  # 10 Gbit/s
COVERED = 0.88  # of 100 intervals of 95%: fewer have a chance of one in five hundred


def test_the_planted_latency_and_bandwidth_come_back() -> None:
    records, _ = swept(PLANTED, QUIET, world_sizes=(2, 4))
    found = link(records)
    assert len(found) == 8  # four collectives at two world sizes
    for key, line in found.items():
        assert line.latency_s is not None
        assert line.latency_s.value == pytest.approx(PLANTED.latency_s, rel=1e-4)
        assert line.bus_bandwidth_bytes_per_s is not None
        assert line.bus_bandwidth_bytes_per_s.value == pytest.approx(PLANTED.bandwidth_bytes_per_s, rel=1e-4)
        assert line.typical_error < 1e-4
        assert not line.does_not_hold
        truth_s = PLANTED.time_s(key.collective, 3 * MIB, key.world_size)
        assert line.time_s(3 * MIB) == pytest.approx(truth_s, rel=1e-4)


def test_the_intervals_hold_the_truth() -> None:
    covered = {"latency": 0, "bandwidth": 0}
    for seed in range(50):
        records, _ = swept(
            PLANTED, Noise(block=0.05, preemption=0.05), seed=seed, collectives=("all_reduce", "broadcast")
        )
        for line in link(records).values():
            assert line.latency_s is not None
            assert line.bus_bandwidth_bytes_per_s is not None
            covered["latency"] += not line.latency_s.excludes(PLANTED.latency_s)
            covered["bandwidth"] += not line.bus_bandwidth_bytes_per_s.excludes(PLANTED.bandwidth_bytes_per_s)
    assert min(covered.values()) >= 100 * COVERED, covered


def test_large_messages_do_not_tell_the_latency_nor_small_ones_the_bandwidth() -> None:
    def only(*sizes: int) -> tuple[bool, bool]:
        records, _ = swept(PLANTED, Noise(block=0.03), message_bytes=sizes, collectives=("all_reduce",))
        (line,) = link(records).values()
        return line.latency_s is not None, line.algorithm_bandwidth_bytes_per_s is not None

    assert only(64 * MIB, 128 * MIB, 256 * MIB) == (False, True)
    assert only(KIB // 16, KIB // 8, KIB // 4) == (True, False)


def test_two_messages_have_no_line() -> None:
    records, results = swept(PLANTED, message_bytes=(KIB, MIB))
    assert link(records) == {}
    assert results.messages


def test_messages_that_are_off_the_line_are_named() -> None:
    bent = FakeLink(latency_s=80e-6, bandwidth_bytes_per_s=1.25e9, kinks=((64 * MIB, 3.0),))
    records, _ = swept(bent, collectives=("all_reduce",))
    (line,) = link(records).values()
    off = {each.message_bytes: each.relative for each in line.does_not_hold}
    assert set(off) & {64 * MIB, 256 * MIB}
    assert line.typical_error > 0.01
    straight, _ = swept(PLANTED, collectives=("all_reduce",))
    (other,) = link(straight).values()
    assert other.latency_s is not None
    assert line.latency_s is None or line.latency_s.log_half_width > 5 * other.latency_s.log_half_width


def test_lines_are_found_by_collective_devices_and_nodes() -> None:
    records, results = swept(PLANTED, num_nodes=2, placement=("pack", "spread"))
    found = link(records)
    assert len(results.links) == 2 * len(found)  # on one node, as the fake has them, pack and spread are one
    assert found[LinkKey("all_reduce", 2, 1)].place.placement == "pack"

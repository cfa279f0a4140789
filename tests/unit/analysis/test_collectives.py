"""Messages, lines, cores and the stopping rule of a sweep, against what is planted."""

from __future__ import annotations

import math

import pytest

from raybench.analysis.collectives import bus_factor, links, messages
from raybench.spec.network import all_reduce_s
from raybench.spec.sweep import COLLECTIVES, Collective
from tests.support.planted import QUIET, FakeLink, Noise
from tests.unit.sweeps import KIB, MIB, swept

LINK = FakeLink(latency_s=50e-6, bandwidth_bytes_per_s=1e9)


@pytest.mark.parametrize(
    ("collective", "factor"),
    [("all_reduce", 1.5), ("reduce_scatter", 0.75), ("all_gather", 0.75), ("broadcast", 1.0)],
)
def test_the_factors_are_those_of_nccl_tests(collective: Collective, factor: float) -> None:
    assert bus_factor(collective, 4) == factor


def test_bandwidths_follow_from_bytes_and_time() -> None:
    _, results = swept(LINK, QUIET, world_sizes=(4,))
    assert {each.collective for each in results.messages} == set(COLLECTIVES)
    for each in results.messages:
        truth_s = LINK.time_s(each.collective, each.message_bytes, 4)
        assert each.time_s.value == pytest.approx(truth_s)
        assert each.algorithm_bandwidth_bytes_per_s.value == pytest.approx(each.message_bytes / truth_s)
        bus = each.bus_bandwidth_bytes_per_s
        assert bus.value == pytest.approx(
            bus_factor(each.collective, 4) * each.algorithm_bandwidth_bytes_per_s.value
        )
        assert bus.low <= bus.value <= bus.high
    largest = max(results.messages, key=lambda each: each.message_bytes)
    assert largest.bus_bandwidth_bytes_per_s.value == pytest.approx(1e9, rel=0.01)  # the link's rate


def test_a_row_has_the_columns_of_the_contract() -> None:
    _, results = swept(message_bytes=(KIB,), collectives=("all_gather",), placement=("spread",), num_nodes=2)
    (message,) = results.messages
    row = message.row()
    assert row["collective"] == "all_gather"
    assert row["placement"] == "spread"
    assert isinstance(row["time_s"], float)
    assert math.isclose(row["time_s"] * float(row["algorithm_bandwidth_bytes_per_s"] or 0), KIB)
    assert float(row["time_low_s"] or 0) < row["time_s"] < float(row["time_high_s"] or 0)
    assert float(row["bus_bandwidth_bytes_per_s"] or 0) > 0


PLANTED = FakeLink(latency_s=80e-6, bandwidth_bytes_per_s=1.25e9)  # 10 Gbit/s
COVERED = 0.88  # of 100 intervals of 95%: fewer have a chance of one in five hundred


def test_the_planted_latency_and_bandwidth_come_back() -> None:
    records, _ = swept(PLANTED, QUIET, world_sizes=(2, 4))
    found = links(messages(records))
    assert len(found) == 8  # four collectives at two world sizes
    for line in found:
        assert line.latency_s is not None
        assert line.latency_s.value == pytest.approx(PLANTED.latency_s, rel=1e-4)
        assert line.bus_bandwidth_bytes_per_s is not None
        assert line.bus_bandwidth_bytes_per_s.value == pytest.approx(PLANTED.bandwidth_bytes_per_s, rel=1e-4)
        truth_s = PLANTED.time_s(line.collective, 3 * MIB, line.place.world_size)
        assert all_reduce_s((line.line,), 3 * MIB) == pytest.approx(truth_s, rel=1e-4)


def test_the_intervals_hold_the_truth() -> None:
    covered = {"latency": 0, "bandwidth": 0}
    for seed in range(50):
        records, _ = swept(
            PLANTED, Noise(block=0.05, preemption=0.05), seed=seed, collectives=("all_reduce", "broadcast")
        )
        for line in links(messages(records)):
            assert line.latency_s is not None
            assert line.bus_bandwidth_bytes_per_s is not None
            covered["latency"] += not line.latency_s.excludes(PLANTED.latency_s)
            covered["bandwidth"] += not line.bus_bandwidth_bytes_per_s.excludes(PLANTED.bandwidth_bytes_per_s)
    assert min(covered.values()) >= 100 * COVERED, covered


def test_large_messages_do_not_tell_the_latency_nor_small_ones_the_bandwidth() -> None:
    def only(*sizes: int) -> tuple[bool, bool]:
        records, _ = swept(PLANTED, Noise(block=0.03), message_bytes=sizes, collectives=("all_reduce",))
        (line,) = links(messages(records))
        return line.latency_s is not None, line.algorithm_bandwidth_bytes_per_s is not None

    assert only(64 * MIB, 128 * MIB, 256 * MIB) == (False, True)
    assert only(KIB // 16, KIB // 8, KIB // 4) == (True, False)


def test_two_messages_have_no_line() -> None:
    records, results = swept(PLANTED, message_bytes=(KIB, MIB))
    assert links(messages(records)) == ()
    assert results.messages


def test_messages_that_are_off_the_line_make_its_interval_wider() -> None:
    bent = FakeLink(latency_s=80e-6, bandwidth_bytes_per_s=1.25e9, kinks=((64 * MIB, 3.0),))
    records, _ = swept(bent, collectives=("all_reduce",))
    (line,) = links(messages(records))
    straight, _ = swept(PLANTED, collectives=("all_reduce",))
    (other,) = links(messages(straight))
    assert other.latency_s is not None
    assert line.latency_s is None or line.latency_s.log_half_width > 5 * other.latency_s.log_half_width

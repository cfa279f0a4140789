"""Times and bandwidths of messages, against planted links and by nccl-tests' definitions."""

from __future__ import annotations

import math

import pytest

from raybench.analysis.collectives.messages import bus_factor
from raybench.spec.sweep import COLLECTIVES, Collective
from tests.support.planted import QUIET, FakeLink
from tests.unit.sweeps import KIB, MIB, swept

ENDS = ("low_", "", "high_")  # of an interval, as columns are named
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


def test_the_rounds_of_all_parts_are_taken_together() -> None:
    records, results = swept(message_bytes=(KIB, MIB), measure={"half_width": 0.0005, "max_seconds": 40.0})
    assert len(records) > 1
    rounds = sum(len(record.collectives.rounds) for record in records if record.collectives)
    assert {each.time_s.n for each in results.messages} == {rounds}


def test_what_was_left_out_is_named_once() -> None:
    link = FakeLink(memory_bytes=MIB, unsupported=("reduce_scatter",))
    _, results = swept(
        link, message_bytes=(KIB, 4 * MIB), measure={"half_width": 0.0005, "max_seconds": 40.0}
    )
    told = [(each.what.collective, each.what.message_bytes, each.what.why) for each in results.left_out]
    assert told.count(("reduce_scatter", None, "unsupported")) == 1
    assert sorted(name for name, size, why in told if (size, why) == (4 * MIB, "oom")) == [
        "all_gather", "all_reduce", "broadcast",
    ]  # fmt: skip
    assert len(told) == 4
    assert {each.message_bytes for each in results.messages} == {KIB}


def test_a_row_has_the_columns_of_the_contract() -> None:
    _, results = swept(message_bytes=(KIB,), collectives=("all_gather",), placement=("spread",), num_nodes=2)
    (message,) = results.messages
    row = message.row()
    assert row["collective"] == "all_gather"
    assert row["placement"] == "spread"
    assert isinstance(row["time_s"], float)
    assert math.isclose(row["time_s"] * float(row["algorithm_bandwidth_bytes_per_s"] or 0), KIB)
    for kind in ("algorithm", "bus"):
        low, value, high = (float(row[f"{kind}_bandwidth_{end}bytes_per_s"] or 0) for end in ENDS)
        assert 0 < low < value < high
        assert math.isclose(value / low, float(row["time_high_s"] or 0) / row["time_s"])
        assert math.isclose(high / value, row["time_s"] / float(row["time_low_s"] or 0))

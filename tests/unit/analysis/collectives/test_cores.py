"""Whether cores or the link decide, against what is planted."""

from __future__ import annotations

import pytest

from raybench.analysis.collectives.cores import CoreUse, core_use_of
from raybench.analysis.collectives.link import links
from tests.support.planted import FakeLink
from tests.unit.sweeps import KIB, MIB, swept


@pytest.mark.parametrize(
    ("busy_cores", "ranks_share", "host_share", "decides"),
    [
        (0.95, 0.02, 0.1, True),  # one thread is always at work, on a large host
        (0.65, 0.65, 0.7, True),  # the two ends of a transfer work in turn
        (0.4, 0.2, 0.98, True),  # no core is left
        (0.13, 0.065, 1.0, False),  # others fill the host
        (0.4, 0.4, 0.5, False),
        (0.4, 0.4, None, False),
    ],
)
def test_cores_decide_where_none_is_left(
    busy_cores: float, ranks_share: float, host_share: float | None, decides: bool
) -> None:
    assert CoreUse(busy_cores, ranks_share, host_share).decides is decides


def test_the_ranks_of_a_host_are_taken_together() -> None:
    """Four ranks of one host of eight cores, with 0.4 of a core each."""
    _, results = swept(
        FakeLink(busy_cores=0.4, host_busy=0.95), world_sizes=(4,), message_bytes=(KIB, 64 * KIB, MIB)
    )
    for each in results.messages:
        assert each.cores is not None
        assert each.cores.ranks_share == pytest.approx(0.2)
        assert each.row()["decided_by"] == "cores"
    line = links(results.messages)[0]
    assert line.by_cores == (KIB, 64 * KIB, MIB)
    assert line.cores_decide(700 * KIB)


def test_two_hosts_of_one_name_are_two() -> None:
    records, _ = swept(FakeLink(busy_cores=0.4, host_busy=0.95), world_sizes=(4,), message_bytes=(KIB,))
    shares = []
    for hosts in ((0, 0, 0, 0), (0, 0, 1, 1)):
        result = records[0].collectives
        assert result is not None
        told = result.model_copy(update={"hosts": hosts})
        record = records[0].model_copy(update={"hostnames": ("node",) * 4, "result": told})
        use = core_use_of(record, told, told.rounds[0].blocks[0])
        assert use is not None
        shares.append(use.ranks_share)
    assert shares == pytest.approx([0.2, 0.1])


def test_what_is_not_told_is_not_decided() -> None:
    _, results = swept(FakeLink(), message_bytes=(KIB, 64 * KIB, MIB))
    row = results.messages[0].row()
    assert (row["busy_cores"], row["host_busy"], row["decided_by"]) == (None, None, None)
    assert not links(results.messages)[0].cores_decide(MIB)

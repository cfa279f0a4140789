"""How much memory a rank may take."""

from raybench.worker.devices.device import AvailableMemory
from raybench.worker.memory import all_known, memory_limits


def test_ranks_of_one_host_share_what_it_has_left():
    ranks = [AvailableMemory("a", 300, 1000), AvailableMemory("a", 500, 990), AvailableMemory("b", 300, 4000)]
    assert memory_limits(ranks) == (795, 995, 4300)
    assert memory_limits([AvailableMemory("a 0", 10, 90), AvailableMemory("a 1", 20, 80)]) == (
        100,
        100,
    )  # two GPUs
    assert memory_limits([ranks[0], None]) is None


def test_values_are_known_where_every_rank_has_one():
    assert all_known([3, 0]) == (3, 0)
    assert all_known([3, None]) is None

"""The largest batch that fits: found where it was planted, whatever fails on the way, and told."""

from __future__ import annotations

import math
import random
from collections.abc import Callable

import pytest

from raybench.analysis.largest_batch import LargestFit, Probe, Rules, decide, rules
from raybench.records.record import State
from raybench.spec.knobs import Setting
from tests.unit.studies import study

GIB = 2**30
RULES = Rules(smallest=1, most=65536, predicts_memory=False)
PREDICTING = Rules(smallest=1, most=65536, predicts_memory=True)
Law = Callable[[int], Probe]


def step(batch: int) -> int:
    """The stated rule, said another way."""
    if batch <= 64:
        return 1
    return max(8, 2 ** math.floor(math.log2(batch / 64)))


def affine(largest: int, kills_above: float = math.inf, fixed: int = GIB) -> Law:
    """Memory that reaches the limit's 90% at ``largest``; above the limit itself out of memory."""
    limit = 20 * GIB

    def probe(batch: int) -> Probe:
        memory = fixed + int((0.9 * limit - fixed) * batch / largest)
        assert batch <= kills_above, f"batch {batch} would have killed the machine"
        if memory > limit:
            return Probe(batch, "oom", "planted")
        failure: State | None = "oom" if batch > largest else None
        return Probe(batch, failure, "over 90%" if failure else "", memory, limit, fixed)

    return probe


def search(law: Law, rules: Rules = RULES) -> tuple[LargestFit, list[int]]:
    """The answer, and what was tried for it, in order."""
    probes: list[Probe] = []
    while (found := decide(Setting(), 2, probes, rules)).next_batch is not None:
        assert found.reason == ""
        assert found.next_batch not in [probe.batch_size for probe in probes]
        probes.append(law(found.next_batch))
    # the order in which they are read back must not matter
    again = random.Random(0).sample(probes, len(probes))
    assert decide(Setting(), 2, again, rules) == found
    return found, [probe.batch_size for probe in probes]


# --- the decision


@pytest.mark.parametrize("rules", [RULES, PREDICTING], ids=["gpu", "cpu"])
@pytest.mark.parametrize("largest", [1, 2, 3, 37, 63, 64, 65, 71, 72, 100, 127, 1000, 1432, 5001, 40000])
def test_the_planted_maximum_is_found_within_the_rounding(largest, rules):
    found, tried = search(affine(largest), rules)
    expected = largest // step(largest) * step(largest)
    assert found.batch_size == expected
    assert affine(largest)(found.batch_size).share <= 0.9
    assert len(tried) <= 2 * math.log2(largest + 1) + 9
    assert all(batch % step(batch) == 0 for batch in tried)


def test_it_doubles_then_bisects():
    found, tried = search(affine(100))
    assert tried == [1, 2, 4, 8, 16, 32, 64, 128, 96, 112, 104]
    assert found.batch_size == 96


@pytest.mark.parametrize("largest", [1, 5, 77, 1432, 30000])
@pytest.mark.parametrize("fixed", [0, GIB, 15 * GIB])
def test_on_cpus_nothing_is_run_that_is_predicted_over_the_memory(largest, fixed):
    found, tried = search(affine(largest, kills_above=largest, fixed=fixed), PREDICTING)
    assert found.batch_size == largest // step(largest) * step(largest)
    assert "predicted, not tried" in found.reason
    assert len(tried) <= 2 * math.log2(largest + 1) + 9


def test_memory_that_grows_faster_than_the_batch_is_measured_where_the_line_is_wrong():
    limit = 10 * GIB

    def square(batch: int) -> Probe:
        memory = GIB + batch**2 * 1000
        too_large = memory > 0.9 * limit
        return Probe(batch, "oom" if too_large else None, "planted", memory, limit)

    found, _ = search(square, PREDICTING)
    exact = math.isqrt(int(8 * GIB / 1000))
    assert found.batch_size == exact // step(exact) * step(exact)


@pytest.mark.parametrize("at", range(1, 12))
def test_a_group_that_is_lost_anywhere_counts_as_too_large_and_is_told(at):
    """Whatever kills the workers at a batch, the search goes on below it."""
    lost = [1, 2, 4, 8, 16, 32, 64, 128, 96, 112, 104][at - 1]
    law = affine(100)
    found, _ = search(
        lambda batch: Probe(batch, "crashed", "its process died") if batch >= lost else law(batch)
    )
    below = min(lost - 1, 100)
    assert found.batch_size == (below // step(below) * step(below) if below else None)
    if lost <= 100:
        assert "its process died" in found.reason


def test_a_limit_that_memory_never_meets_is_told_as_the_limit():
    found, tried = search(affine(10**9), Rules(1, 1000, predicts_memory=True))
    assert (found.batch_size, found.reason) == (1000, "larger ones are not tried (1,000)")
    assert tried[-2:] == [512, 1000]
    assert search(affine(10**9))[0].batch_size == 65536


def test_a_timeout_that_came_unforeseen_counts_as_too_large():
    found, _ = search(lambda batch: Probe(batch, "timeout" if batch > 20 else None, "not done after 300 s"))
    assert (found.batch_size, found.reason) == (20, "batch 21: not done after 300 s")


def test_nothing_fits():
    found, tried = search(lambda batch: Probe(batch, "oom", "planted"))
    assert (found.batch_size, tried) == (None, [1])


@pytest.mark.parametrize(("as_if", "smallest"), [(None, 16), ([64], 128), ([12, 64], 384)])
def test_the_smallest_global_batch_divides_as_if_there_were_more_devices_too(as_if, smallest):
    """As 104 samples were measured as if on 64 devices with one each."""
    spec = study(scaling={"mode": "strong", "as_if": as_if}, knobs={"batch_size": ["max"]})
    assert rules(spec, Setting(gradient_accumulation=2), (1, 2, 8), "cpu").smallest == smallest


def test_strong_scaling_counts_in_batches_that_divide():
    found, tried = search(affine(1000), Rules(12, 65536, predicts_memory=False))
    assert found.batch_size == 12 * (1000 // 12 // 8 * 8)
    assert all(batch % 12 == 0 for batch in tried)

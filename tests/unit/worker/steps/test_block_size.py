"""How many steps a block has, and on which device."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from raybench.spec.study import MeasureSpec
from raybench.worker.devices.device import Device
from raybench.worker.steps.rounds import BlockSize, MeasuringLoop, block_sizes
from raybench.worker.steps.variants import VariantRun
from tests.unit.studies import request


class Ready:
    """Of a loader with two processes."""

    prefetched = 4

    def next(self) -> None:
        raise AssertionError("sizes are told without reading")


PLAIN = VariantRun("plain", lambda: None, one_rank=True)
SYNCED = VariantRun("ddp", lambda: None, batches=Ready())
STEP_S = {"plain": 0.010, "ddp": 0.020}
ROOMY = MeasureSpec(max_seconds=60, min_rounds=10)


def test_a_block_lasts_as_long_as_the_device_asks_for():
    sizes = block_sizes([PLAIN, SYNCED], ROOMY, 2, 0.15, STEP_S)
    # 20 ms are thrown away, and what a loader had ready
    assert sizes == {"plain": BlockSize(2, 15), "ddp": BlockSize(1 + 4, 8)}


def test_every_process_of_a_loader_brings_equally_many_of_the_timed_batches():
    in_nine = dict(STEP_S, ddp=0.15 / 9)
    assert block_sizes([PLAIN, SYNCED], ROOMY, 2, 0.15, in_nine)["ddp"] == BlockSize(2 + 4, 10)
    doubled = replace(SYNCED, batches_per_step=2)  # a step takes one of each process
    assert block_sizes([PLAIN, doubled], ROOMY, 2, 0.15, in_nine)["ddp"] == BlockSize(2 + 2, 9)


def test_steps_that_are_asked_for_are_what_is_timed():
    sizes = block_sizes([PLAIN, SYNCED], ROOMY.model_copy(update={"steps": 3}), 2, 0.15, STEP_S)
    assert {size.timed for size in sizes.values()} == {3}


def test_little_time_makes_shorter_blocks_rather_than_fewer_rounds():
    hasty = MeasureSpec(max_seconds=1, min_rounds=10)  # 50 ms a block
    assert block_sizes([PLAIN, SYNCED], hasty, 2, 0.15, STEP_S)["plain"].timed == 5
    assert block_sizes([PLAIN, SYNCED], hasty, 2, 0.15, STEP_S)["ddp"].timed == 4  # three, in whole turns


def test_on_many_devices_the_one_that_works_alone_takes_a_fifth_of_the_time():
    sizes = block_sizes([PLAIN, SYNCED], ROOMY, 16, 0.15, STEP_S)
    seconds = {variant: size.timed * STEP_S[variant] for variant, size in sizes.items()}
    assert seconds["plain"] <= 0.2 * sum(seconds.values()) + 1e-9


def loop(visit: int) -> MeasuringLoop:
    """Of one of eight ranks."""
    team: Any = SimpleNamespace(size=8, gather=lambda item: [item] * 8)
    variants: Any = SimpleNamespace(runs=[PLAIN, SYNCED], step_s=STEP_S)
    asked = request(world_size=8, visit=visit, measure=MeasureSpec(min_rounds=4))
    return MeasuringLoop(asked, team, Device(), variants, lambda progress: None)


@pytest.mark.parametrize(("visit", "alone"), [(0, [0, 1, 2, 3]), (1, [4, 5, 6, 7]), (2, [0, 1, 2, 3])])
def test_the_devices_that_work_alone_go_on_from_visit_to_visit(visit, alone):
    assert loop(visit)._turns[:4] == alone


def test_each_visit_has_an_order_of_blocks_of_its_own_which_its_ranks_share():
    """Of one order in all visits, what it does to a variant is in each of them, and in no interval."""
    one, of_another_rank, other = ([loop(visit)._random.random() for _ in "12"] for visit in (0, 0, 1))
    assert one == of_another_rank != other

"""A sweep from place to place: nothing twice, failures and interrupts."""

from __future__ import annotations

import pytest

from raybench.driver.groups import MAX_LOST_STARTS
from raybench.errors import GroupLostError, Interrupted, NoRoomError
from raybench.records.messages import GroupInfo
from tests.support.planted import FakeRunner, Noise
from tests.unit.runs import Failing, MemoryStore, Watched
from tests.unit.sweeps import KIB, MIB, STEADY, planned, run, swept

SIZES = (KIB, 16 * KIB, MIB)


def test_every_place_is_measured_the_largest_first() -> None:
    told, store, plan = (
        Watched(),
        MemoryStore(),
        planned(num_devices=4, world_sizes="all", message_bytes=SIZES),
    )
    runner = FakeRunner(noise=STEADY, num_devices=4)
    assert run(plan, runner, store, told) == []
    assert [(request.config.world_size, left_s) for request, _, _, left_s in told.trials] == [
        (4, 120.0),
        (2, 60.0),
    ]
    assert runner.num_starts == 1  # one group, of the largest world size
    assert [record.study for record in store.records] == ["communication"] * 2


def test_rounds_end_with_narrow_intervals_or_the_time() -> None:
    (narrow,), _ = swept(message_bytes=SIZES, measure={"half_width": 0.2, "max_seconds": 45.0})
    assert narrow.collectives is not None
    assert len(narrow.collectives.rounds) == 10
    (wide,), _ = swept(message_bytes=SIZES, measure={"half_width": 1e-6, "max_seconds": 45.0})
    assert 45.0 <= wide.wall_time_s < 50.0


def test_what_is_known_is_not_measured_again() -> None:
    told, store, again = Watched(), MemoryStore(), FakeRunner(noise=STEADY, num_devices=8)
    plan = planned(num_devices=8, world_sizes="all", message_bytes=SIZES)
    run(plan, store=store)
    run(plan, again, store)
    assert not again.requests
    store.records = [each for each in store.records if each.request.config.world_size != 2]
    run(plan, again, store, told)
    assert [(one[0].config.world_size, one[3]) for one in told.trials] == [(2, 60.0)]


def test_a_failure_ends_its_place_and_no_other() -> None:
    def fail(request):  # type: ignore[no-untyped-def]
        return ("crashed", "planted") if request.config.world_size == 4 else None

    plan = planned(4, world_sizes=(2, 4), message_bytes=SIZES)
    told, store = Watched(), MemoryStore()
    run(plan, FakeRunner(noise=STEADY, num_devices=4, fail=fail), store, told)
    assert [record.state for record, _ in told.done] == ["crashed", "complete"]
    runner = FakeRunner(noise=STEADY, num_devices=4)
    run(plan, runner, store)
    assert not runner.requests  # without --retry it stays so
    run(plan, runner, store, retry=("crashed",))
    assert [request.config.world_size for request in runner.requests] == [4]


def test_an_interrupt_leaves_the_places_before_it() -> None:
    plan, store = planned(world_sizes=(2, 4), message_bytes=SIZES), MemoryStore()
    with pytest.raises(Interrupted):
        run(plan, Failing(1, Interrupted("SIGINT")), store)
    assert [record.state for record in store.records] == ["complete"]


def test_groups_that_do_not_start_end_the_sweep() -> None:
    class Lost(FakeRunner):
        def run(self, request, on_progress):  # type: ignore[no-untyped-def]
            self.requests.append(request)
            raise GroupLostError("planted")

    runner = Lost(noise=Noise())
    with pytest.raises(GroupLostError):
        run(planned(), runner)
    assert len(runner.requests) == MAX_LOST_STARTS


def test_what_is_left_of_lost_nodes_is_no_spread() -> None:
    class Lost(FakeRunner):
        def start(self, world_size: int, environment: dict[str, str], *, anew: bool = False) -> GroupInfo:
            if world_size > 2:
                raise NoRoomError("at most 2 workers fit", 2)
            return super().start(world_size, environment, anew=anew)

    plan = planned(num_devices=4, num_nodes=2, placement=("pack", "spread"), message_bytes=SIZES)
    store = MemoryStore()
    ((place, why),) = run(plan, Lost(noise=STEADY, num_devices=4), store)
    assert (place.world_size, place.placement, why) == (2, "spread", "at most 2 workers fit")
    assert [record.request.config.placement for record in store.records] == ["pack"]

"""A sweep from place to place: parts on the disk, nothing twice, failures and interrupts."""

from __future__ import annotations

import pytest

from raybench.driver.groups import MAX_LOST_STARTS
from raybench.errors import GroupLostError, Interrupted, NoRoomError
from raybench.records.messages import GroupInfo
from tests.support.planted import FakeRunner, Noise
from tests.unit.runs import Failing, MemoryStore
from tests.unit.sweeps import KIB, MIB, STEADY, Told, planned, session

SIZES = (KIB, 16 * KIB, MIB)


def test_every_place_is_measured_the_largest_first() -> None:
    told = Told()
    plan = planned(num_devices=4, world_sizes="all", message_bytes=SIZES)
    run = session(plan, watcher=told)
    run.run()
    assert told.parts == [(4, 0), (2, 0)]
    assert told.left_s == [120.0, 60.0]
    assert isinstance(run.runner, FakeRunner)
    assert run.runner.num_starts == 1  # one group, of the largest world size
    assert [record.study for record in run.store.latest().values()] == ["communication"] * 2


def test_parts_follow_until_the_time_is_spent() -> None:
    told = Told()
    plan = planned(message_bytes=SIZES, measure={"half_width": 1e-6, "max_seconds": 45.0})
    run = session(plan, watcher=told)
    run.run()
    results = [record.collectives for record in run.store.latest().values()]
    spent_s = sum(each.measure_s for each in results if each)
    assert 35.0 < spent_s < 50.0
    assert [part for _, part in told.parts] == list(range(len(results)))
    assert told.rounds == sorted(set(told.rounds))
    orders = {tuple(b.message_bytes for b in each.rounds[0].blocks) for each in results if each}
    assert len(orders) > 1  # shuffled anew in each part


def test_what_is_known_is_not_measured_again() -> None:
    plan, store = (
        planned(message_bytes=SIZES, measure={"half_width": 1e-6, "max_seconds": 30.0}),
        MemoryStore(),
    )
    session(plan, store=store).run()
    before = len(store.records)
    again = FakeRunner(noise=STEADY, num_devices=4)
    session(plan, again, store).run()
    assert not again.requests
    longer = planned(message_bytes=SIZES, measure={"half_width": 1e-6, "max_seconds": 60.0})
    session(longer, again, store).run()  # goes on where it was
    assert again.requests
    assert len({record.trial_id for record in store.records}) == len(store.records) > before


def test_the_time_that_is_left_is_that_of_the_places_that_are_open() -> None:
    told, plan = Told(), planned(num_devices=8, world_sizes="all", message_bytes=SIZES)
    store = MemoryStore()
    session(plan, store=store).run()
    store.records = [each for each in store.records if each.request.config.world_size != 4]
    session(plan, store=store, watcher=told).run()
    assert told.parts == [(4, 0)]
    assert told.left_s == [60.0]  # the two devices that come after it are measured


def test_a_failed_part_ends_its_place_and_no_other() -> None:
    def fail(request):  # type: ignore[no-untyped-def]
        return ("crashed", "planted") if (request.config.world_size, request.part) == (4, 1) else None

    plan = planned(
        4, world_sizes=(2, 4), message_bytes=SIZES, measure={"half_width": 1e-6, "max_seconds": 45.0}
    )
    told, store = Told(), MemoryStore()
    session(plan, FakeRunner(noise=STEADY, num_devices=4, fail=fail), store, watcher=told).run()
    assert [part for size, part in told.parts if size == 4] == [0, 1]
    assert len([part for size, part in told.parts if size == 2]) > 2
    states = [record.state for record in store.records if record.request.config.world_size == 4]
    assert states == ["complete", "crashed"]
    runner = FakeRunner(noise=STEADY, num_devices=4)
    session(plan, runner, store).run()
    assert not runner.requests  # without --retry it stays so
    session(plan, runner, store, retry=frozenset({"crashed"})).run()
    assert {request.config.world_size for request in runner.requests} == {4}
    assert runner.requests[0].kind == "collectives"


def test_an_interrupt_leaves_the_parts_before_it() -> None:
    plan, store = planned(message_bytes=SIZES, measure={"half_width": 1e-6}), MemoryStore()
    with pytest.raises(Interrupted):
        session(plan, Failing(1, Interrupted("SIGINT")), store).run()
    assert [record.state for record in store.records] == ["complete"]


def test_groups_that_do_not_start_end_the_sweep() -> None:
    class Lost(FakeRunner):
        def run(self, request, on_progress):  # type: ignore[no-untyped-def]
            self.requests.append(request)
            raise GroupLostError("planted")

    runner = Lost(noise=Noise())
    with pytest.raises(GroupLostError):
        session(planned(), runner).run()
    assert len(runner.requests) == MAX_LOST_STARTS


def test_what_is_left_of_lost_nodes_is_no_spread() -> None:
    class Lost(FakeRunner):
        def start(self, world_size: int, environment: dict[str, str], *, anew: bool = False) -> GroupInfo:
            if world_size > 2:
                raise NoRoomError("at most 2 workers fit", 2)
            return super().start(world_size, environment, anew=anew)

    plan = planned(num_devices=4, num_nodes=2, placement=("pack", "spread"), message_bytes=SIZES)
    run = session(plan, Lost(noise=STEADY, num_devices=4))
    run.run()
    assert [record.request.config.placement for record in run.store.latest().values()] == ["pack"]
    ((place, reason),) = run.lost
    assert (place.world_size, place.placement, reason) == (2, "spread", "at most 2 workers fit")

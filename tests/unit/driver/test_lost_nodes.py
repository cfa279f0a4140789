"""Nodes that are gone in mid-study: what still fits is measured, what does not is named."""

from __future__ import annotations

import pytest

from raybench.errors import GroupLostError, NoRoomError
from raybench.machine.host import Resources
from raybench.plan.make_plan import make_plan
from raybench.plan.notes import NoteKind, Stage
from raybench.plan.trials import Plan
from raybench.records.messages import GroupInfo, OnProgress, Outcome
from raybench.records.requests import TrialRequest
from tests.support.planted import FakeRunner
from tests.unit.runs import run
from tests.unit.studies import study


class Losing(FakeRunner):
    """Four places, of which two are gone after some trials."""

    def __init__(self, trials: int) -> None:
        super().__init__(num_devices=4)
        self._trials = trials

    def start(self, world_size: int, environment: dict[str, str], *, anew: bool = False) -> GroupInfo:
        if len(self.requests) >= self._trials and world_size > 2:
            raise NoRoomError("at most 2 workers fit", 2)
        return super().start(world_size, environment, anew=anew)

    def run(self, request: TrialRequest, on_progress: OnProgress) -> Outcome:
        """As the workers of a real group, which has every rank that a trial needs."""
        assert self._group is not None
        size, placement = request.config.world_size, request.config.placement
        named = range(size) if isinstance(placement, str) else placement
        assert len(named) == size
        assert {*named} <= {member.rank for member in self._group.members}
        return super().run(request, on_progress)


def planned(method: str, visits: int = 1) -> Plan:
    knobs = {"batch_size": [32, 64], "precision": ["fp32", "bf16"]}
    spec = study(
        knobs=knobs,
        search={"method": method, "trials": 4},
        scaling={"world_sizes": [1, 2, 4]},
        measure={"visits": visits},
    )
    return make_plan(spec, Resources("cpu", 4, "a CPU"))


@pytest.mark.parametrize("lost_after", [0, 2, 5])
def test_a_grid_goes_on_at_the_sizes_that_fit(lost_after: int) -> None:
    executed, store, _ = run(planned("grid"), Losing(lost_after))
    sizes = [r.config.world_size for r in store.records if r.request.role == "scaling"]
    # the default's curve has one of the first three
    assert sizes.count(4) == {0: 0, 2: 1, 5: 3}[lost_after]
    assert (sizes.count(2), sizes.count(1)) == (4, 4)
    assert {record.state for record in store.records} == {"complete"}
    left_out = [note for note in executed.notes if note.kind is NoteKind.NO_ROOM]
    assert [(note.stage, note.reason) for note in left_out] == [(Stage.CURVES, "at most 2 workers fit")]
    assert len(executed.not_reached[0].requests) == 4 - sizes.count(4)


def test_a_trial_that_had_not_begun_when_its_node_was_lost_is_left_out() -> None:
    class Vanishing(Losing):
        def run(self, request: TrialRequest, on_progress: OnProgress) -> Outcome:
            if len(self.requests) == 2 and self._trials:
                self._trials = 0
                raise GroupLostError("the worker group ended by itself")
            return super().run(request, on_progress)

    executed, store, _ = run(planned("grid"), Vanishing(10**6))
    sizes = [r.config.world_size for r in store.records if r.request.role == "scaling"]
    assert (sizes.count(4), sizes.count(2), sizes.count(1)) == (1, 4, 4)
    assert [each.config.world_size for note in executed.not_reached for each in note.requests] == [4, 4, 4]


def test_a_node_that_comes_back_serves_what_needs_it() -> None:
    class Back(Losing):
        def start(self, world_size: int, environment: dict[str, str], *, anew: bool = False) -> GroupInfo:
            if len(self.requests) > 4:
                self._trials = 10**6
            return super().start(world_size, environment, anew=anew)

    _, store, _ = run(planned("grid", visits=2), Back(2))
    visits = [r.request.visit for r in store.records if r.config.world_size == 4]
    assert visits.count(0) == 1  # the other three had their turn while it was gone
    assert visits.count(1) > 0


def test_a_search_ends_and_the_curves_go_on() -> None:
    executed, store, _ = run(planned("optuna"), Losing(5))
    roles = [record.request.role for record in store.records]
    assert roles.count("search") == 2
    sizes = {record.config.world_size for record in store.records if record.request.role == "scaling"}
    assert sizes == {1, 2, 4}
    assert (executed.notes[0].kind, executed.notes[0].stage) == (NoteKind.NO_ROOM, Stage.SEARCH)


def test_what_was_to_be_spread_over_all_nodes_is_left_out_on_fewer() -> None:
    sizes = {"world_sizes": [1, 2], "placement": ["spread"]}
    spec = study(knobs={"batch_size": [32]}, search={"method": "grid"}, scaling=sizes, measure={"visits": 1})
    executed, store, _ = run(make_plan(spec, Resources("cpu", 4, "a CPU", num_nodes=2)), Losing(0))
    assert [record.config.world_size for record in store.records] == [1]
    assert [each.config.world_size for note in executed.not_reached for each in note.requests] == [2]


def test_ranks_that_are_gone_are_left_out_and_others_measured() -> None:
    sizes = {"world_sizes": [1, 2], "placement": [[0, 3], [1, 0]]}
    spec = study(knobs={"batch_size": [32]}, search={"method": "grid"}, scaling=sizes, measure={"visits": 1})
    plan = make_plan(spec, Resources("cpu", 4, "a CPU"))
    placements = [(0, 3), (0, 1), "pack"]
    _, whole, _ = run(plan, Losing(10**6))
    assert [record.config.placement for record in whole.records] == placements
    executed, store, _ = run(plan, Losing(0))
    assert [record.config.placement for record in store.records] == placements[1:]
    left_out = [each for note in executed.not_reached for each in note.requests]
    assert [each.config.placement for each in left_out] == placements[:1]

"""What a study asks for and has no record of, in words."""

from __future__ import annotations

from raybench.commands.notes import left_out_words
from raybench.machine.host import Resources
from raybench.plan.make_plan import make_plan
from raybench.plan.notes import Note, NoteKind, Stage, left_out
from raybench.plan.space import SearchSpace
from tests.support.analysis import analyse
from tests.support.planted import FakeRunner, run_all
from tests.unit.runs import run
from tests.unit.studies import study


def searched(trials: int, measured: int) -> list[Note]:
    """A space of six points, of which so many were measured."""
    knobs = {"batch_size": [32, 64, 128], "static_graph": [False, True]}
    spec = study(knobs=knobs, search={"method": "optuna", "trials": trials})
    plan = make_plan(spec, Resources("cpu", 2, "a CPU"))
    space = SearchSpace(plan)
    asked = [plan.search(space.suggestion(each)) for each in space.points()]
    curve = plan.curve(plan.default())
    records = run_all(FakeRunner(), [*curve, *asked[1:measured]])[0]
    notes = left_out(plan.study, records)
    visits = notes.pop()  # none was begun: of a default on two sizes
    assert (visits.stage, len(visits.requests), visits.total) == (Stage.VISITS, 4, 4)
    return notes


def test_no_suggestion_beyond_the_space_is_left_out() -> None:
    assert searched(24, 6) == []
    assert searched(24, 4) == [Note(NoteKind.NOT_REACHED, Stage.SEARCH, 2, 6)]
    assert searched(4, 3) == [Note(NoteKind.NOT_REACHED, Stage.SEARCH, 1, 4)]
    assert searched(4, 4) == []


def test_after_a_search_the_visits_of_default_and_winner_belong_to_it() -> None:
    knobs = {"batch_size": [32, 64, 128], "static_graph": [False, True]}
    plan = make_plan(study(knobs=knobs, search={"method": "optuna"}), Resources("cpu", 2, "a CPU"))
    store = run(plan)[1]
    winners = analyse(plan.study, store.records).winners
    assert [each.config.setting.batch_size for each in winners] == [128]
    assert left_out(plan.study, store.records, 1, winners) == []
    twice = [each for each in store.records if each.request.kind == "steps" and each.request.visit < 2]
    (note,) = left_out(plan.study, twice, 1, winners)
    assert left_out_words(note) == "4 of 9 further visits"
    searched = [each for each in store.records if each.request.role == "search"]
    curves, *_ = left_out(plan.study, searched, 1, winners)[1:]
    assert left_out_words(curves) == "2 of 2 trials of the curves"


def test_world_sizes_that_were_not_reached_are_counted() -> None:
    spec = study(
        scaling={"world_sizes": [1, 2, 4]},
        knobs={"batch_size": [64]},
        search={"method": "grid"},
        measure={"visits": 1},
    )
    plan = make_plan(spec, Resources("cpu", 4, "a CPU"))
    records = run_all(FakeRunner(), plan.trials()[1:])[0]
    (note,) = left_out(plan.study, records)
    assert [each.config.world_size for each in note.requests] == [4]
    assert left_out_words(note) == "1 of 3 trials of the curves"


def test_ranks_that_a_placement_names_are_devices_that_there_were() -> None:
    spec = study(
        scaling={"world_sizes": [1, 2], "placement": [[0, 3]]},
        knobs={"batch_size": [64]},
        search={"method": "grid"},
        measure={"visits": 1},
    )
    plan = make_plan(spec, Resources("cpu", 4, "a CPU"))
    records = run_all(FakeRunner(num_devices=4), plan.trials())[0]
    assert left_out(plan.study, records) == []

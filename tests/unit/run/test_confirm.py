"""What is said of the confirmation, which is asked for again where trials were measured again."""

from __future__ import annotations

from typing import Any

import pytest

from raybench.analysis import analyse
from raybench.errors import NoRoomError
from raybench.machine.host import Resources
from raybench.plan.notes import Note, NoteKind, Stage, left_out
from raybench.plan.resolve import make_plan
from raybench.records.messages import GroupInfo
from raybench.records.record import State
from raybench.report.answer import answer_box
from raybench.run.session import Session
from raybench.run.stages import confirm, measure_curves
from raybench.run.time_budget import TimeBudget
from tests.support.planted import FakeRunner, StepCosts
from tests.unit.runs import QUIET_ENOUGH, ClockRunner, MemoryStore, Watched, run
from tests.unit.studies import study


def measured(runner: FakeRunner, budget: TimeBudget | None = None, **fields: Any) -> Session:
    """A grid whose trials are done, and nothing is confirmed."""
    given = {"knobs": {"batch_size": [32, 512]}, "measure": {"half_width": 0.02}} | fields
    plan = make_plan(study(**given), Resources("cpu", 2, "a CPU"))
    session = Session(plan, runner, MemoryStore(), Watched(), budget or TimeBudget())
    measure_curves(session, plan.trials())
    return session


def test_what_there_was_no_time_for_is_named_once_and_no_more_when_it_was_done(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = ClockRunner(monkeypatch)
    session = measured(clock, TimeBudget())
    session.budget.deadline = clock.now + 0.1
    for _ in range(2):
        confirm(session, session.ledger.winners())
        assert session.not_reached == [Note(NoteKind.NOT_REACHED, Stage.CONFIRMATION)]
    session.budget.deadline = clock.now + 1000
    confirm(session, session.ledger.winners())
    assert session.not_reached == []
    assert session.ledger.store.latest()[session.ledger.records()[-1].trial_id].request.role == "confirmation"


def test_what_had_no_room_is_named_once_and_no_more_when_it_had() -> None:
    class Small(FakeRunner):
        is_small = False

        def start(self, world_size: int, environment: dict[str, str], *, anew: bool = False) -> GroupInfo:
            if self.is_small:
                raise NoRoomError("nothing fits", 0)
            return super().start(world_size, environment, anew=anew)

    runner = Small(noise=QUIET_ENOUGH)
    session = measured(runner)
    runner.is_small = True
    for _ in range(2):
        confirm(session, session.ledger.winners())
        assert session.notes == [Note(NoteKind.NO_ROOM, Stage.CONFIRMATION, reason="nothing fits")]
    runner.is_small = False
    confirm(session, session.ledger.winners())
    assert session.notes == []


def test_a_winner_in_other_processes_is_named_once() -> None:
    def costs(config: Any, setting: Any) -> StepCosts:
        return StepCosts(plain_s=0.01 if config.environment["MY_BACKEND"] == "b" else 0.02)

    session = measured(
        FakeRunner(costs, QUIET_ENOUGH),
        knobs={"batch_size": [32]},
        environment={"MY_BACKEND": ["a", "b"]},
    )
    for _ in range(2):
        confirm(session, session.ledger.winners())
        assert [note.kind for note in session.notes] == [NoteKind.OTHER_PROCESSES]


@pytest.mark.parametrize("search", [{"method": "grid"}, {"method": "optuna", "trials": 2}], ids=str)
def test_nothing_is_confirmed_against_a_default_that_crashed(search: dict[str, Any]) -> None:
    def crashes(request: Any) -> tuple[State, str] | None:
        is_default = request.config.world_size == 2 and request.config.batch_size == 32
        return ("crashed", "rank 1: no memory of it") if is_default else None

    plan = make_plan(
        study(knobs={"batch_size": [32, 512]}, measure={"half_width": 0.02}, search=search),
        Resources("cpu", 2, "a CPU"),
    )
    session, store, _ = run(plan, FakeRunner(noise=QUIET_ENOUGH, fail=crashes))
    assert "confirmation" not in [record.request.role for record in store.records]
    (note,) = [each for each in session.notes if each.kind is NoteKind.DEFAULT_FAILED]
    assert note.reason == "crashed: rank 1: no memory of it"
    results = analyse(plan.study, store.records)
    gain = next(each.words for each in answer_box(results) if each.question == "Measured gain")
    assert gain.endswith("not confirmed against the default, which has no numbers itself (crashed)")
    assert left_out(plan.study, store.records, 1, results.winners) == []


def test_a_profile_that_is_missing_is_named_once() -> None:
    session = measured(FakeRunner(noise=QUIET_ENOUGH))
    confirm(session, session.ledger.winners())
    asked = make_plan(
        study(knobs={"batch_size": [32, 512]}, measure={"half_width": 0.02, "profile": True}),
        Resources("cpu", 2, "a CPU"),
    )
    session.ledger.plan = asked
    for _ in range(2):
        confirm(session, session.ledger.winners())
        (note,) = session.notes
        assert note.kind is NoteKind.NO_PROFILE

from __future__ import annotations

from typing import Any

from raybench.records.record import TrialRecord
from raybench.spec.knobs import Setting
from tests.support.accounts import Accounts, accounts
from tests.support.planted import QUIET, Noise, StepCosts
from tests.unit.studies import measured

BATCHES = [8, 16, 32]


def wait_s(batch: int) -> float:
    return 0.001 * batch


def trial(batch: int, more_s: float = 0.0, **fields: Any) -> TrialRecord:
    """Complete; each step takes ``more_s`` longer than it should."""
    costs = StepCosts(plain_s=wait_s(batch) + more_s)
    return measured(costs, QUIET, setting=Setting(batch_size=batch), **fields)


def failed(batch: int, state: str) -> TrialRecord:
    return trial(batch).model_copy(update={"state": state, "reason": "planted", "result": None})


def account(*records: TrialRecord) -> Accounts:
    return accounts(records, BATCHES, wait_s, tolerance_s=0.002, longest_s=1e6)


def test_all_is_there_once_and_true() -> None:
    against = trial(32, anchor=Setting(batch_size=8))
    found = account(failed(16, "timeout"), trial(8), trial(16), against, trial(8, 0.001, role="search"))
    assert abs(found.own_s) < 1e-4
    assert (found.asked, found.complete) == (3, 3)
    assert (found.lost, found.doubled, found.false) == ((), (), ())
    assert found.states == {"complete": 4, "timeout": 1}
    assert abs(max(found.errors_s) - 0.001) < 1e-4


def test_what_never_became_complete_is_lost() -> None:
    found = account(trial(8), failed(16, "crashed"), trial(32, role="search"))
    assert found.lost == ("scaling of batch 16", "scaling of batch 32")
    assert found.complete == 1


def test_what_is_complete_twice_is_doubled_whatever_its_id() -> None:
    again = trial(16).model_copy(update={"trial_id": "0" * 12})
    found = account(*map(trial, BATCHES), again, trial(8, visit=1))
    assert found.doubled == ("scaling of batch 16: 2 times",)
    assert found.complete == 3


def test_figures_that_cannot_be_are_false() -> None:
    late, early = trial(8, 0.003), trial(16, -0.001)
    another = trial(32).model_copy(update={"result": trial(16).result})
    found = account(late, early, another, trial(8, role="search"), trial(16, role="search"))
    assert len(found.false) == 4
    assert "scaling of batch 8: a step time +3.00 ms from its wait" in found.false
    assert "scaling of batch 16: a step time -1.00 ms from its wait" in found.false
    assert "scaling of batch 32: a step time -16.00 ms from its wait" in found.false
    assert "scaling of batch 32: the answer is of batch 16" in found.false
    backwards = trial(8).model_copy(update={"wall_time_s": 0.0})
    assert account(backwards).false == ("scaling of batch 8: it took 0.0 s",)


def test_what_every_step_takes_beside_its_wait_is_known_as_that() -> None:
    found = account(*(trial(batch, 0.0019) for batch in BATCHES))
    assert abs(found.own_s - 0.0019) < 1e-4
    assert found.false == ()
    late = account(*(trial(batch, 0.001) for batch in BATCHES), trial(8, 0.0034, role="search"))
    assert late.false == ("search of batch 8: a step time +3.40 ms from its wait",)
    too_much = account(*(trial(batch, 0.003) for batch in BATCHES))
    assert too_much.false == ("every step: +3.00 ms beside its wait",)


def test_a_disturbed_step_time_is_not_false_where_its_interval_says_so() -> None:
    costs = StepCosts(plain_s=wait_s(8) + 0.003)
    disturbed = measured(costs, Noise(block=1.0), setting=Setting(batch_size=8))
    found = account(*map(trial, BATCHES[1:]), trial(8, role="search"), disturbed)
    assert max(found.errors_s) > 0.002
    assert found.false == ()

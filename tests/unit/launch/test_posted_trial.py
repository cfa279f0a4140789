"""What the driver makes of the messages of a worker group, whoever sends them, and whenever they come."""

import pytest

from raybench.launch.mailbox import PostedTrial
from raybench.records.messages import Begun, Kept, Message, Outcome, Progress
from raybench.records.results import StepsResult
from tests.support.planted import StepCosts
from tests.unit import studies


def posted(number=3):
    heard = []
    return PostedTrial(number, heard.append), heard


def complete() -> Outcome:
    record = studies.measured(StepCosts(plain_s=0.01))
    return Outcome("complete", 1.5, result=record.result)


def broken(state, reason):
    return Outcome(state, 0.5, reason, ends_group=True)


def test_what_is_said_of_another_trial_is_dropped():
    trial, heard = posted(3)
    for number in (1, 2, 4):
        trial.hear(Message(number, Begun()))
        trial.hear(Message(number, Progress("measure")))
        trial.hear(Message(number, broken("oom", "rank 5: OutOfMemoryError: late")))
        trial.hear(Message(number, complete()))
    assert (trial.begun, heard, trial.failures, trial.outcome()) == (False, [], [], None)
    trial.hear(Message(3, Begun()))
    trial.hear(Message(3, Progress("measure")))
    assert (trial.begun, heard) == (True, [Progress("measure")])
    own = complete()
    trial.hear(Message(3, own))
    assert trial.outcome() is own


@pytest.mark.parametrize("turn", [1, -1], ids=["cause first", "cause last"])
def test_of_ranks_that_fail_together_the_cause_counts(turn):
    failures = [
        broken("oom", "rank 2: OutOfMemoryError: 3 GiB"),
        broken("crashed", "rank 0: RuntimeError: Connection closed by peer"),
        broken("crashed", "rank 1: ValueError: mine"),
    ]
    for left_out, reason in ((None, "rank 2: OutOfMemoryError: 3 GiB"), (0, "rank 1: ValueError: mine")):
        trial, _ = posted()
        for place, failure in list(enumerate(failures))[::turn]:
            if place != left_out:
                trial.hear(Message(3, failure))
        assert trial.failures
        outcome = trial.outcome()
        assert outcome is not None
        assert (outcome.reason, outcome.ends_group) == (reason, True)


def test_a_lost_group_ends_the_trial_unless_a_rank_said_why():
    gone = broken("crashed", "rank 0: its process died (exit code 1)")
    trial, _ = posted()
    assert trial.lost(gone) is gone
    said = broken("oom", "rank 1: OutOfMemoryError: 3 GiB")
    trial.hear(Message(3, said))
    assert trial.lost(gone) is said


@pytest.mark.parametrize("how", ["one rank", "group ends", "lost"])
def test_a_failure_after_the_rounds_costs_what_was_still_open(how):
    trial, _ = posted()
    kept = complete()
    assert isinstance(kept.result, StepsResult)
    with_phases = kept.result.model_copy(update={"missing": {"local": "no memory"}})
    trial.hear(Message(3, Kept(kept, ("phases", "parity"))))
    trial.hear(Message(3, Kept(Outcome("complete", 2.0, result=with_phases), ("parity",))))
    failure = Outcome("oom", 9.0, "rank 1: OutOfMemoryError: 3 GiB", ends_group=how != "one rank")
    if how == "lost":
        outcome = trial.lost(failure)
    else:
        trial.hear(Message(3, failure))
        outcome = trial.outcome()
    assert outcome is not None
    assert (outcome.state, outcome.reason, outcome.wall_time_s) == ("complete", None, 9.0)
    assert outcome.ends_group == (how != "one rank")
    assert isinstance(outcome.result, StepsResult)
    assert outcome.result.rounds == kept.result.rounds
    reason = "oom afterwards: rank 1: OutOfMemoryError: 3 GiB"
    assert outcome.result.missing == {"local": "no memory", "parity": reason}


def test_step_times_are_handed_over_once():
    trial, _ = posted()
    kept = complete()
    times = object()
    first = Outcome("complete", 1.0, result=kept.result, step_times=(times,))  # type: ignore[arg-type]
    trial.hear(Message(3, Kept(first, ("phases", "parity"))))
    trial.hear(Message(3, Kept(kept, ("parity",))))
    assert trial.lost(broken("crashed", "gone")).step_times == (times,)

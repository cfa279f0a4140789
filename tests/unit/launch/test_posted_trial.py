"""What the driver makes of the messages of a worker group, whoever sends them, and whenever they come."""

import pytest

from raybench.launch.mailbox import PostedTrial
from raybench.records.messages import Begun, Message, Outcome, Progress
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
    assert (trial.begun, heard, trial.group_ends, trial.outcome()) == (False, [], False, None)
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
        assert trial.group_ends
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

"""What follows a search: the curves of the default and of what it found best, and the confirmation."""

from __future__ import annotations

from collections.abc import Sequence

from raybench.analysis import choice
from raybench.plan.trials import Plan, Trial
from raybench.records.record import TrialRecord
from raybench.records.requests import StepsRequest

CONFIRMATION = "the confirmation of the best suggestion against the default"


def curve_trials(plan: Plan, winners: Sequence[TrialRecord]) -> list[Trial]:
    """The default and ``winners`` at every world size, each trial once.

    The default first, at the target: were there time for one more trial only, it would be this one. All
    of one start of the workers come before the next start.
    """
    others = [each for each in winners if not choice.is_default(plan.study_in_numbers, each.config)]
    trials = [
        Trial(request, suggestion.number)
        for suggestion in [plan.default(), *map(plan.suggestion_of, others)]
        for request in plan.curve(suggestion, in_answer=True)
    ]
    unique = {trial.request.trial_id: trial for trial in trials}
    return sorted(unique.values(), key=lambda trial: trial.start)


def confirmations(plan: Plan, winners: Sequence[TrialRecord]) -> list[StepsRequest]:
    """Each winner and the default in the same rounds; not of one that needs other processes."""
    default = plan.default()
    return [
        plan.confirmation(plan.suggestion_of(each), default)
        for each in winners
        if not choice.is_default(plan.study_in_numbers, each.config)
        and each.config.environment == default.environment
    ]

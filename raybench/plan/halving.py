"""Which trainings are stopped early: asynchronous successive halving.

L. Li et al. (2020), "A system for massively parallel hyperparameter tuning", in the form that stops: of those
that have come to a rung, one of ``reduction_factor`` goes on, the others never do. What a training must
reach is settled when it begins, by those that have ended: of those beside it nothing is known.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from raybench.analysis.trained_run import POINTS
from raybench.plan.trials import Plan
from raybench.records.record import TrialRecord
from raybench.records.requests import TrainingRequest
from raybench.records.trainings import Rung


def with_rungs(plan: Plan, request: TrainingRequest, records: Sequence[TrialRecord]) -> TrainingRequest:
    """``request`` with what it must reach to go on; as it is where it is never stopped.

    That is so of whatever is trained without having been measured: the default, and an ablation's changes.
    """
    fixed = {each.trial_id for each in plan.training()}
    if request.trial_id in fixed or not request.training.rung_epochs:
        return request
    return request.model_copy(update={"rungs": tuple(_rungs(request, records))})


def _rungs(request: TrainingRequest, records: Sequence[TrialRecord]) -> Iterator[Rung]:
    """What each rung asks, where enough trainings came so far that not all may go on.

    Settings are compared with one seed, on equally many devices; what is within the tolerance is the same.
    """
    spec, config = request.training, request.config
    peers = [
        record.training.epochs
        for record in records
        if record.training is not None
        and record.trial_id != request.trial_id
        and (record.config.world_size, record.config.seed) == (config.world_size, config.seed)
    ]
    for number in spec.rung_epochs:
        reached = [epoch for epochs in peers for epoch in epochs if epoch.epoch == number]
        compared = len(reached) + 1
        going_on = max(compared // spec.reduction_factor, 1)
        accuracies = [each.test_accuracy for each in reached if each.test_accuracy is not None]
        losses = [each.test_loss for each in reached if each.test_loss is not None]
        if len(accuracies) >= going_on:
            last = sorted(accuracies, reverse=True)[going_on - 1]
            yield Rung(epoch=number, compared=compared, least_accuracy=last - spec.tolerance_points / POINTS)
        elif not accuracies and len(losses) >= going_on:
            yield Rung(epoch=number, compared=compared, most_loss=sorted(losses)[going_on - 1])

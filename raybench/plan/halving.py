"""Which trainings are stopped early: asynchronous successive halving.

L. Li et al. (2020), "A system for massively parallel hyperparameter tuning", in the form that stops: of those
that have come to a rung, one of ``reduction_factor`` goes on, the others never do. What a training must
reach is settled when it begins, by those that have ended: of those beside it nothing is known. So one that
may be stopped waits until there is one to hold it against, which as a rule is the default.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from raybench.analysis.trained_run import POINTS
from raybench.plan.training import training_requests
from raybench.plan.trials import Plan
from raybench.records.record import TrialRecord
from raybench.records.requests import Configuration, StudyRequest, TrainingRequest
from raybench.records.trainings import Rung


def with_rungs(plan: Plan, request: TrainingRequest, records: Sequence[TrialRecord]) -> TrainingRequest:
    """``request`` with what it must reach to go on; as it is where it is never stopped.

    That is so of whatever is trained without having been measured: the default, and an ablation's changes.
    """
    if not _may_be_stopped(plan, request):
        return request
    return request.model_copy(update={"rungs": tuple(_rungs(request, records))})


def waits_for_a_peer(
    plan: Plan, request: TrainingRequest, records: Sequence[TrialRecord], under_way: Iterable[StudyRequest]
) -> bool:
    """Whether nothing has ended that ``request`` may be held against, but will of what is under way."""
    if not _may_be_stopped(plan, request) or any(_is_peer(request, each) for each in records):
        return False
    asked = (each.config for each in under_way if each.kind == "training")
    return any(_are_compared(request.config, config) for config in asked)


def _may_be_stopped(plan: Plan, request: TrainingRequest) -> bool:
    fixed = {each.trial_id for each in training_requests(plan)}
    return request.trial_id not in fixed and bool(request.training.rung_epochs)


def _is_peer(request: TrainingRequest, record: TrialRecord) -> bool:
    """Whether the record is of another training that ``request`` is held against."""
    trained = record.training is not None and record.trial_id != request.trial_id
    return trained and _are_compared(request.config, record.config)


def _are_compared(one: Configuration, other: Configuration) -> bool:
    return (one.world_size, one.seed) == (other.world_size, other.seed)


def _rungs(request: TrainingRequest, records: Sequence[TrialRecord]) -> Iterator[Rung]:
    """What each rung asks, where enough trainings came so far that not all may go on.

    Settings are compared with one seed, on equally many devices; what is within the tolerance is the same.
    """
    spec = request.training
    peers = [
        record.training.epochs
        for record in records
        if record.training is not None and _is_peer(request, record)
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

"""Which trainings are stopped early: Optuna's pruners, asked with the curves of those that have ended.

What a training is compared with is fixed when it begins, so that its ranks agree without the driver, with
either runner, and after a resume.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import optuna
from optuna.pruners import BasePruner, HyperbandPruner, MedianPruner, SuccessiveHalvingPruner

from raybench.plan.training import training_requests
from raybench.plan.trials import Plan
from raybench.records.record import TrialRecord
from raybench.records.requests import Configuration, StudyRequest, TrainingRequest
from raybench.records.trainings import Epoch, LearningCurve, Pruned, learning_curve
from raybench.spec.study import Pruner

LEAST_PEERS = 2  # of which there is a median; Optuna's 5 are for studies of a hundred short trials
REDUCTION_FACTOR = 3  # one of so many goes on, after 1, 3, 9, ... epochs


def with_peers(plan: Plan, request: TrainingRequest, records: Sequence[TrialRecord]) -> TrainingRequest:
    """Return ``request`` with what the pruner compares it with; as it is where it is never stopped.

    Never stopped is whatever is trained without having been measured: the default, and an ablation's changes.
    """
    if not _may_be_pruned(plan, request):
        return request
    peers = tuple(
        learning_curve(each.training.epochs)
        for each in records
        if each.training is not None and each.trial_id != request.trial_id and _is_peer(request, each.config)
    )
    return request.model_copy(update={"pruner": plan.study.search.pruner, "peers": peers})


def waits_for_a_peer(
    plan: Plan, request: TrainingRequest, records: Iterable[TrialRecord], in_flight: Iterable[StudyRequest]
) -> bool:
    """Whether nothing has ended that ``request`` may be compared with, but a training in flight will."""
    if not _may_be_pruned(plan, request):
        return False
    ended = (each.config for each in records if each.training is not None)
    if any(_is_peer(request, config) for config in ended):
        return False
    return any(_is_peer(request, each.config) for each in in_flight if each.kind == "training")


def pruned_after(request: TrainingRequest, epochs: Sequence[Epoch]) -> Pruned | None:
    """Return why a training that has come so far goes no further; None: it goes on."""
    spec = request.training
    if request.pruner == "none" or not epochs or epochs[-1].epoch == spec.epochs:
        return None
    last = epochs[-1].epoch
    own = learning_curve(epochs)
    if not own or own[-1][0] != last:  # not evaluated
        return None
    study = optuna.create_study(
        study_name="training", direction="maximize", pruner=_pruner(request.pruner, spec.epochs)
    )
    for peer in request.peers:
        if peer:
            _, trial = _told(study, peer)
            study.tell(trial, peer[-1][1])
    should_prune, _ = _told(study, own)
    compared = 1 + sum(any(epoch == last for epoch, _ in peer) for peer in request.peers)
    return Pruned(epoch=last, pruner=request.pruner, compared=compared) if should_prune else None


def _told(study: optuna.Study, curve: LearningCurve) -> tuple[bool, optuna.Trial]:
    """A trial that has reported ``curve``, and whether the pruner stops it now."""
    trial, should_prune = study.ask(), False
    for epoch, score in curve:
        trial.report(score, epoch)
        should_prune = trial.should_prune()  # asked each time: rungs are kept with the trial
    return should_prune, trial


def _pruner(name: Pruner, epochs: int) -> BasePruner:
    if name == "median":
        return MedianPruner(n_startup_trials=LEAST_PEERS)
    if name == "successive_halving":
        return SuccessiveHalvingPruner(min_resource=1, reduction_factor=REDUCTION_FACTOR)
    return HyperbandPruner(min_resource=1, max_resource=epochs, reduction_factor=REDUCTION_FACTOR)


def _may_be_pruned(plan: Plan, request: TrainingRequest) -> bool:
    always = {each.trial_id for each in training_requests(plan)}
    return plan.study.search.pruner != "none" and request.trial_id not in always


def _is_peer(request: TrainingRequest, other: Configuration) -> bool:
    return (request.config.world_size, request.config.seed) == (other.world_size, other.seed)

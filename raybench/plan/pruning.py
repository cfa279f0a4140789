"""Which trainings are stopped early: Optuna's pruners, asked with the curves of those that have ended.

What a training is compared with is fixed when it begins, so that its ranks agree without the driver, with
either runner, and after a resume.
"""

from __future__ import annotations

from collections.abc import Sequence

import optuna
from optuna.pruners import BasePruner, HyperbandPruner, MedianPruner, SuccessiveHalvingPruner

from raybench.records.requests import LearningCurve, TrainingRequest
from raybench.records.results import Epoch, Pruned, learning_curve
from raybench.spec.study import Pruner

optuna.logging.set_verbosity(optuna.logging.WARNING)

LEAST_PEERS = 2  # of which there is a median; Optuna's 5 are for studies of a hundred short trials
REDUCTION_FACTOR = 3  # one of so many goes on, after 1, 3, 9, ... epochs


def pruned_after(request: TrainingRequest, epochs: Sequence[Epoch]) -> Pruned | None:
    """Return why a training that has come so far goes no further; None: it goes on."""
    spec = request.training
    if request.pruner == "none" or not epochs or epochs[-1].epoch == spec.epochs:
        return None
    last, own = epochs[-1].epoch, learning_curve(epochs)
    study = optuna.create_study(
        study_name="training", direction="maximize", pruner=_pruner(request.pruner, spec.epochs)
    )
    for peer in request.peers:
        _, trial = _replayed(study, peer)
        study.tell(trial, peer[-1][1])
    should_prune, _ = _replayed(study, own)
    return Pruned(epoch=last, pruner=request.pruner) if should_prune else None


def _replayed(study: optuna.Study, curve: LearningCurve) -> tuple[bool, optuna.Trial]:
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

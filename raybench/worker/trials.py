"""One trial on one rank, of whichever kind is asked for: the one place that tells the kinds apart."""

from __future__ import annotations

import torch

from raybench.records.requests import ProbeRequest, StepsRequest, TrialRequest
from raybench.worker.cache import Kept
from raybench.worker.communicators import Communicators, Team
from raybench.worker.outcome import OnProgress, RankResult, Trial, carried_through
from raybench.worker.steps.probe import ProbeTrial
from raybench.worker.steps.trial import StepsTrial
from raybench.worker.training.checkpoints import Checkpoints
from raybench.worker.training.trial import TrainingTrial


def run_trial(
    request: TrialRequest,
    ranks: tuple[int, ...],
    communicators: Communicators,
    device: torch.device,
    kept: Kept,
    on_progress: OnProgress,
    checkpoints: Checkpoints | None = None,
) -> RankResult | None:
    """Called on every rank of the group; None on ranks that do not take part.

    ``kept`` is the caller's, from one trial of the group to the next. ``checkpoints`` are those of a
    training trial, used on the team's leader.
    """
    team = communicators.team(ranks, request.timeout_s)
    if team is None:
        return None

    def make() -> Trial:
        return _make(request, team, device, kept, checkpoints if team.leads else None)

    return carried_through(make, team, device, on_progress)


def _make(
    request: TrialRequest, team: Team, device: torch.device, kept: Kept, checkpoints: Checkpoints | None
) -> Trial:
    if isinstance(request, StepsRequest):
        return StepsTrial(request, team, device, kept)
    if isinstance(request, ProbeRequest):
        return ProbeTrial(request, team, device, kept)
    return TrainingTrial.made_on_all_ranks(request, team, device, kept, checkpoints)

"""One trial on one rank, of whichever kind is asked for: the one place that tells the kinds apart."""

from __future__ import annotations

from pathlib import Path

from raybench.records.messages import Outcome
from raybench.records.requests import CollectivesRequest, ProbeRequest, StepsRequest, TrialRequest
from raybench.worker.collectives.collectives_trial import CollectivesTrial
from raybench.worker.communicators import Communicators
from raybench.worker.devices.device import Device
from raybench.worker.group_cache import GroupCache
from raybench.worker.outcome import Keep, OnProgress, RunnableTrial, run_and_release
from raybench.worker.steps.probe import ProbeTrial
from raybench.worker.steps.steps_trial import StepsTrial
from raybench.worker.training.checkpoints import Checkpoints
from raybench.worker.training.training_trial import TrainingTrial


def run_trial(
    request: TrialRequest,
    ranks: tuple[int, ...],
    communicators: Communicators,
    device: Device,
    cache: GroupCache,
    on_progress: OnProgress,
    *,
    checkpoints: Checkpoints | None = None,
    results: Path | None = None,
    keep: Keep = lambda kept, open_: None,
) -> Outcome | None:
    """Called on every rank of the group; None on ranks that do not take part.

    ``cache`` is the caller's, handed on from one trial of the group to the next. ``checkpoints`` are those
    of a training trial, ``results`` is the directory in which it keeps its model. ``keep`` is told of
    rounds or epochs when they are done. All three are used on the team's leader.
    """
    team = communicators.team(ranks, request.timeout_s)
    if team is None:
        return None

    def make() -> RunnableTrial:
        if isinstance(request, StepsRequest):
            return StepsTrial(request, team, device, cache, keep)
        if isinstance(request, ProbeRequest):
            return ProbeTrial(request, team, device, cache)
        if isinstance(request, CollectivesRequest):
            return CollectivesTrial(request, team, device)
        places = (checkpoints, results) if team.leads else (None, None)
        return TrainingTrial.made_on_all_ranks(request, team, device, cache, *places, keep=keep)

    return run_and_release(make, team, device, on_progress)

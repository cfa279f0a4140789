"""One trial on one rank, of whichever kind: made, run, and ended so that nothing of it is left."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack, nullcontext, suppress
from dataclasses import replace
from pathlib import Path

import torch

from raybench.errors import CODE_FAILS
from raybench.records.messages import Keep, OnProgress, Outcome, RankFile
from raybench.records.requests import (
    CollectivesRequest,
    Configuration,
    ProbeRequest,
    StepsRequest,
    TrialRequest,
)
from raybench.spec.workloads import ScriptSpec
from raybench.worker.collectives_trial import measure_collectives
from raybench.worker.communicators import Communicators, Team
from raybench.worker.devices.device import Device
from raybench.worker.failures import drop_frames, failure_result
from raybench.worker.group_cache import GroupCache, RankContext
from raybench.worker.memory import memory_limits_of_ranks
from raybench.worker.scripts.script_trial import ScriptTrial
from raybench.worker.steps.steps_trial import StepsTrial, probe
from raybench.worker.training.training_trial import TrainingTrial


def run_trial(
    request: TrialRequest,
    ranks: tuple[int, ...],
    communicators: Communicators,
    device: Device,
    cache: GroupCache,
    on_progress: OnProgress,
    *,
    results: Path | None = None,
    keep: Keep = lambda kept, open_: None,
) -> Outcome | None:
    """Called on every rank of the group; None on ranks that do not take part.

    ``cache`` is the caller's, handed on from one trial of the group to the next. ``results`` is the directory
    in which a training trial keeps its checkpoints and its model. ``keep`` gets rounds or epochs when they
    are done. Both are used on the team's leader.
    """
    team = communicators.team(ranks, request.timeout_s)
    if team is None:
        return None

    config, context = request.config, RankContext(team, device, cache)
    is_script = isinstance(config, Configuration) and isinstance(config.workload, ScriptSpec)

    def run(on_progress: OnProgress, held: ExitStack, files: list[RankFile]) -> Outcome:
        if isinstance(request, CollectivesRequest):
            return measure_collectives(request, team, device, on_progress)
        if isinstance(request, StepsRequest) and is_script:
            return ScriptTrial(request, team, device).run(on_progress, held, files)
        if isinstance(request, StepsRequest):
            return StepsTrial(request, context, keep).run(on_progress, held, files)
        if isinstance(request, ProbeRequest):
            return probe(request, context, on_progress, held)
        memory_limits_of_ranks(context)
        place = results if team.leads else None
        trial = team.agreed(lambda: TrainingTrial(request, context, place, keep))
        return trial.run(on_progress, held)

    return run_and_release(run, team, device, on_progress, uses_team=not is_script)


def run_and_release(
    run: Callable[[OnProgress, ExitStack, list[RankFile]], Outcome],
    team: Team,
    device: Device,
    on_progress: OnProgress,
    *,
    uses_team: bool = True,
) -> Outcome:
    """Run a trial and release what it held, however it ends; only the leader reports progress.

    ``run`` is given what is closed before the process group goes, and a list for files that this rank makes.
    The team's groups are used before anything is made: what they take is not to be missing later. Not with a
    script, which has groups of its own, and the memory of the GPU.
    """
    files = list[RankFile]()
    give_back, has_failed = device.end_trial, False
    with ExitStack() as held:
        try:
            if uses_team:
                team.use_once(device)
            result = run(on_progress if team.leads else lambda progress: None, held, files)
            result = result if team.leads else Outcome(result.state)
        except CODE_FAILS as error:
            # what did not fit is not in the next one's way
            give_back, has_failed = device.release_memory, True
            result = failure_result(error, team)
            drop_frames(error)
    # what cannot be given back as the context is lost is in the outcome of what failed
    with suppress(torch.AcceleratorError) if has_failed else nullcontext():
        give_back()
    return replace(result, files=tuple(files))

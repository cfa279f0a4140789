"""How a trial of any kind ends on one rank, and how one is run so that it ends without leaving anything."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from raybench.errors import CODE_FAILS, InvalidBatchError, InvalidTrialError
from raybench.records.messages import Outcome, Progress
from raybench.records.record import State
from raybench.worker.communicators import Team
from raybench.worker.devices.device import Device
from raybench.worker.failures import AgreedFailure, describe, drop_frames, is_out_of_memory
from raybench.workloads.own_code import frames_of

OnProgress = Callable[[Progress], None]


# what a trial brings whose rounds or epochs are done, and what is still to come
Keep = Callable[[Outcome, tuple[str, ...]], None]


class RunnableTrial(Protocol):
    """A trial of any kind on one rank."""

    def run(self, on_progress: OnProgress) -> Outcome:
        """Measure; every rank of the team calls it. Whatever fails is raised."""
        ...

    def release(self) -> None:
        """Drop the models before their process group goes."""
        ...


def run_and_release(
    make: Callable[[], RunnableTrial], team: Team, device: Device, on_progress: OnProgress
) -> Outcome:
    """Make a trial, run it and release what it held, however it ends; only the leader tells progress.

    The team's groups are used before anything is made: what they take is not to be missing later.
    """
    trial: RunnableTrial | None = None
    give_back = device.end_trial
    try:
        team.use_once(device)
        trial = make()
        result = trial.run(on_progress if team.leads else _ignore)
        return result if team.leads else Outcome(result.state, files=result.files)
    except CODE_FAILS as error:
        give_back = device.release_memory  # what did not fit must not be in the next trial's way
        result = failure_result(error, team)
        drop_frames(error)
        return result
    finally:
        if trial is not None:
            trial.release()
        del trial
        give_back()


def failure_result(error: BaseException, team: Team) -> Outcome:
    """How a trial ended that raised ``error`` on this rank."""
    if isinstance(error, AgreedFailure):
        state: State = "oom" if error.out_of_memory else "invalid" if error.invalid else "crashed"
        return Outcome(state, reason=str(error), frames=error.frames if state == "crashed" else ())
    if isinstance(error, InvalidBatchError):
        return Outcome("invalid", reason=f"rank {team.ranks[team.rank]}: {describe(error)}", broken=True)
    if isinstance(error, InvalidTrialError):
        return Outcome("invalid", reason=str(error))  # every rank found it at once: nobody waits
    if type(error).__name__ == "FailOnRecompileLimitHit":
        reason = "compile: torch gave up, as shapes or graph keep changing"
        return Outcome("invalid", reason=reason, broken=True)
    reason = f"rank {team.ranks[team.rank]}: {describe(error)}"
    if is_out_of_memory(error):
        return Outcome("oom", reason=reason, broken=True)
    return Outcome("crashed", reason=reason, broken=True, frames=frames_of(error))


def _ignore(progress: Progress) -> None:
    pass

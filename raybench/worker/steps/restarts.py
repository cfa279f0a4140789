"""What it costs an epoch that its loader starts again: steps are timed without that, and training pays it."""

from __future__ import annotations

import math
from collections.abc import Callable
from time import perf_counter
from typing import Any

from raybench.errors import InvalidTrialError
from raybench.records.results import Restart
from raybench.worker.batches import RealBatches, whole_turns
from raybench.worker.communicators import Team
from raybench.worker.strategies.models import StrategyModels

MOST, LEAST = 6, 3  # timed
MIN_BATCHES = 2  # of which the usual wait is reported
MAX_SHARE = 0.25  # of the trial's time


def restarts_of_trial(models: StrategyModels, team: Team, max_seconds: float) -> tuple[Restart, ...]:
    """Short epochs of the model under its strategy, whose loader starts again. A collective call.

    Only with real input. A loader that fails is agreed on; ``InvalidTrialError`` where one takes too long for
    a trial of ``max_seconds``.
    """
    models.activate()
    stepper = models.wrapped if models.wrapped is not None else models.bare
    own = stepper.batches
    # half of an epoch: as many as empty a full loader, in which the start shows, and as many again
    least = math.ceil(max(own.prefetched, MIN_BATCHES) / stepper.batches_per_step)
    steps = whole_turns(least, own, stepper.batches_per_step)

    def watched() -> _WatchedBatches:
        assert isinstance(own, RealBatches)
        stand_in = own.next()
        for batches in (own, models.batches):
            if isinstance(batches, RealBatches):
                batches.pause()  # its processes would take memory next to those of the other loader
        ending = own.ending_after(2 * steps * stepper.batches_per_step)
        return _WatchedBatches(ending, stand_in, models.device.synchronize)

    is_dp = models.setting.strategy == "dp"

    def epoch() -> None:
        for _ in range(2 * steps if team.leads or not is_dp else 0):
            stepper.step()

    # where ranks do not wait for each other within a step, its failure is agreed on
    run = (lambda: team.agreed(epoch)) if is_dp or team.size == 1 else epoch
    try:
        stepper.batches = watching = team.agreed(watched)
        return _short_epochs(run, watching, team, max_seconds)
    finally:
        stepper.batches = own


class _WatchedBatches:
    """The batches of a loader, each wait timed.

    A loader that fails is reported later: the other ranks are in the same step, which ends with ``stand_in``.
    """

    prefetched = 0

    def __init__(self, batches: RealBatches, stand_in: Any, synchronize: Callable[[], None]) -> None:
        self._batches, self._last, self._synchronize = batches, stand_in, synchronize
        self._waits: list[float] = []
        self.failure: Exception | None = None

    def next(self) -> Any:
        """The next one."""
        self._synchronize()  # while a device still computes nothing is waited for
        began = perf_counter()
        if self.failure is None:
            try:
                self._last = self._batches.next()
            except Exception as error:
                self.failure = error
        self._waits.append(perf_counter() - began)
        return self._last

    def take_waits(self) -> list[float]:
        """How long each batch since the last call was waited for, in s."""
        waits, self._waits = self._waits, []
        return waits


def _short_epochs(
    epoch: Callable[[], None], watching: _WatchedBatches, team: Team, max_seconds: float
) -> tuple[Restart, ...]:
    """The restarts of one ``epoch`` after the other; the first one only starts the loader."""
    began, restarts, before_s = perf_counter(), list[Restart](), 0.0
    while True:
        epoch()
        team.agree(watching.failure)
        reports = team.gather((watching.take_waits(), perf_counter() - began))
        elapsed_s = reports[0][1]  # the leader's, so that all ranks stop together
        if before_s:
            restarts.append(_restart([waits for waits, _ in reports if waits]))
        epoch_s, before_s = elapsed_s - before_s, elapsed_s
        if not restarts and LEAST * epoch_s > max_seconds:
            what = f"a few steps with a start of the loader took {epoch_s:.1f} s"
            raise InvalidTrialError(f"{what}: no time for {LEAST} times that")
        is_late = len(restarts) >= LEAST and elapsed_s + epoch_s > MAX_SHARE * max_seconds
        if is_late or len(restarts) == MOST:
            return tuple(restarts)


def _restart(waits_of_ranks: list[list[float]]) -> Restart:
    """Of one epoch, its first half against its second."""
    slowest = [max(waits) for waits in zip(*waits_of_ranks, strict=True)]
    half = len(slowest) // 2
    return Restart(
        num_batches=half,
        waited_s=sum(slowest[:half]),
        usual_s=sum(slowest[half:]) / half,
    )

"""When in the backward pass each gradient is ready to be sent: of DDP without transfers, in steps of their own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from statistics import fmean, median
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import nn

from raybench.errors import InvalidTrialError
from raybench.records.measurements import GradientTimeline, Phase
from raybench.worker.batches import drop_ready, whole_turns
from raybench.worker.communicators import Team
from raybench.worker.devices.base import Device
from raybench.worker.steps.replay import Replay
from raybench.worker.strategies.ddp_report import bucket_bytes
from raybench.worker.strategies.models import StrategyModels
from raybench.worker.strategies.stepper import Stepper

MOST_STEPS, LEAST_STEPS, DISCARD = 30, 3, 1
MAX_SHARE = 0.15  # of the trial's time
MOST_PARAMETERS = 20_000  # whose times a record has room for
DIGITS = 6  # of a time in s
REPLAY_S = 0.3  # of all-reduces, while the cores that they take are counted


@dataclass(frozen=True)
class _RankTimes:
    """What one rank has timed, each the median over its steps, in s."""

    ready_s: NDArray[np.float64]  # shape ``(parameters,)``, in the order of ``nn.Module.parameters``
    before_s: float
    backward_s: float
    after_s: float
    micro_batch_s: float | None
    communication_cores: float | None


def gradient_timeline(
    models: StrategyModels, team: Team, *, step_s: float, replay_s: float | None, max_seconds: float
) -> GradientTimeline:
    """A step of the twin on every rank, medians over steps and means over ranks. A collective call.

    Raises ``InvalidTrialError`` where one order of the gradients does not say how DDP sends them.
    """
    assert models.twin is not None
    twin, device = models.twin, models.device
    parameters = [each for each in twin.module.parameters() if each.requires_grad]
    if len({(each.dtype, each.device) for each in parameters}) > 1:
        raise InvalidTrialError("parameters of several types, which DDP sends in buckets of their own")
    if len(parameters) > MOST_PARAMETERS:
        raise InvalidTrialError(f"more than {MOST_PARAMETERS:,} parameters")
    affordable = int(MAX_SHARE * max_seconds / step_s) - DISCARD
    num_steps = whole_turns(
        max(LEAST_STEPS, min(MOST_STEPS, affordable)), twin.batches, twin.batches_per_step
    )
    models.activate()
    team.barrier()
    cores = _communication_cores(models, team, replay_s)
    team.barrier()
    own = team.agreed(lambda: _timed(twin, parameters, device, num_steps, cores))
    ranks: list[_RankTimes] = team.gather(own)
    # the leader's order is the one in which DDP has filled the buckets of all ranks
    order = np.argsort(ranks[0].ready_s, kind="stable")
    ready_s = np.mean([each.ready_s for each in ranks], axis=0)[order]
    known = [each.communication_cores for each in ranks if each.communication_cores is not None]
    micro = [each.micro_batch_s for each in ranks if each.micro_batch_s is not None]
    return GradientTimeline(
        parameter_bytes=tuple(parameters[index].nbytes for index in order),
        ready_s=tuple(round(float(time), DIGITS) for time in np.maximum.accumulate(ready_s)),
        before_s=round(fmean(each.before_s for each in ranks), DIGITS),
        backward_s=round(fmean(each.backward_s for each in ranks), DIGITS),
        after_s=round(fmean(each.after_s for each in ranks), DIGITS),
        micro_batch_s=round(fmean(micro), DIGITS) if micro else None,
        num_steps=num_steps,
        communication_cores=round(fmean(known), DIGITS) if known else None,
    )


def _timed(
    stepper: Stepper, parameters: list[nn.Parameter], device: Device, num_steps: int, cores: float | None
) -> _RankTimes:
    """Steps of this rank, each gradient's moment marked."""
    drop_ready(stepper.batches)
    stopwatch, marks = device.stopwatch(), list[Phase | int]()

    def mark(what: Phase | int) -> None:
        stopwatch.lap()
        marks.append(what)

    steps = list[tuple[list[Phase | int], NDArray[np.float64]]]()
    with _hooked(parameters, mark):
        for _ in range(DISCARD + num_steps):
            marks.clear()
            stopwatch.start()
            stepper.step(mark)
            steps.append((list(marks), np.cumsum(stopwatch.read())))
    # on a GPU the device is waited for between steps, so each is a step that begins on an idle device
    found = [_taken_apart(order, moments, len(parameters)) for order, moments in steps[DISCARD:]]
    micro = [each.micro_batch_s for each in found if each.micro_batch_s is not None]
    return _RankTimes(
        np.median([each.ready_s for each in found], axis=0),
        median(each.before_s for each in found),
        median(each.backward_s for each in found),
        median(each.after_s for each in found),
        median(micro) if micro else None,
        cores,
    )


def _taken_apart(order: list[Phase | int], moments: NDArray[np.float64], num_parameters: int) -> _RankTimes:
    """One step; ``moments`` are those of the marks in ``order``, in s since the step began."""
    passes = [float(moment) for what, moment in zip(order, moments, strict=True) if what == "backward"]
    begins = [float(moment) for what, moment in zip(order, moments, strict=True) if what == "forward"]
    begin_s, end_s = begins[-1], passes[-1]
    ready_s = np.full(num_parameters, np.nan)
    for what, moment in zip(order, moments, strict=True):
        if isinstance(what, int) and moment >= begin_s:
            ready_s[what] = moment - begin_s
    if np.isnan(ready_s).any():
        raise InvalidTrialError("a parameter has no gradient in this step")
    micro_batch_s = passes[-2] / (len(passes) - 1) if len(passes) > 1 else None
    return _RankTimes(ready_s, begin_s, end_s - begin_s, float(moments[-1]) - end_s, micro_batch_s, None)


@contextmanager
def _hooked(parameters: list[nn.Parameter], mark: Callable[[int], None]) -> Iterator[None]:
    """``mark`` hears of each gradient when DDP has copied it into its bucket.

    Hooks of one node run in the order in which they came: DDP's came first, and it keeps the node.
    """
    handles = []
    for index, parameter in enumerate(parameters):
        function = parameter.view_as(parameter).grad_fn
        assert function is not None
        node = function.next_functions[0][0]
        assert node is not None

        def hear(*_: Any, index: int = index) -> None:
            mark(index)

        handles.append(node.register_hook(hear))
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def _communication_cores(models: StrategyModels, team: Team, replay_s: float | None) -> float | None:
    """What the all-reduces take of this rank's cores while nothing else runs; None where there are none.

    Who computes meanwhile has to share its core with them. A collective call.
    """
    if models.device.kind != "cpu" or models.wrapped is None or replay_s is None:
        return None
    sizes = bucket_bytes(models.wrapped.module)  # type: ignore[arg-type]
    replay = Replay(sizes, team, models.device.torch_device, models.communication)
    replay.step()
    meter = models.device.utilization_meter(1)
    meter.start()
    began = perf_counter()
    for _ in range(max(1, min(20, round(REPLAY_S / replay_s)))):
        replay.step()
    meter.stop(perf_counter() - began)
    return meter.mean()

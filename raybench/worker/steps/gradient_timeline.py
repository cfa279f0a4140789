"""When in the backward pass each gradient is ready: by DDP without transfers, in separate steps."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from statistics import fmean
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import nn

from raybench.errors import InvalidTrialError
from raybench.records.requests import Variant
from raybench.records.results import GradientTimeline, Phase
from raybench.worker.batches import affordable_steps, drop_ready, whole_turns
from raybench.worker.communicators import Team
from raybench.worker.devices.device import Device
from raybench.worker.steps.replay import communication_cores
from raybench.worker.strategies.models import StrategyModels
from raybench.worker.strategies.stepper import Stepper

MOST_STEPS, LEAST_STEPS, DISCARD = 30, 3, 1
MAX_SHARE = 0.15  # of the trial's time
MOST_PARAMETERS = 20_000  # whose times a record has room for
DIGITS = 6  # of a time in s


# Of one step, in s: until its last backward pass, that pass, after it, each micro-batch before the last (or
# 0); then when the gradient of each parameter is ready, in the order of ``nn.Module.parameters``.
Moments = NDArray[np.float64]
NUM_PARTS = 4


def gradient_timeline(
    models: StrategyModels, team: Team, step_s: Mapping[Variant, float], max_seconds: float
) -> GradientTimeline:
    """A step of the twin on every rank, medians over steps and means over ranks. A collective call.

    ``step_s``: of each variant; ``max_seconds``: the trial's time. Raises ``InvalidTrialError`` where one
    order of the gradients does not say how DDP sends them.
    """
    assert models.twin is not None
    twin, device = models.twin, models.device
    parameters = [each for each in twin.module.parameters() if each.requires_grad]
    if len({(each.dtype, each.device) for each in parameters}) > 1:
        raise InvalidTrialError("parameters of several types, which DDP sends in buckets of their own")
    if len(parameters) > MOST_PARAMETERS:
        raise InvalidTrialError(f"more than {MOST_PARAMETERS:,} parameters")
    seconds, local_s = MAX_SHARE * max_seconds, 1.5 * step_s["local"]
    steps = affordable_steps(seconds, local_s, MOST_STEPS, least=LEAST_STEPS, apart=DISCARD)
    num_steps = whole_turns(steps, twin.batches, twin.batches_per_step)
    models.activate()
    team.barrier()
    cores = communication_cores(models, team, step_s.get("replay"))
    team.barrier()
    own = team.agreed(lambda: _timed(twin, parameters, device, num_steps))
    ranks: list[tuple[Moments, float | None]] = team.gather((own, cores))
    mean = np.mean([moments for moments, _ in ranks], axis=0).round(DIGITS)
    before_s, backward_s, after_s, micro_batch_s = mean[:NUM_PARTS].tolist()
    # the leader's order is the one in which DDP has filled the buckets of all ranks
    order = np.argsort(ranks[0][0][NUM_PARTS:], kind="stable")
    known = [cores for _, cores in ranks if cores is not None]
    return GradientTimeline(
        parameter_bytes=tuple(parameters[index].nbytes for index in order),
        element_bytes=parameters[0].element_size(),
        ready_s=tuple(np.maximum.accumulate(mean[NUM_PARTS:][order]).tolist()),
        before_s=before_s,
        backward_s=backward_s,
        after_s=after_s,
        micro_batch_s=micro_batch_s or None,
        num_steps=num_steps,
        communication_cores=round(fmean(known), DIGITS) if known else None,
    )


def _timed(stepper: Stepper, parameters: list[nn.Parameter], device: Device, num_steps: int) -> Moments:
    """Steps of this rank, each gradient's moment marked; medians over them."""
    drop_ready(stepper.batches)
    stopwatch, marks, steps = device.stopwatch(), list[Phase | int](), list[Moments]()

    def mark(what: Phase | int) -> None:
        """A phase, or the gradient of the parameter of this number, is done."""
        stopwatch.lap()
        marks.append(what)

    with _hooked(parameters, mark):
        for _ in range(DISCARD + num_steps):
            marks.clear()
            stopwatch.start()
            stepper.step(mark)
            # waits for the device, so that each step begins on an idle one
            steps.append(_taken_apart(marks, np.cumsum(stopwatch.read()), len(parameters)))
    found: Moments = np.median(steps[DISCARD:], axis=0)
    return found


def _taken_apart(order: Sequence[Phase | int], moments: NDArray[np.float64], num_parameters: int) -> Moments:
    """``moments`` are those of the marks in ``order``, in s since the step began."""
    marks = list(zip(order, moments.tolist(), strict=True))
    passes = [moment for what, moment in marks if what == "backward"]
    begin_s, end_s = [moment for what, moment in marks if what == "forward"][-1], passes[-1]
    ready_s = np.full(num_parameters, np.nan)
    for what, moment in marks:
        if isinstance(what, int) and moment >= begin_s:
            ready_s[what] = moment - begin_s
    if np.isnan(ready_s).any():
        raise InvalidTrialError("a parameter has no gradient in this step")
    micro_batch_s = passes[-2] / (len(passes) - 1) if len(passes) > 1 else 0.0
    return np.array([begin_s, end_s - begin_s, moments[-1] - end_s, micro_batch_s, *ready_s])


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

"""A few steps in detail when the rounds are done: phases, gradients, DataParallel's parts, traces.

Marks inside a step cost time on GPUs and on CPUs, so phases and gradients have steps of their own.
torch.profiler slows what it watches, so nothing of a trace is timed: it shows the order of things and what
runs at once. Its ranges are the phases of a step, as raybench names them.
"""

from __future__ import annotations

import gzip
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from statistics import fmean
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any, Literal
from unittest import mock

import numpy as np
import torch.profiler
from numpy.typing import NDArray
from torch import nn

from raybench.errors import InvalidTrialError
from raybench.records.messages import RankFile
from raybench.records.requests import Variant
from raybench.records.results import DataParallelPart, GradientTimeline, Phase, PhaseBlock
from raybench.worker.batches import affordable_steps, drop_ready, whole_turns
from raybench.worker.communicators import Team
from raybench.worker.devices.device import Device
from raybench.worker.steps.replay import communication_cores
from raybench.worker.strategies.models import StrategyModels
from raybench.worker.strategies.stepper import Stepper

NUM_BLOCKS, MAX_STEPS, DISCARD = 5, 3, 1
MAX_SHARE = 0.25  # of the trial's time
PHASES: tuple[Phase, ...] = ("data", "forward", "backward", "optimizer")


def phases_of_trial(
    models: StrategyModels, team: Team, has_plain: bool, step_s: float, max_seconds: float
) -> tuple[PhaseBlock, ...]:
    """Blocks of the bare model on the leader alone, and of the twin or the model under its strategy.

    Means over steps and ranks. A collective call.
    """
    steppers: dict[Literal["plain", "local", "ddp"], Stepper] = {"plain": models.bare} if has_plain else {}
    if models.twin is not None:
        steppers["local"] = models.twin
    elif models.wrapped is not None and models.setting.strategy != "dp":
        if models.setting.strategy == "ddp":
            team.broadcast(models.wrapped.tensors())
        steppers["ddp"] = models.wrapped
    seconds, blocks = MAX_SHARE * max_seconds / (NUM_BLOCKS * len(steppers)), []
    num_steps = affordable_steps(seconds, step_s, MAX_STEPS, apart=DISCARD)
    for _ in range(NUM_BLOCKS):
        for variant, stepper in steppers.items():
            models.activate()
            team.barrier()
            steps = whole_turns(num_steps, stepper.batches, stepper.batches_per_step)
            timed = partial(_time_phases, stepper, models.device, steps)
            if variant == "ddp":
                reports = team.gather(timed())
            else:  # ranks do not wait for each other: a failure is agreed on
                takes_part = variant == "local" or team.leads
                with ExitStack() as sending:
                    if variant == "local" and models.collectives is not None:
                        models.collectives.leave_out()
                        sending.callback(models.collectives.put_back)
                    phases = team.agreed(timed) if takes_part else team.agreed(lambda: None)
                reports = [report for report in team.gather(phases) if report is not None]
            mean = {phase: sum(report[phase] for report in reports) / len(reports) for phase in reports[0]}
            blocks.append(PhaseBlock(variant=variant, seconds=mean, num_steps=steps))
    return tuple(blocks)


def _time_phases(stepper: Stepper, device: Device, num_steps: int) -> dict[Phase, float]:
    """Mean over steps, in s; "other" is what lies between one step's last mark and the next step."""
    drop_ready(stepper.batches)
    for _ in range(DISCARD):
        stepper.step()
    device.synchronize()
    stopwatch, order = device.stopwatch(), list[Phase]()

    def mark(phase: Phase) -> None:
        stopwatch.lap()
        order.append(phase)

    stopwatch.start()
    for _ in range(num_steps):
        stepper.step(mark)
        mark("other")
    totals: dict[Phase, float] = defaultdict(float)
    for phase, seconds in zip(order, stopwatch.read(), strict=True):
        totals[phase] += float(seconds)
    return {phase: totals[phase] / num_steps for phase in (*PHASES, "other")}


TIMELINE_STEPS, LEAST_STEPS = 30, 3
TIMELINE_SHARE = 0.15  # of the trial's time
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
    seconds, local_s = TIMELINE_SHARE * max_seconds, 1.5 * step_s["local"]
    steps = affordable_steps(seconds, local_s, TIMELINE_STEPS, least=LEAST_STEPS, apart=DISCARD)
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
    with ExitStack() as hooks:
        for index, parameter in enumerate(parameters):
            function = parameter.view_as(parameter).grad_fn
            assert function is not None
            node = function.next_functions[0][0]
            assert node is not None
            hooks.callback(node.register_hook(lambda *_, index=index: mark(index)).remove)
        yield


DP_PARTS: tuple[DataParallelPart, ...] = ("scatter", "replicate", "gather")
DP_STEPS, DP_DISCARD = 10, 2


def data_parallel_seconds(
    models: StrategyModels, team: Team, step_s: float, max_seconds: float
) -> dict[str, Any]:
    """What DataParallel's own parts take of a step, in s, all its devices waited for around each.

    A collective call: the leader steps.
    """
    num_steps = affordable_steps(MAX_SHARE * max_seconds, step_s, DP_STEPS, apart=DP_DISCARD)

    def timed() -> dict[DataParallelPart, float]:
        assert models.wrapped is not None
        stepper, seconds = models.wrapped, dict.fromkeys(DP_PARTS, 0.0)

        def in_time(part: DataParallelPart) -> Callable[..., Any]:
            call = getattr(stepper.module, part)

            def run(*args: Any, **kwargs: Any) -> Any:
                models.device.synchronize(models.dp_devices)
                began = perf_counter()
                made = call(*args, **kwargs)
                models.device.synchronize(models.dp_devices)
                seconds[part] += (perf_counter() - began) / num_steps
                return made

            return run

        for _ in range(DP_DISCARD):
            stepper.step()
        with ExitStack() as patched:
            for part in DP_PARTS:
                patched.enter_context(mock.patch.object(stepper.module, part, in_time(part)))
            for _ in range(num_steps):
                stepper.step()
        return seconds

    return {"data_parallel_s": team.from_leader(team.agreed(lambda: timed() if team.leads else None))}


WAIT, WARM_UP, ACTIVE = 1, 1, 3  # steps: as they are, watched but thrown away, recorded
TRACE_SHARE = 0.25  # of the trial's time
MAX_BYTES = 20 * 2**20  # of one rank's file, compressed: some 300 MB as text, which Perfetto still opens
MAX_OF_ALL = 256 * 2**20  # of all ranks' files, which are one message


def traces(models: StrategyModels, team: Team, step_s: float, max_seconds: float) -> tuple[RankFile, ...]:
    """This rank's trace; none on a rank that dp's leader drives. A collective call."""
    models.activate()
    if models.wrapped is not None and models.setting.strategy == "ddp":
        team.broadcast(models.wrapped.tensors())  # equal on all ranks
    stepper, device = models.measured_stepper(team), models.device
    num_steps = affordable_steps(TRACE_SHARE * max_seconds, step_s, ACTIVE, apart=WAIT + WARM_UP)
    profiler = None if stepper is None else _profiled(stepper, device, num_steps)
    team.barrier()  # the others work on: what follows is no part of anybody's step
    return team.agreed(lambda: () if profiler is None else (_exported(profiler, team),))


def _profiled(stepper: Stepper, device: Device, num_steps: int) -> torch.profiler.profile:
    """Steps under the profiler, the last ``num_steps`` of them recorded; the device is idle around those."""
    schedule = torch.profiler.schedule(wait=WAIT, warmup=WARM_UP, active=num_steps, repeat=1)
    profiler = torch.profiler.profile(activities=device.profiler_activities, schedule=schedule)
    with profiler:
        for number in range(WAIT + WARM_UP + num_steps):
            _step_in_ranges(stepper)
            if number in (WAIT + WARM_UP - 1, WAIT + WARM_UP + num_steps - 1):
                device.synchronize()
            profiler.step()
    return profiler


def _step_in_ranges(stepper: Stepper) -> None:
    """A step whose phases are ranges of the trace: "raybench/data", "raybench/forward", ..."""
    *micro_batch, last = PHASES
    names = iter((*micro_batch * stepper.batches_per_step, last))
    with ExitStack() as open_range:

        def begin_next(_: Any = None) -> None:
            open_range.close()
            name = next(names, None)
            if name is not None:
                open_range.enter_context(torch.profiler.record_function(f"raybench/{name}"))

        begin_next()
        stepper.step(begin_next)


def _exported(profiler: torch.profiler.profile, team: Team) -> RankFile:
    """The trace, named as TensorBoard looks for it. Raises ``InvalidTrialError`` where it is too large."""
    with TemporaryDirectory(prefix="raybench-") as folder:
        path = Path(folder) / "trace.json"
        profiler.export_chrome_trace(str(path))
        content = gzip.compress(path.read_bytes(), compresslevel=6, mtime=0)
    most = min(MAX_BYTES, MAX_OF_ALL // team.size)
    if len(content) > most:
        raise InvalidTrialError(f"a trace of {len(content):,} bytes: a rank may have {most:,}")
    return RankFile(f"rank{team.ranks[team.rank]}.pt.trace.json.gz", content)

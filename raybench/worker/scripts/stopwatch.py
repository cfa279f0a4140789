"""What a script's process runs: the script as it is, timed from one optimizer step to the next.

torch's global optimizer hooks are the stopwatch. ``DistributedDataParallel`` takes the study's knobs, and
sends gradients or keeps them, as each block of steps asks. After a block this process reports to its rank,
and waits for the next order.
"""

from __future__ import annotations

import functools
import inspect
import itertools
import math
import os
import re
import runpy
import sys
import threading
import traceback
import weakref
import zlib
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence, Sized
from dataclasses import dataclass, field, replace
from multiprocessing.connection import Connection
from pathlib import Path
from statistics import fmean, median, median_high
from time import perf_counter
from typing import Any, Literal

import numpy as np
import torch
import torch.distributed as dist
import torch.multiprocessing
from numpy.typing import NDArray
from torch._C._distributed_c10d import BuiltinCommHookType
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook, fp16_compress_hook
from torch.nn.parallel import DistributedDataParallel
from torch.optim.optimizer import (
    Optimizer,
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)
from torch.utils.data.dataloader import DataLoader, _BaseDataLoaderIter, _DatasetKind

from raybench.errors import InvalidTrialError
from raybench.records.results import Phase
from raybench.worker.communicators import num_called
from raybench.worker.devices.device import status_bytes
from raybench.worker.failures import RankFailure, describe
from raybench.worker.strategies.ddp import (
    SYNC_BUFFERS,
    SilentGroup,
    bucket_bytes,
    compression_hook,
    gradient_bytes,
    no_transfer,
)

OWN_DIRECTORY = (
    "the script runs in an empty directory: use absolute paths, or --set workload.links=DIRECTORY to have it "
    "there"
)
_NO_FILE = re.compile(r"no such file|not found|download", re.IGNORECASE)  # torchvision's words among them
OWN_HOOK = "its DDP registers a hook of its own in its constructor"
TAKES_OVER = 3  # steps of another optimizer without one of the clock's: those of a GAN take turns
MOST = 0.6  # of the steps, which draw from a loader that trains
RARE = 0.25  # of the steps: a data set that fewer draw from, alongside another, is an evaluation's
ASKED = "_raybench_asked"  # of a loader's iterator: places of the samples of the batches that it will give
BUILT_IN = {  # hooks of DDP's in C++
    BuiltinCommHookType.ALLREDUCE: allreduce_hook,
    BuiltinCommHookType.FP16_COMPRESS: fp16_compress_hook,
}
ScriptVariant = Literal["plain", "ddp", "local"]
# Of each data set, by its identity and length (0: unknown): batches and samples that were drawn in a step.
Drawn = dict[tuple[int, int], tuple[int, int]]


@dataclass(frozen=True)
class Launch:
    """What a rank runs."""

    rank: int  # of the worker group, as failures name it
    script: str  # a file, or a module
    is_module: bool
    arguments: tuple[str, ...]
    ddp_arguments: Mapping[str, Any]  # in place of the script's own; None leaves DDP's default
    compression: str  # the type in which gradients travel; "none": as they are


@dataclass(frozen=True)
class Order:
    """A block of steps."""

    variant: ScriptVariant
    discarded: int
    timed: int


@dataclass(frozen=True)
class About:
    """What is known of the script so far."""

    world_size: int | None  # of its process group; None: it has made none
    has_ddp: bool
    on_gpu: bool  # it has put something there; its optimizer may be on the CPU
    unswitched: str | None  # why its DDP cannot keep gradients where they are
    samples_per_step: float  # that its DataLoaders gave, in the mean; 0: none of torch's
    full_step: int  # samples of the usual step, which an epoch's last one may fall short of
    passes: int  # backward ones of a step, of different batches
    epoch_samples: int | None
    first_samples: int | None  # a checksum of a batch and its places in the data set; None: it streams
    num_parameters: int
    overridden: Mapping[str, str]  # arguments of DDP that the study's knobs have replaced, as they were
    gradient_bytes: int | None
    bucket_bytes: tuple[int, ...]
    torch_bytes: int | None  # peak of torch's allocator on a GPU
    device_bytes: int | None  # on a GPU the most that it reserved, else the peak of the resident set


@dataclass(frozen=True)
class BlockDone:
    """One block on one rank."""

    # of each timed step, shape ``(steps,)``
    times: NDArray[np.float64]  # in s
    phases: Mapping[Phase, NDArray[np.float64]]  # that the block entered, in s
    collectives: NDArray[np.int64]  # that it called
    steps_ahead: int  # for which its loaders may have read batches while it waited for this block
    about: About


@dataclass(frozen=True)
class Ended:
    """The script is over, on its own or as it was ordered to."""

    failure: RankFailure | None = None
    exit_code: int = 0


class Enough(BaseException):
    """Every step is timed. No ``Exception``: what a script catches of its own it goes on from."""


class _Switch:
    """Whether a DDP module sends its gradients, as the script would, or keeps them."""

    def __init__(self, ddp: DistributedDataParallel | None = None) -> None:
        self.sends = True
        # the module, while the script has it; that of a copy nobody switches
        self.ddp: Callable[[], DistributedDataParallel | None] = lambda: None
        self.hook: Any = None  # with its state: the script's, or the knob's; None: DDP's own all-reduce
        if ddp is not None:
            self.ddp = weakref.ref(ddp)
            self._syncs_buffers = getattr(ddp, SYNC_BUFFERS)
            self._silent = SilentGroup(ddp.process_group)

    def __reduce__(self) -> Any:
        """A copy of the module has a hook of its own: groups and modules are not copied."""
        return _Switch, ()

    def turn(self, *, sends: bool) -> None:
        """From the next step on; buffers stay too where gradients do."""
        self.sends, ddp = sends, self.ddp()
        if ddp is not None:
            setattr(ddp, SYNC_BUFFERS, sends and self._syncs_buffers)
            # no hook does this: it would divide the gradients in a pass of its own
            ddp.reducer._update_process_group(ddp.process_group if sends else self._silent)


def _hook(switch, bucket):  # type: ignore[no-untyped-def]  # DDP refuses annotations kept as strings
    return switch.hook(bucket) if switch.sends else no_transfer(None, bucket)  # type: ignore[no-untyped-call]


@dataclass
class _Block:
    """The moments of one block at which a phase begins; ``ends`` are the places of those that end a step."""

    order: Order
    moments: list[tuple[Phase, Any]]
    paused_s: float  # before it
    ends: list[int] = field(default_factory=lambda: [0])
    collectives: list[int] = field(default_factory=lambda: [_num_collectives()])  # at each of ``ends``

    def end_step(self, moment: Any) -> bool:
        """Whether that was the last step of the block."""
        self.ends.append(len(self.moments))
        self.moments.append(("other", moment))
        self.collectives.append(_num_collectives())
        return len(self.ends) > self.order.discarded + self.order.timed


class Stopwatch:
    """Times the script of this process, block by block, as ``end`` asks."""

    def __init__(self, end: Connection, launch: Launch) -> None:
        self._end, self._launch = end, launch
        self._clock: Optimizer | None = None  # the one whose steps count
        self._others = Counter[int]()  # steps of others since its last, by id
        self._stepping: list[Optimizer] = []  # a step may call that of another class
        self._thread, self._process = threading.get_ident(), os.getpid()
        self._gpu: torch.device | None = None
        self._block: _Block | None = None
        self._phase: Phase = "other"
        self._switches: list[_Switch] = []
        self._has_own_hook = weakref.WeakSet[DistributedDataParallel]()  # from its constructor
        self._overridden: dict[str, str] = {}
        self._drawn = Drawn()  # since the last step
        self._steps: list[Drawn] = []
        # backward, since the last step, by whether they keep their graph
        self._passes, self._is_passing = Counter[bool](), False
        self._step_passes: list[int] = []
        self._first_samples: int | None = None
        self._prefetched = 0  # batches, by the loader processes
        self._skips_steps = False
        self._is_over = False

    def install(self) -> None:
        """Set all hooks, for the life of this process."""
        # a step that is compiled calls them too, uncompiled
        uncompiled: Any = torch.compiler.disable
        register_optimizer_step_pre_hook(uncompiled(self._before_step))
        register_optimizer_step_post_hook(uncompiled(self._after_step))
        self._watch_loaders()
        self._watch_passes()
        self._watch_ddp()
        self._watch_scaler()
        for module in (torch.multiprocessing, sys.modules["torch.multiprocessing.spawn"]):
            vars(module)["spawn"] = vars(module)["start_processes"] = _refuse_to_spawn

    # --- hooks

    def _before_step(self, optimizer: Optimizer, args: Any, kwargs: Any) -> Any:
        """The optimizer works; with a closure, which has forward and backward in it, once that is done."""
        self._stepping.append(optimizer)
        if optimizer is not self._clock:
            return None
        closure = args[1] if len(args) > 1 else kwargs.get("closure")
        if closure is None:
            self._enter("optimizer")
            return None

        def closed() -> Any:
            found = closure()
            self._enter("optimizer")
            return found

        if len(args) > 1:
            return (args[0], closed, *args[2:]), kwargs
        return args, {**kwargs, "closure": closed}

    def _after_step(self, optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        """A step is done: the block goes on, or is over."""
        if self._stepping:
            self._stepping.pop()
        if optimizer in self._stepping or not self._counts(optimizer):
            return
        if not self._passes and not self._drawn and any(self._step_passes):
            self._enter("other")  # a step of other parameters, as DeepSpeed's ZeRO takes one for each group
            return
        if os.getpid() != self._process:
            raise InvalidTrialError(OWN_RANKS)
        if self._is_over:
            raise Enough
        self._steps.append(self._drawn)
        # a batch may have several losses, each with a pass: the last frees the graph, where any does
        self._step_passes.append(self._passes[False] or self._passes[True])
        self._drawn, self._passes, self._phase = Drawn(), Counter(), "other"
        if self._block is None or self._block.end_step(self._mark()):
            began = perf_counter()
            try:
                done = self._done()
            except Exception as error:
                raise InvalidTrialError(f"raybench's stopwatch: {describe(error)}") from error
            self._end.send(done)
            self._follow(self._end.recv(), began)

    def _counts(self, optimizer: Optimizer) -> bool:
        """Whether its steps are those that count: of the first that stepped, or of a later stage's."""
        if optimizer is not self._clock:
            self._others[id(optimizer)] += 1
            if self._clock is not None and self._others[id(optimizer)] < TAKES_OVER:
                return False
            if self._clock is None:
                trained = (each for group in optimizer.param_groups for each in group["params"])
                self._gpu = next((each.device for each in trained if each.is_cuda), None)
            self._clock = optimizer
        self._others.clear()
        return True

    def _watch_loaders(self) -> None:
        """The iterators of torch's ``DataLoader``: how long they are waited for, and what they give."""
        take, take_indices = _BaseDataLoaderIter.__next__, _BaseDataLoaderIter._next_index
        begin = DataLoader.__iter__

        @functools.wraps(begin)
        def begun(loader: DataLoader[Any]) -> Any:
            """Each epoch may start processes of the loader's."""
            before = self._enter("data")
            try:
                return begin(loader)
            finally:
                self._enter(before)

        @functools.wraps(take)
        def timed(loader: _BaseDataLoaderIter) -> Any:
            before = self._enter("data")
            try:
                batch = take(loader)
            finally:
                self._enter(before)
            asked = vars(loader).get(ASKED)
            places = asked.popleft() if asked else None
            number = _number_in(batch, loader) if places is None else len(places)
            if torch.is_grad_enabled():  # else it is of an evaluation
                if self._first_samples is None and self._steps and places is not None:
                    # torch writes the ends of what is large, which is enough to tell it from another
                    self._first_samples = zlib.crc32(repr((places, batch)).encode())
                data_set = id(loader._dataset), _number_of(loader)
                batches, samples = self._drawn.get(data_set, (0, 0))
                self._drawn[data_set] = batches + 1, samples + number
                self._prefetched = loader._num_workers * getattr(loader, "_prefetch_factor", 0)
            return batch

        @functools.wraps(take_indices)
        def counted(loader: _BaseDataLoaderIter) -> Any:
            """Samples are what the loader asks its data set for, whatever a batch looks like."""
            indices = take_indices(loader)  # type: ignore[no-untyped-call]
            # one that streams is asked for a whole batch at its end too; one that gives whole batches is
            # asked by the number of a batch, or by those of its samples
            if loader._dataset_kind == _DatasetKind.Map and isinstance(
                indices, Sized if loader._auto_collation else list
            ):
                vars(loader).setdefault(ASKED, deque()).append(indices)
            return indices

        DataLoader.__iter__ = begun  # type: ignore[method-assign]
        _BaseDataLoaderIter.__next__ = timed  # type: ignore[assignment, method-assign]
        _BaseDataLoaderIter._next_index = counted  # type: ignore[method-assign]

    def _watch_passes(self) -> None:
        """Backward passes: as many as a step has micro-batches."""
        backward = torch.autograd.backward

        @functools.wraps(backward)
        def counted(*args: Any, **kwargs: Any) -> None:
            if self._gpu is not None and torch.cuda.is_current_stream_capturing():
                raise InvalidTrialError(CAPTURED)
            # one within another, or in another thread, is that of activations that are computed again
            is_whole = not self._is_passing and threading.get_ident() == self._thread
            self._is_passing |= is_whole
            try:
                backward(*args, **kwargs)
            finally:
                if is_whole:
                    self._is_passing = False
                    keeps = kwargs.get("retain_graph") or any(args[2:3])  # its place, where Tensor has it
                    self._passes[bool(keeps)] += 1

        torch.autograd.backward = torch.compiler.disable(counted)  # type: ignore[no-untyped-call]

    def _watch_ddp(self) -> None:
        torchs: Any = DistributedDataParallel
        make, forward = torchs.__init__, torchs.forward
        register = torchs.register_comm_hook
        signature = inspect.signature(make)

        @functools.wraps(make)
        def made(ddp: DistributedDataParallel, *args: Any, **kwargs: Any) -> None:
            bound = signature.bind(ddp, *args, **kwargs)
            for name, value in self._launch.ddp_arguments.items():
                if name not in signature.parameters:
                    raise InvalidTrialError(f"knobs.{name}: DistributedDataParallel of this torch has it not")
                if name in bound.arguments and bound.arguments[name] != value:
                    self._overridden[name] = repr(bound.arguments[name])
                bound.arguments[name] = signature.parameters[name].default if value is None else value
            make(*bound.args, **bound.kwargs)
            if dist.get_world_size(ddp.process_group) > 1 and ddp not in self._has_own_hook:
                self._switches.append(_Switch(ddp))
                if hook := compression_hook(self._launch.compression):
                    set_hook(ddp, self._switches[-1], ddp.process_group, hook)
            elif ddp in self._has_own_hook and self._launch.compression != "none":
                raise InvalidTrialError(f"knobs.gradient_compression: {OWN_HOOK}")

        @functools.wraps(register)
        def registered(ddp: DistributedDataParallel, state: object, hook: Any) -> None:
            switch = next((each for each in self._switches if each.ddp() is ddp), None)
            if switch is None:
                self._has_own_hook.add(ddp)
                register(ddp, state, hook)
            elif self._launch.compression != "none":
                self._overridden["register_comm_hook"] = getattr(hook, "__name__", repr(hook))
            else:
                set_hook(ddp, switch, state, hook)

        def set_hook(ddp: DistributedDataParallel, switch: _Switch, state: object, hook: Any) -> None:
            switch.hook = functools.partial(hook, state)
            register(ddp, switch, _hook)

        def registered_by_name(ddp: DistributedDataParallel, kind: Any) -> None:
            registered(ddp, ddp.process_group, BUILT_IN[kind])

        @functools.wraps(forward)
        def timed(ddp: DistributedDataParallel, *args: Any, **kwargs: Any) -> Any:
            if torch.compiler.is_compiling():  # a compiled pass is one piece
                return forward(ddp, *args, **kwargs)
            self._enter("forward")
            found = forward(ddp, *args, **kwargs)
            self._enter("backward")
            return found

        torchs.__init__, torchs.forward, torchs.register_comm_hook = made, timed, registered
        torchs._register_builtin_comm_hook = registered_by_name

    def _watch_scaler(self) -> None:
        """Whether a gradient scaler may leave out a step: without all-reduces on one rank alone."""
        step = torch.amp.GradScaler.step

        @functools.wraps(step)
        def scaled(scaler: torch.amp.GradScaler, *args: Any, **kwargs: Any) -> Any:
            self._skips_steps |= scaler.is_enabled()
            return step(scaler, *args, **kwargs)

        torch.amp.GradScaler.step = scaled  # type: ignore[assignment, method-assign]

    # --- blocks

    def _enter(self, phase: Phase) -> Phase:
        """A phase of the step begins; returns the one that ends. Other threads of the script have none."""
        before = self._phase
        if phase != before and threading.get_ident() == self._thread:
            self._phase = phase
            if self._block is not None:
                self._block.moments.append((phase, self._mark()))
        return before

    def _mark(self) -> Any:
        """This moment: on a GPU in the stream of its work, which nothing waits for."""
        if self._gpu is None:
            return perf_counter()
        event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        event.record(torch.cuda.current_stream(self._gpu))
        return event

    def _seconds(self, first: Any, last: Any) -> float:
        return float(last - first if self._gpu is None else first.elapsed_time(last) / 1e3)

    def _follow(self, order: Order | None, paused_at: float) -> None:
        """Begin the block that was ordered, in a script that has waited for it; None: enough."""
        if order is None:
            self._is_over = True
            raise Enough
        for switch in self._switches:
            switch.turn(sends=order.variant != "local")
        self._block = _Block(order, [("other", self._mark())], perf_counter() - paused_at)

    def _done(self) -> BlockDone:
        if self._gpu is not None:
            torch.cuda.synchronize(self._gpu)
        block = self._block
        if block is None:
            return BlockDone(np.array([]), {}, np.array([], dtype=np.int64), 0, self._about())
        ends = block.ends[block.order.discarded :]
        phases = dict[Phase, NDArray[np.float64]]()
        for step, (first, last) in enumerate(itertools.pairwise(ends)):
            for (phase, begin), (_, end) in itertools.pairwise(block.moments[first : last + 1]):
                phases.setdefault(phase, np.zeros(block.order.timed))[step] += self._seconds(begin, end)
        times = np.sum([*phases.values()], axis=0)
        return BlockDone(
            times=times,
            phases=phases,
            collectives=np.diff(block.collectives)[block.order.discarded :],
            steps_ahead=min(self._prefetched, math.ceil(block.paused_s / median(times))),
            about=self._about(),
        )

    def _about(self) -> About:
        modules = [ddp for each in self._switches if (ddp := each.ddp()) is not None]
        assert self._clock is not None
        # the clock may have a part of them: of a sharded state, or of one of several networks
        trained = {each for ddp in modules for each in ddp.parameters() if each.requires_grad}
        trained = trained or {each for group in self._clock.param_groups for each in group["params"]}
        passes = max(1, median_high(self._step_passes))
        samples_per_step, full_step, epoch_samples = _of_a_step(self._steps, passes)
        gpu = self._gpu
        return About(
            world_size=dist.get_world_size() if dist.is_initialized() else None,
            has_ddp=bool(modules or self._has_own_hook),
            on_gpu=any(map(torch.cuda.max_memory_allocated, range(torch.cuda.device_count()))),
            unswitched=self._unswitched(modules),
            samples_per_step=samples_per_step,
            full_step=full_step,
            passes=passes,
            epoch_samples=epoch_samples or None,
            first_samples=self._first_samples,
            num_parameters=sum(each.numel() for each in trained),
            overridden=dict(self._overridden),
            gradient_bytes=sum(gradient_bytes(ddp, self._launch.compression) or 0 for ddp in modules) or None,
            bucket_bytes=tuple(size for ddp in modules for size in bucket_bytes(ddp)),
            torch_bytes=None if gpu is None else torch.cuda.max_memory_allocated(gpu),
            device_bytes=status_bytes("VmHWM") if gpu is None else torch.cuda.max_memory_reserved(gpu),
        )

    def _unswitched(self, modules: Sequence[DistributedDataParallel]) -> str | None:
        if self._has_own_hook:
            return OWN_HOOK
        if self._skips_steps:
            return "an enabled GradScaler would leave out steps on one rank alone"
        if isinstance(self._clock, torch.optim.LBFGS):
            return "LBFGS would make other passes on each rank"
        return None if modules else "its model is in no DistributedDataParallel"


def _num_collectives() -> int:
    """That were called in any group of this process."""
    return sum(map(num_called, dist.distributed_c10d._world.pg_map))


def _of_a_step(steps: Sequence[Drawn], passes: int) -> tuple[float, int, int]:
    """Samples of the mean step, of a full one, and of the data set that gives them; 0: loaders do not tell.

    What the first step draws ahead of the others, as one batch to look at it, is left out. Where no other
    step draws any, one batch is that of every pass; several were looked at, or are kept and taken apart.
    """
    later = steps[1:] or steps
    if not any(later) and [batches for batches, _ in steps[0].values()] == [1]:
        (((_, length), (_, samples)),) = steps[0].items()
        return float(passes * samples), passes * samples, length
    drew = [step for step in later if any(samples for _, samples in step.values())]
    if len(drew) < MOST * len(later):  # as for an evaluation alone, or for several steps at once
        return 0.0, 0, 0
    usual = median_high(max(batches for batches, _ in step.values()) for step in drew)
    often = {each for each, times in Counter(itertools.chain(*later)).items() if times >= RARE * len(later)}
    # an evaluation draws from a set of its own now and then; tasks in turn may be as rare, but alone
    steady = [{each: of for each, of in step.items() if each in often} or step for step in later]
    # or it draws many batches in one step; a loader that reads ahead twice as many, sometimes
    trained = [{each: of for each, of in step.items() if of[0] <= 2 * usual} for step in steady]
    drawn = [
        sum(samples for _, samples in kept.values())
        for kept, step in zip(trained, later, strict=True)
        if kept or not step
    ]
    lengths = Counter(length for step in trained for _, length in step)
    return fmean(drawn), median_high(each for each in drawn if each), lengths.most_common(1)[0][0]


def _number_in(batch: Any, loader: Any) -> int:
    """Samples of a batch whose loader does not ask for them one by one.

    Of a stream as many as its loader collates; fewer in the last one, where the first has them first.
    """
    length = _length(batch)
    if not loader._auto_collation or loader._dataset_kind != _DatasetKind.Iterable:
        return length
    collated: int = loader._index_sampler.batch_size
    if not hasattr(loader, "_raybench_has_first"):
        loader._raybench_has_first = length == collated
    return min(length, collated) if loader._raybench_has_first else collated


def _length(batch: Any) -> int:
    """Samples of a batch that a data set gives whole: its first tensor's first dimension.

    0 where it is built otherwise: then ``--samples-per-step`` is asked for.
    """
    if isinstance(batch, Mapping):  # which may begin with what is no tensor
        batch = next((each for each in batch.values() if isinstance(each, torch.Tensor) and each.dim()), None)
    first = batch[0] if isinstance(batch, list | tuple) and batch else batch
    return first.shape[0] if isinstance(first, torch.Tensor) and first.dim() else 0


def _number_of(loader: Any) -> int:
    """Samples of its data set, asked once; 0 where it does not say.

    One that streams has no length, and that of one that gives whole batches is their number.
    """
    if not hasattr(loader, "_raybench_samples"):
        try:
            by_sample = loader._auto_collation or ASKED in vars(loader)
            loader._raybench_samples = len(loader._dataset) if by_sample else 0
        except Exception:  # whatever a data set raises there, it is of no use here
            loader._raybench_samples = 0
    return int(loader._raybench_samples)


CAPTURED = "the script captures its step in a CUDA graph, whose replays raybench cannot see"
OWN_RANKS = "the script starts its ranks itself (torch.multiprocessing): raybench does, as torchrun would"


def _refuse_to_spawn(*args: Any, **kwargs: Any) -> None:
    raise InvalidTrialError(OWN_RANKS)


# --- the process


def run_script(end: Connection) -> None:
    """Run the script that the rank at the other ``end`` names, and report how that ended."""
    launch: Launch = end.recv()
    sys.argv[:] = [launch.script, *launch.arguments]
    if not launch.is_module:
        sys.path.insert(0, str(Path(launch.script).parent))
    Stopwatch(end, launch).install()
    failure, code = None, 0
    try:
        if launch.is_module:
            runpy.run_module(launch.script, run_name="__main__", alter_sys=True)
        else:
            runpy.run_path(launch.script, run_name="__main__")
    except Enough:
        pass
    except SystemExit as leaving:
        code = leaving.code if isinstance(leaving.code, int) else int(leaving.code is not None)
        if not isinstance(leaving.code, int | None):
            print(leaving.code, file=sys.stderr)
    except BaseException as error:  # whatever it is, it is the script's
        traceback.print_exc()
        failure = replace(RankFailure.of(error, launch.rank), ends_group=False)  # it is this process's GPU
        is_relative = not Path(getattr(error, "filename", None) or "").is_absolute()
        if isinstance(error, OSError | RuntimeError) and is_relative and _NO_FILE.search(str(error)):
            failure = replace(failure, text=f"{failure.text}; {OWN_DIRECTORY}")
    end.send(Ended(failure, code))

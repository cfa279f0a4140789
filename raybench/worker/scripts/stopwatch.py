"""What a script's process runs: the script as it is, timed from one optimizer step to the next.

torch's global optimizer hooks are the stopwatch. ``DistributedDataParallel`` takes the study's knobs, and a
hook that sends gradients or keeps them, as each block of steps asks. After a block this process tells its
rank, and waits for the next order.
"""

from __future__ import annotations

import functools
import inspect
import itertools
import os
import runpy
import sys
import threading
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from multiprocessing.connection import Connection
from pathlib import Path
from resource import RUSAGE_SELF, getrusage
from statistics import median, mode
from time import perf_counter
from typing import Any, Literal, get_args

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import NDArray
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook
from torch.nn.parallel import DistributedDataParallel
from torch.optim.optimizer import (
    Optimizer,
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)
from torch.utils.data.dataloader import _BaseDataLoaderIter

from raybench.errors import InvalidTrialError
from raybench.records.results import Phase
from raybench.worker.failures import RankFailure
from raybench.worker.strategies.ddp import compression_hook, ddp_report, no_transfer

OWN_DIRECTORY = "a script runs in a directory of its own: give paths in full, or name them in workload.links"
KIB = 1024  # Linux counts the peak of the resident set in these


@dataclass(frozen=True)
class Launch:
    """What a rank runs."""

    rank: int  # of the worker group, as failures name it
    script: str  # a file, or a module
    is_module: bool
    arguments: tuple[str, ...]
    ddp_arguments: Mapping[str, Any]  # in place of the script's own; None leaves DDP's default
    compression: str  # the type in which gradients travel; "none": as they are
    path: tuple[str, ...]  # import path, after the script's own


@dataclass(frozen=True)
class Order:
    """A block of steps."""

    variant: Literal["plain", "ddp", "local"]
    discarded: int
    timed: int


@dataclass(frozen=True)
class About:
    """What is known of the script after its first optimizer step."""

    world_size: int | None  # of its process group; None: it has made none
    has_ddp: bool
    finds_unused: bool  # DDP sends which parameters were used, whatever its hook does
    samples_per_step: float  # that its DataLoaders gave; 0: none of torch's
    epoch_samples: int | None
    num_parameters: int
    overridden: Mapping[str, str]  # arguments of DDP that the study's knobs have replaced, as they were
    gradient_bytes: int | None
    bucket_bytes: tuple[int, ...]
    torch_bytes: int | None  # peak of torch's allocator on a GPU
    device_bytes: int  # on a GPU the most that the allocator reserved, else the peak of the resident set


@dataclass(frozen=True)
class BlockDone:
    """One block on one rank."""

    times: NDArray[np.float64]  # of each timed step, in s, shape ``(steps,)``
    phases: Mapping[Phase, float]  # mean over the timed steps, in s
    about: About


@dataclass(frozen=True)
class Ended:
    """The script is over, by itself or as it was told to."""

    num_steps: int
    failure: RankFailure | None = None
    exit_code: int = 0


class Enough(BaseException):
    """Every step is timed. No ``Exception``: what a script catches of its own it goes on from."""


class _Switch:
    """The communication hook of a DDP module: sends gradients as the script would, or keeps them."""

    def __init__(self, ddp: DistributedDataParallel, compression: str) -> None:
        self.ddp, self.sends = ddp, True
        self.state: Any = ddp.process_group
        self.hook: Any = compression_hook(compression) or allreduce_hook

    def turn(self, *, sends: bool) -> None:
        """From the next forward pass on; buffers stay too where gradients do."""
        self.sends = self.ddp.require_forward_param_sync = sends


def _hook(switch, bucket):  # type: ignore[no-untyped-def]  # DDP refuses annotations kept as strings
    if switch.sends:
        return switch.hook(switch.state, bucket)
    return no_transfer(None, bucket)  # type: ignore[no-untyped-call]


@dataclass
class _Block:
    """The moments of one block at which a phase begins; ``ends`` are the places of those that end a step."""

    order: Order
    moments: list[tuple[Phase, Any]]
    ends: list[int] = field(default_factory=lambda: [0])

    def end_step(self, moment: Any) -> bool:
        """Whether that was the last step of the block."""
        self.ends.append(len(self.moments))
        self.moments.append(("other", moment))
        return len(self.ends) > self.order.discarded + self.order.timed


class Stopwatch:
    """Times the script of this process, block by block, as ``end`` asks."""

    def __init__(self, end: Connection, launch: Launch) -> None:
        self._end, self._launch = end, launch
        self._clock: Optimizer | None = None  # the one whose steps count: the first that stepped
        self._thread = threading.get_ident()
        self._on_gpu = False
        self._block: _Block | None = None
        self._phase: Phase = "other"
        self._switches: list[_Switch] = []
        self._overridden: dict[str, str] = {}
        self._drawn, self._data_set = 0, 0  # samples since the last step, and of the data set that gave them
        self._samples: list[tuple[int, int]] = []  # both, of each step
        self.num_steps, self.is_over = 0, False

    def install(self) -> None:
        """Set all hooks, for the life of this process."""
        register_optimizer_step_pre_hook(self._before_step)
        register_optimizer_step_post_hook(self._after_step)
        self._watch_loaders()
        self._watch_ddp()
        vars(torch.multiprocessing)["spawn"] = _refuse_to_spawn

    # --- hooks

    def _before_step(self, optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        if optimizer is self._clock:
            self._enter("optimizer")

    def _after_step(self, optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        """A step is done: the block goes on, or is over."""
        if self._clock is None:
            self._clock = optimizer
            self._on_gpu = optimizer.param_groups[0]["params"][0].is_cuda
        if optimizer is not self._clock:
            return
        if self.is_over:
            raise Enough
        self.num_steps += 1
        self._samples.append((self._drawn, self._data_set))
        self._drawn, self._phase = 0, "other"
        if self._block is None or self._block.end_step(self._mark()):
            self._end.send(self._done())
            self._follow(self._end.recv())

    def _watch_loaders(self) -> None:
        """The iterators of torch's ``DataLoader``: how long they are waited for, and what they give."""
        take = _BaseDataLoaderIter.__next__

        @functools.wraps(take)
        def timed(loader: _BaseDataLoaderIter) -> Any:
            before = self._enter("data")
            try:
                batch = take(loader)
            finally:
                self._enter(before)
            self._drawn += _length(batch)
            self._data_set = _number_of(loader._dataset)
            return batch

        _BaseDataLoaderIter.__next__ = timed  # type: ignore[assignment, method-assign]

    def _watch_ddp(self) -> None:
        make, register = DistributedDataParallel.__init__, DistributedDataParallel.register_comm_hook
        signature = inspect.signature(make)

        @functools.wraps(make)
        def made(ddp: DistributedDataParallel, *args: Any, **kwargs: Any) -> None:
            bound = signature.bind(ddp, *args, **kwargs)
            for name, value in self._launch.ddp_arguments.items():
                if name in bound.arguments and bound.arguments[name] != value:
                    self._overridden[name] = repr(bound.arguments[name])
                bound.arguments[name] = signature.parameters[name].default if value is None else value
            make(*bound.args, **bound.kwargs)
            self._wrap(ddp, register)

        @functools.wraps(register)
        def registered(ddp: DistributedDataParallel, state: object, hook: Any) -> None:
            switch = next((each for each in self._switches if each.ddp is ddp), None)
            if switch is None:
                register(ddp, state, hook)
            elif self._launch.compression != "none":
                self._overridden["register_comm_hook"] = getattr(hook, "__name__", repr(hook))
            else:
                switch.state, switch.hook = state, hook

        DistributedDataParallel.__init__ = made  # type: ignore[assignment, method-assign]
        DistributedDataParallel.register_comm_hook = registered  # type: ignore[assignment, method-assign]

    def _wrap(self, ddp: DistributedDataParallel, register: Any) -> None:
        """One device alone keeps DDP's own all-reduce, as the script has it there."""
        if dist.get_world_size(ddp.process_group) > 1:
            switch = _Switch(ddp, self._launch.compression)
            self._switches.append(switch)
            register(ddp, switch, _hook)

        def enter(phase: Phase) -> None:
            if not torch.compiler.is_compiling():  # a compiled pass is one piece
                self._enter(phase)

        ddp.register_forward_pre_hook(lambda module, inputs: enter("forward"))
        ddp.register_forward_hook(lambda module, inputs, output: enter("backward"))

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
        if not self._on_gpu:
            return perf_counter()
        event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        event.record()
        return event

    def _seconds(self, first: Any, last: Any) -> float:
        return float(first.elapsed_time(last) / 1e3 if self._on_gpu else last - first)

    def _follow(self, order: Order | None) -> None:
        """Begin the block that was ordered; None: enough."""
        if order is None:
            self.is_over = True
            raise Enough
        for switch in self._switches:
            switch.turn(sends=order.variant != "local")
        self._block = _Block(order, [("other", self._mark())])

    def _done(self) -> BlockDone:
        if self._on_gpu:
            torch.cuda.synchronize()
        block = self._block
        if block is None:
            return BlockDone(np.array([]), {}, self._about(self._samples))
        ends = block.ends[block.order.discarded :]
        times = [
            self._seconds(block.moments[first][1], block.moments[last][1])
            for first, last in itertools.pairwise(ends)
        ]
        phases = dict.fromkeys(get_args(Phase), 0.0)
        for (phase, begin), (_, end) in itertools.pairwise(block.moments[ends[0] : ends[-1] + 1]):
            phases[phase] += self._seconds(begin, end) / len(times)
        return BlockDone(np.array(times), phases, self._about(self._samples[-len(times) :]))

    def _about(self, samples: Sequence[tuple[int, int]]) -> About:
        ddp = self._switches[0].ddp if self._switches else None
        report = ddp_report(ddp, self._launch.compression)
        assert self._clock is not None
        trained = [each for group in self._clock.param_groups for each in group["params"]]
        resident = getrusage(RUSAGE_SELF).ru_maxrss * KIB
        return About(
            world_size=dist.get_world_size() if dist.is_initialized() else None,
            has_ddp=ddp is not None,
            finds_unused=ddp is not None and ddp.find_unused_parameters,
            samples_per_step=float(median(drawn for drawn, _ in samples)),
            epoch_samples=mode(data_set for _, data_set in samples) or None,
            num_parameters=sum(each.numel() for each in trained),
            overridden=dict(self._overridden),
            gradient_bytes=report.gradient_bytes if report else None,
            bucket_bytes=report.bucket_bytes if report else (),
            torch_bytes=torch.cuda.max_memory_allocated() if self._on_gpu else None,
            device_bytes=torch.cuda.max_memory_reserved() if self._on_gpu else resident,
        )


def _length(batch: Any) -> int:
    """Samples of a batch: the first dimension of its first tensor, 0 without one."""
    if isinstance(batch, torch.Tensor):
        return batch.shape[0] if batch.dim() else 0
    parts = batch.values() if isinstance(batch, Mapping) else batch if isinstance(batch, list | tuple) else ()
    return next(filter(None, map(_length, parts)), 0)


def _number_of(data_set: Any) -> int:
    """Its samples, 0 where it does not say: one that streams has no length."""
    try:
        return len(data_set)
    except TypeError:
        return 0


def _refuse_to_spawn(*args: Any, **kwargs: Any) -> None:
    raise InvalidTrialError(
        "the script starts its ranks itself (torch.multiprocessing.spawn): raybench does, as torchrun would"
    )


# --- the process


def main(descriptor: int) -> None:
    """Run the script that the rank at the other end of ``descriptor`` names, and tell it how that ended."""
    end = Connection(descriptor)
    os.set_inheritable(descriptor, False)
    launch: Launch = end.recv()
    threading.Thread(target=_end_with_the_rank, args=(os.dup(0),), daemon=True).start()
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    sys.argv[:] = [launch.script, *launch.arguments]
    own = [] if launch.is_module else [str(Path(launch.script).parent)]
    sys.path[:] = list(dict.fromkeys([*own, *launch.path]))
    stopwatch = Stopwatch(end, launch)
    stopwatch.install()
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
        failure = RankFailure.of(error, launch.rank)
        if isinstance(error, FileNotFoundError) and not Path(str(error.filename)).is_absolute():
            failure = replace(failure, text=f"{failure.text}; {OWN_DIRECTORY}")
    end.send(Ended(stopwatch.num_steps, failure, code))


def _end_with_the_rank(descriptor: int) -> None:
    """A rank that is killed leaves no script running."""
    while os.read(descriptor, 1):
        pass
    os._exit(1)

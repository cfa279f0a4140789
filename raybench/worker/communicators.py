"""Process groups of one worker, and what travels through them.

Two kinds of groups: control groups (always gloo, with a timeout of a day: idle ranks sleep in them) carry
trials, barriers and block times; the data group (NCCL on GPUs) carries gradients, and waits only as long as
the trial may.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks

CONTROL_TIMEOUT = timedelta(days=1)
COALESCED_BYTES = 25 * 2**20

Hook = Callable[[Any, Any], torch.futures.Future[torch.Tensor]]
Made = TypeVar("Made")


class Team:
    """The ranks of one trial: their control group and their data group."""

    def __init__(self, ranks: tuple[int, ...], control: dist.ProcessGroup, data: dist.ProcessGroup) -> None:
        self.ranks, self.control, self.data = ranks, control, data
        self.rank = ranks.index(dist.get_rank())  # within the team
        self.size = len(ranks)

    @property
    def leads(self) -> bool:
        """Whether this rank speaks for the team."""
        return self.rank == 0

    def barrier(self) -> None:
        """Wait, asleep, until every rank of the team is here."""
        dist.barrier(group=self.control)

    def arrived(self) -> Callable[[], bool]:
        """Say that this rank is here; the function that comes back tells whether all are."""
        work = dist.barrier(group=self.control, async_op=True)
        return work.is_completed

    def gather(self, item: Any) -> list[Any]:
        """``item`` of every rank of the team, in order, on every rank."""
        items: list[Any] = [None] * self.size
        dist.all_gather_object(items, item, group=self.control)
        return items

    def agree(self, failure: BaseException | None) -> None:
        """Raise on every rank if any has failed; costs nothing but the trial."""
        mine = (
            None
            if failure is None
            else (type(failure).__name__, describe(failure), is_out_of_memory(failure))
        )
        failures = [
            (rank, *found) for rank, found in zip(self.ranks, self.gather(mine), strict=True) if found
        ]
        if failures:
            raise AgreedFailure(failures) from failure

    def agreed(self, make: Callable[[], Made]) -> Made:
        """What ``make`` gives; raises on every rank if it fails on any. ``make`` itself is not collective."""
        made, failure = list[Made](), None
        try:
            made.append(make())
        except Exception as error:
            failure = error
        self.agree(failure)
        return made[0]

    def same_weights(self, tensors: Iterable[torch.Tensor]) -> None:
        """Give every rank the leader's values of ``tensors``, in place."""
        dist._broadcast_coalesced(  # type: ignore[attr-defined]
            self.data, list(tensors), COALESCED_BYTES, 0
        )


class AgreedFailure(Exception):
    """A failure that every rank of the team knows of; the groups are still good."""

    def __init__(self, failures: Sequence[tuple[int, str, str, bool]]) -> None:
        self.out_of_memory = any(memory for _, _, _, memory in failures)
        self.invalid = any(name == "InvalidTrialError" for _, name, _, _ in failures)
        rank, _, text, _ = next((found for found in failures if found[3]), failures[0])
        super().__init__(text if self.invalid else f"rank {rank}: {text}")


def describe(error: BaseException) -> str:
    """One line: the type and the message's first line."""
    lines = str(error).strip().splitlines()
    if type(error).__name__ == "InvalidTrialError":
        return lines[0]
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__


def is_out_of_memory(error: BaseException) -> bool:
    """Whether ``error`` says that memory ran out, on a GPU or on a CPU."""
    if isinstance(error, torch.OutOfMemoryError | MemoryError):
        return True
    return isinstance(error, RuntimeError) and "can't allocate memory" in str(error)


def is_echo(text: str) -> bool:
    """Whether an error only says that another rank is gone."""
    signs = ("Connection closed by peer", "Connection reset", "Timed out waiting", "Broken pipe")
    return any(sign in text for sign in signs)


class Communicators:
    """Every process group of one worker. Each method is called by all ranks, in the same order."""

    def __init__(self, data_backend: str) -> None:
        self._data_backend = data_backend
        self.rank, self.size = dist.get_rank(), dist.get_world_size()
        control = dist.new_group(backend="gloo", timeout=CONTROL_TIMEOUT)
        assert isinstance(control, dist.ProcessGroup)
        self.control = control
        self._ranks: tuple[int, ...] | None = None
        self._team: Team | None = None

    def team(self, ranks: tuple[int, ...], timeout_s: float) -> Team | None:
        """The team of ``ranks``, or None on a rank outside it.

        The last team is kept: trials come ordered by size, so each size's communicators are made once,
        and destroyed when the next size comes (NCCL keeps memory for each).
        """
        timeout, ranks = timedelta(seconds=timeout_s), tuple(sorted(ranks))
        if ranks != self._ranks:
            self.drop_team()
            control = dist.new_group(list(ranks), backend="gloo", timeout=CONTROL_TIMEOUT)
            data = dist.new_group(list(ranks), backend=self._data_backend, timeout=timeout)
            self._ranks = ranks
            if isinstance(control, dist.ProcessGroup) and isinstance(data, dist.ProcessGroup):
                self._team = Team(ranks, control, data)  # elsewhere this rank is no member
        if self._team is not None:
            _set_timeout(timeout, self._team.data)
        return self._team

    def drop_team(self) -> None:
        """Leave the team's groups. Whoever still waits in one of them is freed by that (gloo)."""
        team, self._team, self._ranks = self._team, None, None
        if team is not None:
            for group in (team.data, team.control):
                dist.destroy_process_group(group)
            del team, group
            gc.collect()  # the sockets close with the last reference; DDP's reducers form cycles


def _set_timeout(timeout: timedelta, group: dist.ProcessGroup) -> None:
    public = getattr(dist.distributed_c10d, "set_timeout", None)  # from torch 2.13 on
    (public or dist.distributed_c10d._set_pg_timeout)(timeout, group)


def compression_hook(name: str) -> Hook | None:
    """DDP's communication hook for the knob ``gradient_compression``; None: DDP's own all-reduce."""
    hooks: dict[str, Hook | None] = {
        "none": None,
        "fp16": default_hooks.fp16_compress_hook,
        "bf16": default_hooks.bf16_compress_hook,
    }
    return hooks[name]


def no_transfer(_, bucket):  # type: ignore[no-untyped-def]  # DDP refuses annotations kept as strings
    """A communication hook that sends nothing: buckets are filled, hooks run, nothing travels."""
    future: torch.futures.Future[torch.Tensor] = torch.futures.Future()
    future.set_result(bucket.buffer())
    return future


@dataclass(frozen=True)
class _ReplayBucket:
    """What a communication hook asks of DDP's bucket, without DDP."""

    _buffer: torch.Tensor
    _index: int
    _last: bool

    def buffer(self) -> torch.Tensor:
        return self._buffer

    def index(self) -> int:
        return self._index

    def is_last(self) -> bool:
        return self._last


class Replay:
    """The all-reduces of a step, as DDP would send them, with no compute beside them."""

    def __init__(
        self, bucket_bytes: Sequence[int], team: Team, device: torch.device, hook: Hook | None, state: Any
    ) -> None:
        last = len(bucket_bytes) - 1
        self._group, self._hook, self._state = team.data, hook, state
        self._buckets = [
            _ReplayBucket(torch.zeros(size // 4, dtype=torch.float32, device=device), index, index == last)
            for index, size in enumerate(bucket_bytes)
        ]

    def step(self) -> None:
        """Send every bucket, then wait for all."""
        if self._hook is not None:
            futures = [self._hook(self._state, bucket) for bucket in self._buckets]
            for future in futures:
                future.wait()
            return
        works = [dist.all_reduce(b.buffer(), group=self._group, async_op=True) for b in self._buckets]
        for work in works:
            work.wait()

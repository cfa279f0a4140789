"""Process groups of one worker, and what travels through them.

Two kinds of groups: control groups (always gloo, with a timeout of a day: idle ranks sleep in them) carry
trials, barriers and block times; the data group (NCCL on GPUs) carries gradients, and waits only as long as
the trial may.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from inspect import isfunction
from typing import Any, TypeVar, cast

import torch
import torch.distributed as dist
import torch.distributed.nn.functional as differentiable

from raybench.errors import CODE_FAILS, InvalidBatchError
from raybench.worker.devices.device import Device
from raybench.worker.failures import AgreedFailure, RankFailure, drop_frames

CONTROL_TIMEOUT = timedelta(days=1)
COALESCED_BYTES = 25 * 2**20

Made = TypeVar("Made")
Item = TypeVar("Item")


_OF_ONE: list[Any] = []  # this rank's group of its own, once there are communicators


@contextmanager
def default_group(group: dist.ProcessGroup | None) -> Iterator[None]:
    """What torch.distributed takes where no group is named: ``group``, or None for this rank alone.

    A workload may communicate, as SyncBatchNorm does, losses that gather, and data that one rank downloads.
    By torch's own default it would wait for all workers, most of whom sleep while one device runs alone, or a
    smaller team.
    """
    (chosen,) = [group] if group is not None else _OF_ONE or [dist.group.WORLD]
    before, dist.group.WORLD = dist.group.WORLD, chosen
    try:
        yield
    finally:
        if dist.group.WORLD is chosen:  # else the pass has ended it
            dist.group.WORLD = before


def collectives_alone() -> int:
    """How many collectives were called in this rank's group of its own."""
    return num_called(_OF_ONE[0]) if _OF_ONE else 0


def _refuse_groups_alone() -> None:
    """Let no group be made where this rank is alone: it would be a group of one under DDP as well.

    The ranks number their groups, and no longer alike once one of them has made another.
    """
    make = dist.distributed_c10d._new_group_with_tag

    def new_group(*arguments: Any, **named: Any) -> Any:
        if dist.group.WORLD in _OF_ONE:
            raise InvalidBatchError(  # on this rank alone, it may be
                "the model makes a process group of its own, where it is made and first runs on one device "
                "alone: let it ask torch.distributed for the default one in each pass"
            )
        return make(*arguments, **named)

    dist.distributed_c10d._new_group_with_tag = new_group


def num_called(group: dist.ProcessGroup) -> int:
    """How many collectives this rank has called in ``group``."""
    return int(group._get_sequence_number_for_group())  # type: ignore[attr-defined]


class Team:
    """The ranks of one trial: their control group and their data group."""

    def __init__(self, ranks: tuple[int, ...], control: dist.ProcessGroup, data: dist.ProcessGroup) -> None:
        self.ranks, self.control, self.data = ranks, control, data
        self.rank = ranks.index(dist.get_rank())  # within the team
        self.leads = self.rank == 0  # the team's first
        self.size = len(ranks)
        self._used = False

    def use_once(self, device: Device) -> None:
        """All-reduces on ``device``, the first time only. A collective call.

        NCCL connects, and takes memory outside torch's allocator, when a group is first used: later models
        fill it.
        """
        if self._used:
            return
        for elements in device.first_transfers:
            dist.all_reduce(torch.zeros(elements, device=device.torch_device), group=self.data)
        device.synchronize()
        self.barrier()
        self._used = True

    def barrier(self) -> None:
        """Wait, without using a core, until every rank of the team is here."""
        dist.barrier(group=self.control)

    def arrived(self) -> Callable[[], bool]:
        """Tell the team that this rank is here; returns a function that says whether all are."""
        work = dist.barrier(group=self.control, async_op=True)
        return work.is_completed

    def num_sent(self) -> int:
        """How many collectives this rank has called in the data group."""
        return num_called(self.data)

    def gather(self, item: Any) -> list[Any]:
        """``item`` of every rank of the team, in order, on every rank."""
        items: list[Any] = [None] * self.size
        dist.all_gather_object(items, item, group=self.control)
        return items

    def gather_on_leader(self, item: Item) -> list[Item] | None:
        """``item`` of every rank of the team, in order, on the leader; None elsewhere: one message a rank."""
        items: list[Any] | None = [None] * self.size if self.leads else None
        dist.gather_object(item, items, group=self.control, group_dst=0)
        return items

    def from_leader(self, item: Item) -> Item:
        """The leader's ``item`` on every rank."""
        items = [item if self.leads else None]
        dist.broadcast_object_list(items, group=self.control, group_src=0)
        return cast(Item, items[0])

    def agreed(
        self, make: Callable[[], Made], is_expected: Callable[[BaseException], bool] = lambda error: True
    ) -> Made:
        """What ``make`` gives; raises ``AgreedFailure`` on every rank if it fails on any.

        A failure costs nothing but the trial. Where ``make`` runs collective calls, every rank fails before
        them, or only after the last: another rank would wait in it. A failure that is not expected is raised
        as it is, on this rank alone.
        """
        made, failure, own = list[Made](), None, None
        try:
            made.append(make())
        except CODE_FAILS as error:
            if not is_expected(error):
                raise
            failure, own = error, RankFailure.of(error, self.ranks[self.rank])
            drop_frames(error)
        failures = [each for each in self.gather(own) if each is not None]
        if failures:
            raise AgreedFailure(failures) from failure
        return made[0]

    def broadcast(self, tensors: Iterable[torch.Tensor]) -> None:
        """Give every rank the leader's values of ``tensors``, in place."""
        dist._broadcast_coalesced(  # type: ignore[attr-defined]
            self.data, list(tensors), COALESCED_BYTES, 0
        )


class Alone(Team):
    """One rank that trains alone while the rest of its team sleeps: nothing travels."""

    def __init__(self, team: Team) -> None:
        self.ranks, self.rank, self.leads, self.size = (team.ranks[team.rank],), 0, True, 1

    def barrier(self) -> None:
        """Nothing to wait for."""

    def gather(self, item: Any) -> list[Any]:
        """``item`` alone."""
        return [item]


class Communicators:
    """Every process group of one worker. Each method is called by all ranks, in the same order."""

    def __init__(self, data_backend: str) -> None:
        self._data_backend = data_backend
        self.rank, self.size = dist.get_rank(), dist.get_world_size()
        control = dist.new_group(backend="gloo", timeout=CONTROL_TIMEOUT)
        assert isinstance(control, dist.ProcessGroup)
        self.everyone = Team(tuple(range(self.size)), control, control)
        _OF_ONE[:] = [dist.new_group([self.rank], backend=data_backend, use_local_synchronization=True)]
        _take_the_default_of_now()
        if self.size > 1:
            _refuse_groups_alone()
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
            public = getattr(dist.distributed_c10d, "set_timeout", None)  # from torch 2.13 on
            (public or dist.distributed_c10d._set_pg_timeout)(timeout, self._team.data)
        return self._team

    def drop_team(self) -> None:
        """Leave the team's groups. On gloo that frees the ranks that still wait in one of them."""
        team, self._team, self._ranks = self._team, None, None
        if team is not None:
            for group in (team.data, team.control):
                dist.destroy_process_group(group)
            del team, group
            gc.collect()  # the sockets close with the last reference; DDP's reducers form cycles


def _take_the_default_of_now() -> None:
    """Have the functions of torch.distributed.nn ask for the default group when they are called.

    As torch has them they keep the one that there was when their module was imported: that of all workers.
    """
    for function in filter(isfunction, vars(differentiable).values()):
        given = function.__defaults__ or ()
        function.__defaults__ = tuple(None if isinstance(each, dist.ProcessGroup) else each for each in given)

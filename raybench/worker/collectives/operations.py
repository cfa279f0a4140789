"""The collectives on one rank: the memory of messages, how each is run, whether its result is right."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
import torch.distributed as dist

from raybench.spec.sweep import ELEMENT_BYTES, Collective
from raybench.worker.communicators import Team

BROADCAST_VALUE = 7.0
SHARE_VALUES = 7  # number of values that shares may have: float32 counts exactly up to 2,189 ranks

# torch 2.14 gives two collectives a new name, and warns of the old one; 2.11 has the old one alone
_new = vars(dist)
_reduce_scatter: Callable[..., object] = _new.get("reduce_scatter_single") or _new["reduce_scatter_tensor"]
_all_gather: Callable[..., object] = _new.get("all_gather_single") or _new["all_gather_into_tensor"]


class Buffers:
    """The memory of every message of a sweep: that of the largest, the others are its beginning."""

    def __init__(self, message_bytes: int, team: Team, device: torch.device) -> None:
        """Raises what torch raises where memory does not suffice."""
        self.message_bytes = message_bytes
        elements = message_bytes // ELEMENT_BYTES
        # written to, not only promised: a page that is first touched while it is timed costs a fault
        self._whole = torch.ones(elements, dtype=torch.float32, device=device)
        self._share = torch.ones(elements // team.size, dtype=torch.float32, device=device)

    def whole(self, message_bytes: int) -> torch.Tensor:
        """All of a message, shape ``(elements,)``."""
        return self._whole[: message_bytes // ELEMENT_BYTES]

    def share(self, message_bytes: int, world_size: int) -> torch.Tensor:
        """One rank's share of a message, shape ``(elements / world_size,)``."""
        return self._share[: message_bytes // ELEMENT_BYTES // world_size]


class Operation:
    """One collective on one message.

    all_reduce and broadcast work in place, on the whole message; all_gather makes the whole of every rank's
    share, reduce_scatter the share of every rank's whole. Messages are zeros while they are timed: sums of
    sums would soon be infinite.
    """

    def __init__(self, collective: Collective, message_bytes: int, buffers: Buffers, team: Team) -> None:
        self.collective, self.message_bytes, self._team = collective, message_bytes, team
        self._whole = buffers.whole(message_bytes)
        self._share = buffers.share(message_bytes, team.size)

    def run(self) -> None:
        """Give it to the device; on a CPU it is done when the call returns."""
        group = self._team.data
        if self.collective == "all_reduce":
            dist.all_reduce(self._whole, group=group)
        elif self.collective == "broadcast":
            dist.broadcast(self._whole, src=self._team.ranks[0], group=group)
        elif self.collective == "all_gather":
            _all_gather(self._whole, self._share, group=group)
        else:
            _reduce_scatter(self._share, self._whole, group=group)

    def fill(self) -> None:
        """Numbers of which the result is known: those of the ranks, and in a whole those of the shares."""
        rank, whole = self._team.rank, self._whole.view(self._team.size, -1)
        self._whole.zero_()
        self._share.zero_()
        if self.collective == "all_reduce":
            self._whole.fill_(rank + 1)
        elif self.collective == "broadcast":
            self._whole.fill_(BROADCAST_VALUE if self._team.leads else 0)
        elif self.collective == "all_gather":
            self._share.fill_(_share_value(rank))
        else:
            for number, share in enumerate(whole):
                share.fill_((rank + 1) * _share_value(number))

    def clear(self) -> None:
        """Zeros again."""
        self._whole.zero_()
        self._share.zero_()

    def fault(self) -> str | None:
        """What is wrong with the result after ``fill`` and ``run``; None: nothing."""
        for tensor, expected in self._expected():
            low, high = (float(value) for value in tensor.aminmax())
            if (low, high) != (expected, expected):
                return f"of rank numbers it makes {low:g} to {high:g} in the place of {expected:g}"
        return None

    def _expected(self) -> Iterator[tuple[torch.Tensor, float]]:
        """Parts of the result on this rank, and the one value that each has throughout."""
        rank, size = self._team.rank, self._team.size
        sum_of_ranks = size * (size + 1) / 2
        if self.collective == "all_reduce":
            yield self._whole, sum_of_ranks
        elif self.collective == "broadcast":
            yield self._whole, BROADCAST_VALUE
        elif self.collective == "all_gather":
            for number, share in enumerate(self._whole.view(size, -1)):
                yield share, _share_value(number)
        else:
            yield self._share, sum_of_ranks * _share_value(rank)


def _share_value(number: int) -> float:
    return float(number % SHARE_VALUES + 1)

"""What an error says: whether memory ran out, whether it only echoes another rank's, in one line."""

from __future__ import annotations

import re
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

from raybench.errors import InvalidBatchError, InvalidTrialError, printable, text_of
from raybench.records.messages import Outcome
from raybench.records.record import State
from raybench.workloads.user_code import frame_of

if TYPE_CHECKING:
    import torch

    from raybench.worker.communicators import Team

# What torch's allocators and the driver say, then the libraries that take memory of their own: cuBLAS, cuDNN
# and their like, and NCCL, whose last line may name the allocation alone.
_OUT_OF_MEMORY = re.compile(
    r"out of memory|can't allocate memory|\bCU[A-Z]+_(STATUS_)?ALLOC_FAILED"
    r"|CUDNN_STATUS_INTERNAL_ERROR_(HOST|DEVICE)_ALLOCATION_FAILED|Failed to CUDA (host )?[cm]alloc",
    re.IGNORECASE,
)
# Libraries that may want memory of their own, and where there is none say something else.
_LIBRARIES = re.compile(r"cudnn|cublas|cusolver|cusparse|cufft|unable to find an engine", re.IGNORECASE)
FULL_BYTES, FULL_SHARE = 256 * 2**20, 0.01  # a GPU with less left has none for them
INVALID = (InvalidTrialError, InvalidBatchError)
LAST = "Last error:"  # in torch's messages the line before NCCL's own
GAVE_UP = "FailOnRecompileLimitHit"  # torch's compiler, whose import takes a second
_GPU: list[torch.device] = []  # this process's, which need not be torch's current one


def watch_memory_of(gpu: torch.device) -> None:
    """Ask this one what memory is left where an error may mean that there is none."""
    _GPU[:] = [gpu]


@dataclass(frozen=True)
class RankFailure:
    """The failure of one rank, as the others get it."""

    rank: int  # of the worker group
    text: str
    out_of_memory: bool
    invalid: bool  # no rank could measure the trial
    frame: str = ""  # where it arose
    ends_group: bool = False

    @classmethod
    def of(cls, error: BaseException, rank: int) -> RankFailure:
        """The failure of ``rank`` that raised ``error``."""
        invalid = isinstance(error, INVALID) or type(error).__name__ == GAVE_UP
        memory, ends_group = is_out_of_memory(error), ends_the_group(error)
        return cls(rank, describe(error), memory, invalid, frame_of(error), ends_group)


class LateTrialError(InvalidTrialError):
    """What a trial measures takes longer than a trial may: it ends ``timeout``."""


class AgreedFailure(Exception):
    """A failure that every rank of the team knows of; the groups are good but where ``ends_group``."""

    def __init__(self, failures: Sequence[RankFailure]) -> None:
        self.out_of_memory = any(failure.out_of_memory for failure in failures)
        self.invalid = any(failure.invalid for failure in failures)
        first = next((failure for failure in failures if failure.out_of_memory), failures[0])
        self.frame, self.ends_group = first.frame, any(failure.ends_group for failure in failures)
        super().__init__(first.text if self.invalid else f"rank {first.rank}: {first.text}")


def describe(error: BaseException) -> str:
    """One printable line: the type and the message's first line; of an invalid trial the message alone.

    NCCL's own line stands further down, and so may that memory ran out: then it is added.
    """
    if type(error).__name__ == GAVE_UP:
        return "compile: torch gave up, as shapes or graph keep changing"
    lines = [line.strip() for line in text_of(error).strip().splitlines()]
    if not lines:
        return type(error).__name__
    if isinstance(error, INVALID):
        return printable(lines[0])
    reported = printable(f"{type(error).__name__}: {lines[0]}")
    telling = next((line for last, line in pairwise(lines) if last == LAST or says_out_of_memory(line)), "")
    return reported if telling in reported else printable(f"{reported}: {telling}")


def is_out_of_memory(error: BaseException) -> bool:
    """Whether ``error`` says that memory ran out: a CPU's, or a GPU's in torch's allocator or outside it."""
    import torch  # the driver reads failures too, and does without it

    if isinstance(error, torch.OutOfMemoryError | MemoryError):
        return True
    if not isinstance(error, RuntimeError):
        return False
    text = text_of(error)
    return says_out_of_memory(text) or (_LIBRARIES.search(text) is not None and _is_full())


def _is_full() -> bool:
    """Whether the GPU of this process has next to no memory left; torch's allocator keeps what it freed."""
    left = _memory_left()
    return left is not None and left[0] < max(FULL_BYTES, FULL_SHARE * left[1])


def _memory_left() -> tuple[int, int] | None:
    """Of the GPU of this process free and all bytes; None without one, or where it does not answer."""
    import torch

    if not torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        return None
    try:
        return torch.cuda.mem_get_info(*_GPU)
    except RuntimeError:
        return None


def ends_the_group(error: BaseException) -> bool:
    """Whether the GPU's context is lost with ``error``, as by an assertion on the device.

    Then this process can do nothing on that GPU any more, whether the other ranks know of it or not: it does
    not even say what memory is left.
    """
    import torch

    has_gpu: bool = torch.cuda.is_initialized()  # type: ignore[no-untyped-call]
    return has_gpu and isinstance(error, RuntimeError) and _memory_left() is None


def says_out_of_memory(text: str) -> bool:
    """Whether the words of an error say that memory ran out."""
    return _OUT_OF_MEMORY.search(text) is not None


def drop_frames(error: BaseException) -> None:
    """Let go of what the functions held that ``error`` ended: the loss, and all activations behind it.

    An error keeps their frames, and they keep it wherever one was stored in a variable.
    """
    for part in chain_of(error):
        traceback.clear_frames(part.__traceback__)


def chain_of(error: BaseException) -> list[BaseException]:
    """The error, its causes, and what Ray Train collected from the workers."""
    chain, todo = list[BaseException](), [error]
    while todo:
        part = todo.pop()
        if any(part is known for known in chain):
            continue
        chain.append(part)
        failures = getattr(part, "worker_failures", None) or {}
        inner = [getattr(part, name, None) for name in ("__cause__", "__context__", "health_check_failure")]
        todo += [cause for cause in (*failures.values(), *inner) if isinstance(cause, BaseException)]
    return chain


def first_cause(failures: Sequence[Outcome]) -> Outcome:
    """The one of ``failures`` that says most: out of memory if any is, and an echo only if all are."""
    order = {"oom": 0, "invalid": 1, "timeout": 2, "crashed": 3}
    return min(failures, key=lambda failure: (order[failure.state], is_echo(failure.reason or "")))


def is_echo(text: str) -> bool:
    """Whether an error only says that another rank is gone."""
    signs = (
        *("Connection closed by peer", "Connection reset", "Timed out waiting", "Broken pipe"),
        *("remote process exit", "Socket Timeout"),  # NCCL's
    )
    return any(sign in text for sign in signs)


def failure_result(error: BaseException, team: Team) -> Outcome:
    """How a trial ended that raised ``error`` on this rank.

    Whatever the ranks have not agreed on breaks the team: others may wait for this one in a collective.
    """
    agreed = error if isinstance(error, AgreedFailure) else None
    failure = agreed or AgreedFailure([RankFailure.of(error, team.ranks[team.rank])])
    state: State = "oom" if failure.out_of_memory else "invalid" if failure.invalid else "crashed"
    if isinstance(error, LateTrialError):
        state = "timeout"
    is_agreed = agreed is not None or isinstance(error, InvalidTrialError)
    frame = failure.frame if state == "crashed" else ""
    return Outcome(state, reason=str(failure), broken=failure.ends_group or not is_agreed, frame=frame)

"""What an error says, and which of several is told."""

import weakref
from types import SimpleNamespace

import pytest
import torch

from raybench.errors import InvalidBatchError, InvalidTrialError
from raybench.worker import failures
from raybench.worker.failures import (
    AgreedFailure,
    RankFailure,
    describe,
    drop_frames,
    failure_result,
    is_echo,
    is_out_of_memory,
    watch_memory_of,
)

# As torch 2.14 and NCCL 2.29 write them.
NCCL = (
    "NCCL error in: NCCLUtils.cpp:95, unhandled cuda error (run with NCCL_DEBUG=INFO for details)\n"
    "ncclUnhandledCudaError: Call to CUDA function failed.\nLast error:\n"
)
FULL = "Error while creating shared memory segment /dev/shm/nccl-a1 (size 9637888)"


def test_one_line_of_an_error():
    assert describe(ValueError("bad label\nand more")) == "ValueError: bad label"
    assert describe(TimeoutError()) == "TimeoutError"
    assert describe(InvalidTrialError("batch 64 is too large")) == "batch 64 is too large"
    assert describe(InvalidTrialError("")) == "InvalidTrialError"
    assert describe(SystemExit(0)) == "SystemExit: 0"
    assert describe(KeyboardInterrupt()) == "KeyboardInterrupt"
    assert describe(OSError("a\udcff\x1b[2J")) == r"OSError: a\udcff\x1b[2J"
    assert len(describe(ValueError("x" * 5_000_000))) == 2000


def test_an_error_that_cannot_be_shown_is_named():
    class UnspeakableError(RuntimeError):
        def __str__(self) -> str:
            raise ValueError("not even that")

    assert describe(UnspeakableError()) == "UnspeakableError"
    assert not is_out_of_memory(UnspeakableError())


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (MemoryError("none left"), True),
        (torch.OutOfMemoryError("CUDA out of memory"), True),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried 4 bytes"), True),
        (RuntimeError("shapes differ"), False),
        (ValueError("can't allocate memory"), False),
        (torch.AcceleratorError("CUDA error: out of memory\nCompile with TORCH_USE_CUDA_DSA", 2), True),
        (torch.AcceleratorError("CUDA error: an illegal memory access was encountered", 700), False),
        (RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"), True),
        (RuntimeError("CUDA error: CUBLAS_STATUS_EXECUTION_FAILED when calling `cublasSgemm`"), False),
        (RuntimeError("cuDNN error: CUDNN_STATUS_ALLOC_FAILED"), True),
        (RuntimeError("cuDNN error: CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED"), True),
        (RuntimeError("cuFFT error: CUFFT_ALLOC_FAILED"), True),
        (torch.distributed.DistBackendError(NCCL + "Cuda failure 2 'out of memory'"), True),
        (torch.distributed.DistBackendError(NCCL + "Failed to CUDA calloc async 608 bytes"), True),
        (torch.distributed.DistBackendError(NCCL + "Cuda failure 719 'unspecified launch failure'"), False),
        (RuntimeError("DataLoader worker is killed by signal: Bus error, out of shared memory"), False),
    ],
)
def test_who_ran_out_of_memory(error, expected):
    assert is_out_of_memory(error) is expected


@pytest.mark.parametrize(
    "text",
    [
        "GET was unable to find an engine to execute this computation",
        "CUDA error: CUBLAS_STATUS_NOT_INITIALIZED when calling `cublasCreate(handle)`",
        "cusolver error: CUSOLVER_STATUS_INTERNAL_ERROR, when calling `cusolverDnCreate(handle)`",
    ],
)
def test_a_library_that_fails_on_a_full_gpu_is_out_of_memory(text, monkeypatch):
    """Whatever it says: that it found no memory of its own it does not."""
    gib = 2**30
    left = {"free": gib // 8}
    full = {torch.device("cuda", 1)}  # this process's; a workload has made another the current one
    monkeypatch.setattr(failures, "_GPU", [])
    watch_memory_of(torch.device("cuda", 1))
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(
        torch.cuda,
        "mem_get_info",
        lambda device=None: (left["free"] if device in full else 8 * gib, 16 * gib),
    )
    assert is_out_of_memory(RuntimeError(text))
    assert not is_out_of_memory(RuntimeError("shapes differ"))
    left["free"] = 2 * gib
    assert not is_out_of_memory(RuntimeError(text))
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: False)
    assert not is_out_of_memory(RuntimeError(text))


def test_the_line_that_speaks_of_memory_is_told_wherever_it_stands():
    error = torch.distributed.DistBackendError(NCCL + "Cuda failure 2 'out of memory'")
    assert describe(error) == (
        "DistBackendError: NCCL error in: NCCLUtils.cpp:95, unhandled cuda error "
        "(run with NCCL_DEBUG=INFO for details): Cuda failure 2 'out of memory'"
    )
    assert describe(torch.OutOfMemoryError("CUDA out of memory.\nmore")) == (
        "OutOfMemoryError: CUDA out of memory."
    )


class _Activations:
    """What a step that fails has in its variables."""


def _fails(held: list[weakref.ref[_Activations]], cause: Exception | None = None) -> None:
    activations = _Activations()
    held.append(weakref.ref(activations))
    raise MemoryError("planted") from cause


def test_an_error_that_is_kept_keeps_nothing_of_the_step_that_failed():
    held: list[weakref.ref[_Activations]] = []
    kept: list[Exception] = []
    try:
        _fails(held)
    except MemoryError as first:
        try:
            _fails(held, first)
        except MemoryError as second:
            kept.append(second)
    assert [reference() is None for reference in held] == [False, False]
    drop_frames(kept[0])
    assert [reference() is None for reference in held] == [True, True]


@pytest.mark.parametrize(
    ("text", "end"),
    [
        (NCCL + FULL, FULL),
        (NCCL, "for details)"),  # NCCL has nothing to say
        ("late\nmore", "late"),
    ],
)
def test_what_nccl_says_of_its_failure_is_told(text, end):
    error = torch.distributed.DistBackendError(text)
    assert describe(error).startswith(f"DistBackendError: {text.splitlines()[0]}")
    assert describe(error).endswith(end)


def test_an_echo_only_says_that_another_rank_is_gone():
    assert is_echo("RuntimeError: [pair.cc:547] Connection closed by peer [::1]:44")
    remote = "remote process exited or there was a network error, NCCL version 2.29.3"
    assert is_echo(describe(torch.distributed.DistBackendError(NCCL.replace("unhandled cuda error", remote))))
    # all that the driver gets of a worker that Ray ended with it
    assert is_echo(
        "ncclRemoteError: A call failed possibly due to a network error or a remote process exiting "
        "prematurely."
    )
    system = NCCL.replace("unhandled cuda error", "unhandled system error, NCCL version 2.29.3")
    reset = "socketProgressOpt: Call to recv from 10.0.0.2<4711> failed : Connection reset by peer"
    assert is_echo(describe(torch.distributed.DistBackendError(system + reset)))
    assert not is_echo(describe(torch.distributed.DistBackendError(system + FULL)))
    assert is_echo("DistNetworkError: Socket Timeout")
    assert not is_echo("ValueError: bad label")


def test_the_rank_without_memory_is_told_before_the_others():
    failures = [RankFailure.of(ValueError("late"), 2), RankFailure.of(MemoryError("none"), 5)]
    agreed = AgreedFailure(failures)
    assert str(agreed) == "rank 5: MemoryError: none"
    assert agreed.out_of_memory
    assert not agreed.invalid


def test_what_no_rank_can_measure_is_told_without_a_rank():
    agreed = AgreedFailure([RankFailure.of(InvalidTrialError("batch 64 is too large"), 1)])
    assert str(agreed) == "batch 64 is too large"
    assert agreed.invalid


class FailOnRecompileLimitHit(RuntimeError):
    """Named as torch's."""


@pytest.mark.parametrize(
    ("error", "state", "reason"),
    [
        (MemoryError("none"), "oom", "rank 3: MemoryError: none"),
        (ValueError("late"), "crashed", "rank 3: ValueError: late"),
        (InvalidBatchError("7 samples"), "invalid", "7 samples"),
        (FailOnRecompileLimitHit(), "invalid", "compile: torch gave up, as shapes or graph keep changing"),
    ],
)
def test_whatever_is_not_agreed_is_broken(error, state, reason):
    team = SimpleNamespace(ranks=(3,), rank=0)
    agreed = AgreedFailure([RankFailure.of(error, 3)])
    for raised, broken in ((error, True), (agreed, False)):
        found = failure_result(raised, team)
        assert (found.state, found.reason, found.broken) == (state, reason, broken)


def test_what_every_rank_finds_at_once_is_agreed():
    found = failure_result(InvalidTrialError("batch 64 is too large"), SimpleNamespace(ranks=(3,), rank=0))
    assert (found.state, found.reason, found.broken) == ("invalid", "batch 64 is too large", False)

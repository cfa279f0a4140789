"""What an error says, and which of several is told."""

import pytest
import torch

from raybench.errors import InvalidTrialError
from raybench.worker.failures import AgreedFailure, RankFailure, describe, is_echo, is_out_of_memory


def test_one_line_of_an_error():
    assert describe(ValueError("bad label\nand more")) == "ValueError: bad label"
    assert describe(TimeoutError()) == "TimeoutError"
    assert describe(InvalidTrialError("batch 64 is too large")) == "batch 64 is too large"


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (MemoryError("none left"), True),
        (torch.OutOfMemoryError("CUDA out of memory"), True),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried 4 bytes"), True),
        (RuntimeError("shapes differ"), False),
        (ValueError("can't allocate memory"), False),
    ],
)
def test_who_ran_out_of_memory(error, expected):
    assert is_out_of_memory(error) is expected


def test_an_echo_only_says_that_another_rank_is_gone():
    assert is_echo("RuntimeError: [pair.cc:547] Connection closed by peer [::1]:44")
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

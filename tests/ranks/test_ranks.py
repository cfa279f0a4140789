"""Ranks that are kept: what fails in them is named, and the next function finds new ones."""

from __future__ import annotations

import os
from typing import Any

import pytest
import torch.distributed as dist

from tests.ranks.ranks import Ranks


def _fails(how: str) -> int:
    if dist.get_rank() == 1:
        if how == "raises":
            raise ValueError("planted")
        os._exit(7)
    dist.barrier()  # in which the other rank never comes
    return os.getpid()


def _works(values: list[int]) -> tuple[int, Any, int]:
    group: Any = dist.new_group(backend="gloo")
    dist.barrier(group)
    return values[dist.get_rank()], os.environ.get("PLANTED"), os.getpid()


def test_a_rank_that_fails_is_named_and_the_next_call_finds_new_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    ranks = Ranks(2)
    try:
        for how, told in (("raises", "ValueError: planted"), ("dies", "exit code 7")):
            with pytest.raises(AssertionError, match=told):
                ranks.call(_fails, how)
        monkeypatch.setenv("PLANTED", "first")
        first = ranks.call(_works, [5, 6])
        monkeypatch.setenv("PLANTED", "second")
        second = ranks.call(_works, [5, 6])
    finally:
        ranks.close()
    assert [each[:2] for each in first] == [(5, "first"), (6, "first")]
    assert [each[:2] for each in second] == [(5, "second"), (6, "second")]
    assert [each[2] for each in first] == [each[2] for each in second]  # the same processes

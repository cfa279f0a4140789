"""Step times, written and read again: of each step the slowest rank's."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from raybench.records import step_times
from raybench.records.messages import BlockStepTimes
from raybench.records.step_times import slowest_steps, write_step_times

RANKS = (0, 1, 2)


def blocks(steps: int, rounds: int = 3) -> list[BlockStepTimes]:
    draw = np.random.default_rng(1)
    return [
        BlockStepTimes(variant, each, RANKS, draw.gamma(50, 2e-4, (len(RANKS), steps)))
        for each in range(rounds)
        for variant in ("plain", "ddp")
    ]


@pytest.mark.parametrize("at_once", [1, 4, 7, 1000])
def test_the_slowest_rank_of_each_step_wherever_the_file_is_cut(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at_once: int
) -> None:
    monkeypatch.setattr(step_times, "ROWS_AT_ONCE", at_once)
    written = blocks(steps=5)
    write_step_times(tmp_path / "a.parquet", written)
    found = slowest_steps(tmp_path / "a.parquet")
    for variant in ("plain", "ddp"):
        slowest = [each.step_time_s.max(axis=0) for each in written if each.variant == variant]
        assert found[variant].tolist() == np.concatenate(slowest).tolist()


def test_rows_may_be_in_any_order(tmp_path: Path) -> None:
    write_step_times(tmp_path / "a.parquet", blocks(steps=5))
    table = pq.read_table(tmp_path / "a.parquet")
    order = np.random.default_rng(2).permutation(len(table))
    pq.write_table(table.take(order), tmp_path / "b.parquet")
    one, other = (slowest_steps(tmp_path / f"{name}.parquet") for name in "ab")
    assert {name: sorted(each) for name, each in one.items()} == {
        name: sorted(each) for name, each in other.items()
    }


def test_a_part_of_the_file_is_in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(step_times, "ROWS_AT_ONCE", 1 << 14)
    steps = (1 << 19) // (6 * len(RANKS))
    write_step_times(tmp_path / "a.parquet", blocks(steps))
    usual = pa.default_memory_pool()
    counting = pa.proxy_memory_pool(usual)
    pa.set_memory_pool(counting)
    try:
        found = slowest_steps(tmp_path / "a.parquet")
    finally:
        pa.set_memory_pool(usual)
    assert sum(len(each) for each in found.values()) == 6 * steps
    whole_bytes = 6 * steps * len(RANKS) * (8 + 4 + 4 + 4)  # the columns that are read
    assert counting.max_memory() < whole_bytes / 2


@pytest.mark.parametrize("step", [-1, 6, 2**31 - 1])
def test_a_step_that_cannot_be_is_no_measurement(tmp_path: Path, step: int) -> None:
    rows = {"variant": ["ddp"] * 4, "round": [0] * 4, "rank": [0, 1, 0, 1], "step": [0, 0, 1, step]}
    pq.write_table(pa.table({**rows, "step_time_s": [0.1, 0.2, 0.3, 0.4]}), tmp_path / "a.parquet")
    assert slowest_steps(tmp_path / "a.parquet") == {}

"""Step times, written and read again: of each step the slowest rank's."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

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


def test_the_slowest_rank_of_each_step(tmp_path: Path) -> None:
    written = blocks(steps=5)
    write_step_times(tmp_path / "a.parquet", written)
    found = slowest_steps(tmp_path / "a.parquet")
    for variant in ("plain", "ddp"):
        slowest = [each.step_time_s.max(axis=0) for each in written if each.variant == variant]
        assert sorted(found[variant]) == sorted(np.concatenate(slowest))


def test_rows_may_be_in_any_order(tmp_path: Path) -> None:
    write_step_times(tmp_path / "a.parquet", blocks(steps=5))
    table = pq.read_table(tmp_path / "a.parquet")
    order = np.random.default_rng(2).permutation(len(table))
    pq.write_table(table.take(order), tmp_path / "b.parquet")
    one, other = (slowest_steps(tmp_path / f"{name}.parquet") for name in "ab")
    assert {name: sorted(each) for name, each in one.items()} == {
        name: sorted(each) for name, each in other.items()
    }


@pytest.mark.parametrize("time_s", [0.0, -0.1, float("nan"), "slow"])
def test_a_time_that_cannot_be_is_no_measurement(tmp_path: Path, time_s: object) -> None:
    rows = {"variant": ["ddp"] * 2, "round": [0] * 2, "rank": [0, 1], "step": [0, 1]}
    times = [time_s, time_s] if isinstance(time_s, str) else [0.1, time_s]
    pq.write_table(pa.table({**rows, "step_time_s": times}), tmp_path / "a.parquet")
    assert slowest_steps(tmp_path / "a.parquet") == {}

"""Step times, written as any reader of parquet finds them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow.parquet as pq

from raybench.records.messages import BlockStepTimes
from raybench.records.store import write_step_times

RANKS = (0, 1, 2)


def test_a_row_is_a_step_of_a_rank(tmp_path: Path) -> None:
    draw = np.random.default_rng(1)
    written = [
        BlockStepTimes(variant, each, RANKS, draw.gamma(50, 2e-4, (len(RANKS), 5)))
        for each in range(3)
        for variant in ("plain", "ddp")
    ]
    write_step_times(tmp_path / "a.parquet", written)
    rows = pq.read_table(tmp_path / "a.parquet").to_pylist()
    assert len(rows) == 3 * 2 * len(RANKS) * 5
    found = {(row["variant"], row["round"], row["rank"], row["step"]): row["step_time_s"] for row in rows}
    for block in written:
        for rank in RANKS:
            for step in range(5):
                assert found[block.variant, block.round, rank, step] == block.step_time_s[rank, step]

"""``samples/``: the step times of every rank, one parquet file a trial."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from raybench.records.messages import BlockStepTimes  # brings numpy, which reading does not need


def write_step_times(path: Path, step_times: Sequence[BlockStepTimes]) -> None:
    """Columns variant, round, rank, step, step_time_s; whole or not at all. Raises ``OSError``."""
    import numpy as np
    import pyarrow as pa  # 0.2 s that commands without samples do not pay
    import pyarrow.parquet as pq

    def repeated(values: Any, per: Sequence[int]) -> Any:
        return np.repeat(np.asarray(values), per)

    sizes = [block.step_time_s.size for block in step_times]
    ranks = [np.repeat(np.asarray(block.ranks, np.int32), block.step_time_s.shape[1]) for block in step_times]
    steps = [
        np.tile(np.arange(block.step_time_s.shape[1], dtype=np.int32), len(block.ranks))
        for block in step_times
    ]
    table = pa.table(
        {
            "variant": pa.array(repeated([block.variant for block in step_times], sizes)).dictionary_encode(),
            "round": pa.array(repeated(np.asarray([block.round for block in step_times], np.int32), sizes)),
            "rank": pa.array(np.concatenate(ranks)),
            "step": pa.array(np.concatenate(steps)),
            "step_time_s": pa.array(np.concatenate([block.step_time_s.ravel() for block in step_times])),
        }
    )
    path.parent.mkdir(exist_ok=True)
    unfinished = path.with_suffix(".unfinished")
    try:
        with unfinished.open("wb") as file:
            pq.write_table(table, file, compression="zstd")
            file.flush()
            os.fsync(file.fileno())
        unfinished.replace(path)
    except OSError:
        unfinished.unlink(missing_ok=True)
        raise

"""``samples/``: the step times of every rank, one parquet file a trial."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from raybench.records.whole_files import replace_whole

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from raybench.records.messages import BlockStepTimes  # brings numpy, which reading does not need

ROWS_AT_ONCE = 1 << 18


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
            #: what was run
            "variant": pa.array(repeated([block.variant for block in step_times], sizes)).dictionary_encode(),
            #: number of the round, from 0
            "round": pa.array(repeated(np.asarray([block.round for block in step_times], np.int32), sizes)),
            #: rank in the worker group
            "rank": pa.array(np.concatenate(ranks)),
            #: number of the step in its block, from 0
            "step": pa.array(np.concatenate(steps)),
            #: from one optimizer step to the next, in s
            "step_time_s": pa.array(np.concatenate([block.step_time_s.ravel() for block in step_times])),
        }
    )
    path.parent.mkdir(exist_ok=True)
    replace_whole(path, lambda file: pq.write_table(table, file, compression="zstd"))


def slowest_steps(path: Path) -> dict[str, NDArray[np.float64]]:
    """Of each step its slowest rank's time, by variant, in s; empty where the file is not as it was written.

    Read part by part: of ten million times a fortieth is in memory, and the slowest of each step.
    """
    import numpy as np
    import pyarrow as pa
    import pyarrow.parquet as pq

    blocks: dict[tuple[str, int], NDArray[np.float64]] = {}  # by variant and round, a place for each step
    try:
        with pq.ParquetFile(path) as file:
            most = file.metadata.num_rows
            for batch in file.iter_batches(ROWS_AT_ONCE, columns=["variant", "round", "step", "step_time_s"]):
                for variant, number, steps, times_s in _runs(batch):
                    known = blocks.get((variant, number), np.empty(0))
                    num_steps = max(len(known), int(steps.max()) + 1)
                    if num_steps > most or steps.min() < 0:  # more steps than rows
                        return {}
                    if num_steps > len(known):
                        known = np.concatenate([known, np.zeros(num_steps - len(known))])
                        blocks[variant, number] = known
                    np.maximum.at(known, steps, times_s)
    except (OSError, KeyError, ValueError, pa.ArrowException):
        return {}
    found: dict[str, list[NDArray[np.float64]]] = {}
    for (variant, _), times_s in blocks.items():
        found.setdefault(variant, []).append(times_s)
    slowest = {variant: np.concatenate(each) for variant, each in found.items()}
    is_whole = all((np.isfinite(each) & (each > 0)).all() for each in slowest.values())
    return slowest if is_whole else {}


def _runs(batch: Any) -> Iterator[tuple[str, int, Any, Any]]:
    """Rows of one block that follow each other: variant, round, their steps and times."""
    import numpy as np
    import pyarrow as pa

    names = batch["variant"].dictionary_encode()
    codes = names.indices.to_numpy()
    rounds, steps = (batch[name].cast(pa.int64()).to_numpy() for name in ("round", "step"))
    times_s = batch["step_time_s"].cast(pa.float64()).to_numpy()
    starts = np.flatnonzero((np.diff(codes) != 0) | (np.diff(rounds) != 0)) + 1
    ends = [0, *starts.tolist(), len(codes)]
    for first, end in itertools.pairwise(ends):
        if end > first:
            rows = slice(first, end)
            yield str(names.dictionary[codes[first]]), int(rounds[first]), steps[rows], times_s[rows]

"""``samples/``: the step times of every rank, one parquet file a trial."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from raybench.records.whole_files import replace_whole

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

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
    """Of each step its slowest rank's time, by variant, in any order, in s; empty for a damaged file."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.parquet as pq

    keys = ["variant", "round", "step"]
    try:
        table = pq.read_table(path, columns=[*keys, "step_time_s"])
        table = table.set_column(0, "variant", table["variant"].cast(pa.string()))
        found = table.group_by(keys).aggregate([("step_time_s", "max")])
        variants, times_s = (np.asarray(found[name]) for name in ("variant", "step_time_s_max"))
        is_whole = bool((np.isfinite(times_s) & (times_s > 0)).all())
    except (OSError, KeyError, ValueError, TypeError, pa.ArrowException):
        return {}
    return {name: times_s[variants == name] for name in dict.fromkeys(variants)} if is_whole else {}

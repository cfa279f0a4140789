"""Tables of measured steps for the tests of what is concluded from them."""

from __future__ import annotations

from pathlib import Path

from raybench.analysis.simulate.sources import groups_of_table
from raybench.analysis.simulate.steps import MeasuredGroup, ScalingMode
from raybench.records.measured_elsewhere import read_measured_csv

HEADER = "nodes,world_size,batch_size,step_time_s"


def groups(
    folder: Path, rows: list[str], *, header: str = HEADER, scaling: ScalingMode = "weak"
) -> list[MeasuredGroup]:
    """The groups of a file of these rows."""
    path = folder / "mine.csv"
    path.write_text("\n".join([header, *rows]) + "\n", encoding="utf-8")
    return groups_of_table(read_measured_csv(path, scaling), scaling)

"""Step times by variant, of the samples on disk."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from raybench.analysis.results import StudyResults
from raybench.report.plot import to_png
from raybench.report.sections.trials import draw_step_times, step_time_plot

pytestmark = pytest.mark.usefixtures("pictures")


def test_step_times_take_the_slowest_rank(results: StudyResults, tmp_path: Path) -> None:
    assert results.headline is not None
    columns = {
        "variant": pa.array(["ddp"] * 4).dictionary_encode(),
        "round": [0] * 4,
        "rank": [0, 0, 1, 1],
        "step": [0, 1, 0, 1],
        "step_time_s": [0.1, 0.4, 0.3, 0.2],
    }
    pq.write_table(pa.table(columns), tmp_path / f"{results.headline.trial_id}.parquet")
    plot = step_time_plot(results, tmp_path)
    assert plot is not None
    assert {label: times.tolist() for label, times in plot.sorted_s.items()} == {"the step": [0.3, 0.4]}
    assert to_png(draw_step_times(plot)).startswith(b"\x89PNG")


def test_without_samples_or_with_a_damaged_file_there_is_no_plot(
    results: StudyResults, tmp_path: Path
) -> None:
    assert results.headline is not None
    assert step_time_plot(results, tmp_path) is None
    (tmp_path / f"{results.headline.trial_id}.parquet").write_bytes(b"torn")
    assert step_time_plot(results, tmp_path) is None

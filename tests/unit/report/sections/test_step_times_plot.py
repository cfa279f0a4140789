"""Step times by variant: of samples where there are, else the means of blocks."""

from __future__ import annotations

from pathlib import Path

import pytest

from raybench.analysis.results import StudyResults
from raybench.report.sections.trials import step_time_plot

pytestmark = pytest.mark.usefixtures("pictures")


def test_step_times_without_samples_are_block_means(results: StudyResults) -> None:
    plot = step_time_plot(results, None)
    assert plot is not None
    assert not plot.of_steps
    assert results.headline is not None
    assert results.headline.steps is not None
    assert len(plot.distributions[-1].sorted_s) == len(results.headline.steps.rounds)


def test_step_times_from_samples_take_the_slowest_rank(results: StudyResults, tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

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
    assert plot.of_steps
    assert [each.label for each in plot.distributions] == ["DDP"]
    assert plot.distributions[0].sorted_s.tolist() == [0.3, 0.4]


def test_a_damaged_samples_file_is_done_without(results: StudyResults, tmp_path: Path) -> None:
    assert results.headline is not None
    (tmp_path / f"{results.headline.trial_id}.parquet").write_bytes(b"torn")
    plot = step_time_plot(results, tmp_path)
    assert plot is not None
    assert not plot.of_steps

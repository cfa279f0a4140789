"""The compute that hides communication, in words."""

from __future__ import annotations

from dataclasses import replace

from raybench.analysis import analyse
from raybench.analysis.overlap import MOST_SHOWN
from raybench.report.sections.overlap import hiding_table, hiding_words
from tests.support.planted import QUIET, FakeRunner
from tests.unit.studies import exactly, grid, planted, study


def test_compute_that_hides_communication_is_told() -> None:
    # exposed: 10% of the step at 10 ms of compute, 2% at 40 ms
    table = hiding_table(planted({(32,): exactly(0.9), (128,): exactly(0.98, 0.04)}, "batch_size"))
    assert "Hidden where a step has more than about 23.8 ms" in table.caption
    assert "between 10.0 ms and 40.0 ms (batch 32 and 128)" in table.caption


def test_hiding_that_is_not_reached_or_always_there_says_so() -> None:
    (never,) = planted({(32,): exactly(0.5), (128,): exactly(0.8, 0.04)}, "batch_size").overlaps.shown
    assert hiding_words(never) == "not reached up to 40.0 ms of compute in a step."
    (always,) = planted({(32,): exactly(0.97), (128,): exactly(0.99, 0.04)}, "batch_size").overlaps.shown
    assert hiding_words(always) == "hidden at every batch measured, from 10.0 ms of compute on."


def test_between_batches_far_apart_no_point_is_told() -> None:
    (found,) = planted({(8,): exactly(0.9), (128,): exactly(0.98, 0.04)}, "batch_size").overlaps.shown
    assert found.is_wide
    words = "where a step has more compute than somewhere between 10.0 ms and 40.0 ms (batch 8 and 128)."
    assert hiding_words(found) == f"hidden {words}"


def test_a_passage_with_no_end_of_its_interval_measured_is_told_by_its_neighbours() -> None:
    (found,) = planted({(32,): exactly(0.9), (128,): exactly(0.98, 0.04)}, "batch_size").overlaps.shown
    open_ended = replace(found, low_s=None, high_s=None)
    words = "hidden where a step has more compute than somewhere between 10.0 ms and 40.0 ms"
    assert hiding_words(open_ended).startswith(words)


def test_of_the_settings_of_a_large_search_a_few_are_told_and_the_rest_counted() -> None:
    """The caption of 18,000 settings was a paragraph of 4 MB."""
    caps = list(range(1, 13))
    spec = study(knobs={"batch_size": [32, 128], "bucket_cap_mb": [64, *caps]})
    records, _ = grid(spec, (1, 2), FakeRunner(noise=QUIET))
    results = analyse(spec, records)
    assert len(results.overlaps.shown) == MOST_SHOWN
    assert results.overlaps.shown[0].label == "64 MiB buckets"  # the headline's
    assert results.overlaps.num_others == 13 - MOST_SHOWN
    table = hiding_table(results)
    assert len(table.rows) == 2 * MOST_SHOWN
    assert table.caption.endswith("Not shown: 5 settings more that were measured at several batches.")

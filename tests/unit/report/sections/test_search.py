"""Suggestions and the winner's confirmation."""

from __future__ import annotations

from dataclasses import replace

from raybench.analysis.results import StudyResults
from raybench.report.sections.search import confirmation_table, suggestions_table


def test_suggestions_are_ordered_by_speed_and_say_what_batch_means(results: StudyResults) -> None:
    table = suggestions_table(results)
    speeds = [float(row[2].split()[0].replace(",", "")) for row in table.rows]
    assert speeds == sorted(speeds, reverse=True)
    assert "a choice about speed alone" in table.caption


def test_several_winners_have_intervals_for_all_at_once(results: StudyResults) -> None:
    twice = replace(results, confirmations=results.confirmations * 2)
    assert "95% interval for all at once" in confirmation_table(twice).caption
    assert "at once" not in confirmation_table(results).caption


def test_the_winner_stands_against_the_default(results: StudyResults) -> None:
    (row,) = confirmation_table(results).rows
    assert row[0] == "bf16"
    assert row[3] == "better"

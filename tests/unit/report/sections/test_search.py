"""Suggestions, and each setting against the default."""

from __future__ import annotations

from raybench.analysis.results import StudyResults
from raybench.report.sections.search import gains_table, suggestions_table


def test_suggestions_are_ordered_by_speed_and_say_what_batch_means(results: StudyResults) -> None:
    table = suggestions_table(results)
    speeds = [float(row[2].split()[0].replace(",", "")) for row in table.rows]
    assert speeds == sorted(speeds, reverse=True)
    assert "a choice about speed alone" in table.caption


def test_every_setting_stands_against_the_default_with_its_verdict(results: StudyResults) -> None:
    rows = gains_table(results).rows
    assert len(rows) == len(results.gains) == len(results.rivals) - 1
    by_label = {row[0]: row for row in rows}
    for record in results.rivals:
        gain = results.gain(record)
        if gain is not None:
            row = by_label[results.label(record)]
            assert row[-2:] == (str(gain.verdict), str(len(results.visits(record))))
    gains = [int(row[-3].split("%")[0]) for row in rows]
    assert gains == sorted(gains, reverse=True)

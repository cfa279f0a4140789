"""What a study prints at its end fits the terminal, and the answer comes last."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from raybench.analysis.results import StudyResults
from raybench.report import print_summary


def printed(results: StudyResults, width: int = 80) -> str:
    text = io.StringIO()
    print_summary(results, Console(file=text, width=width))
    return text.getvalue()


@pytest.mark.parametrize("which", ["results", "wide"])
def test_the_terminal_table_fits_80_columns(which: str, request: pytest.FixtureRequest) -> None:
    text = printed(request.getfixturevalue(which))
    assert max(map(len, text.splitlines())) <= 80
    assert len(text.splitlines()) < 80


def test_a_narrow_terminal_is_not_overrun(results: StudyResults) -> None:
    assert max(map(len, printed(results, 60).splitlines())) <= 60


def test_the_answer_stands_below_the_table(results: StudyResults) -> None:
    text = " ".join(printed(results).split())
    assert text.endswith("over the default, in the same rounds")
    assert "best of 6: bf16" in text


def test_failures_are_in_the_terminal_table(wide: StudyResults) -> None:
    assert "oom" in printed(wide)
    assert "trials more in the report" in " ".join(printed(wide).split())

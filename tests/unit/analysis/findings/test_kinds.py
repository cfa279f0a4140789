"""Every rule is registered under the name of its finding, and every name and reason has its texts."""

from __future__ import annotations

import string

import pytest

from raybench.analysis.findings.diagnose import RULES
from raybench.analysis.findings.finding import FindingName, Reason
from raybench.report.finding_texts import EVIDENCE, FIX

BY_CHANGE = {Reason.MANY_BUCKETS, Reason.VIEWS}  # whose text is their change
OF_STUDY = {FindingName.FAILED, FindingName.NOT_REACHED}


def test_every_finding_has_a_rule_and_they_stand_in_its_order() -> None:
    found = [rule.__name__.upper() for rule in RULES]
    assert found == [each.name for each in FindingName if each not in OF_STUDY]


@pytest.mark.parametrize("table", [EVIDENCE, FIX], ids=["evidence", "fix"])
def test_texts_are_sentences_of_at_most_32_words(table: dict[FindingName | Reason, str]) -> None:
    """Without chains of clauses, and with three figures at most."""
    for key, text in table.items():
        shown = [name for _, name, _, _ in string.Formatter().parse(text) if name]
        figures = [name for name in shown if not name.startswith(("far", "near", "variable", "value"))]
        assert len(text.split()) <= 32, key
        assert ";" not in text, key
        assert len(figures) <= 3, key
        assert not text.endswith("."), key


def test_every_reason_has_a_text_of_its_own() -> None:
    assert {each for each in Reason if each not in EVIDENCE and each not in FIX} == BY_CHANGE

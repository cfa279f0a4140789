"""docs/reference.md is generated, and no link to a heading of the documents leads nowhere."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.support.reference import REFERENCE, reference

DOCUMENTS = (*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md"))


def test_it_is_what_the_program_says() -> None:
    written = REFERENCE.read_text(encoding="utf-8")
    assert written == reference(), "python -m tests.support.reference writes it anew"


def anchors(document: Path) -> set[str]:
    """The headings of a document, as links on GitHub name them."""
    headings = re.findall(r"^#+ (.*)$", document.read_text(encoding="utf-8"), re.M)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_links_to_headings(document: Path) -> None:
    for file, heading in re.findall(r"\]\(([\w./-]*)#([\w-]+)\)", document.read_text(encoding="utf-8")):
        target = document.parent / file if file else document
        assert heading in anchors(target), f"{file}#{heading}"

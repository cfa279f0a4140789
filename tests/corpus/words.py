"""The words of a report as a reader counts them: without tables, code and folded parts."""

from __future__ import annotations

import re

WORD = re.compile(r"[^\s|*#`·–-][^\s|]*")
SENTENCE_END = re.compile(r"(?<=[.!?])\s+|\n")
CODE = re.compile(r"^```.*?^```$", re.DOTALL | re.MULTILINE)
FOLDED = re.compile(r"<details>.*?</details>", re.DOTALL)


def words(text: str) -> list[str]:
    """Every word and number of a text, also those of tables."""
    return WORD.findall(text)


def before_first_table(markdown: str) -> str:
    """What a reader meets first."""
    return markdown.partition("\n| ")[0]


def unfolded(markdown: str) -> str:
    """A document as it opens."""
    return FOLDED.sub("", markdown)


def sentences(markdown: str) -> list[str]:
    """Every sentence in prose: no row of a table, no code."""
    prose = [line for line in CODE.sub("", markdown).splitlines() if not line.startswith("|")]
    return [each for each in SENTENCE_END.split("\n".join(prose)) if each.strip()]

"""How much a report says, in which words, and what a reader must not have to guess."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

from raybench.report.format import bit_rate_words
from raybench.report.prediction import more_sentences, required_table
from tests.conftest import ROOT
from tests.corpus.invariants import Drawn
from tests.corpus.words import before_first_table, sentences, unfolded, words

MOST_BEFORE_THE_TABLE, MOST_UNFOLDED, LONGEST_SENTENCE = 155, 1_100, 32
# A language of its own: what other projects say stands in CONTRIBUTING.md. "There is no" is English.
AVOIDED = re.compile(
    r"\b(told|tells|speaks for|stands for|beside|apart|was asked|were asked|asks again|anew|again and again|"
    r"alike|the same thing|so many|as far as|surely|meanwhile|whoever|the cure|what it brings|by itself|"
    r"(?<!there )is no (?!longer|more)|(?<!there )is none)\b",
    re.IGNORECASE,
)


def _texts(path: Path) -> Iterator[tuple[int, str]]:
    """Strings that users may see: all but docstrings."""
    tree = ast.parse(path.read_text())
    ours = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    documented = [each.body[0] for each in ast.walk(tree) if isinstance(each, ours) and each.body]
    docstrings = {id(each.value) for each in documented if isinstance(each, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings:
            yield node.lineno, node.value


def test_no_message_has_a_word_that_only_we_use() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{line}: {text}"
        for path in sorted((ROOT / "raybench").rglob("*.py"))
        for line, text in _texts(path)
        if AVOIDED.search(text)
    ]
    assert not found, "\n".join(found)


def test_no_document_has_one() -> None:
    """But the reference, which is made of comments in the code."""
    documents = {ROOT / "README.md", *(ROOT / "docs").glob("*.md"), *(ROOT / "studies").glob("*.toml")}
    found = [
        f"{path.relative_to(ROOT)}: {text[max(each.start() - 40, 0) : each.end() + 40]}"
        for path in sorted(documents - {ROOT / "docs/reference.md"})
        for text in [" ".join(path.read_text().split())]  # a word may go on in the next line
        for each in AVOIDED.finditer(text)
    ]
    assert not found, "\n".join(found)


def test_no_report_has_one(drawn: Drawn) -> None:
    for text in (drawn.markdown, drawn.diagnosis, drawn.answer):
        assert not [each[0] for each in AVOIDED.finditer(text)]


def test_the_first_table_comes_soon(draw: Callable[[str], Drawn]) -> None:
    asked = (ROOT / "studies/default.toml").read_text().splitlines()[0].removeprefix("# ")
    first = before_first_table(draw("default").markdown)
    assert len(words(first.replace("# default", f"# {asked}", 1))) <= MOST_BEFORE_THE_TABLE


def test_a_report_is_read_in_minutes(drawn: Drawn) -> None:
    assert len(words(unfolded(drawn.markdown))) <= MOST_UNFOLDED


def test_a_sentence_is_short(drawn: Drawn) -> None:
    long = [each for each in sentences(drawn.markdown) if len(words(each)) > LONGEST_SENTENCE]
    assert not long


def test_words_are_counted_as_a_reader_does() -> None:
    text = "# A title\n\n- **Why**: 65% of it. Two [1, 2] · three.\n\n| a | b |\n| --- | --- |\n| 1 | 2 |\n"
    assert len(words(before_first_table(text))) == 10
    assert sentences(text)[1:] == ["- **Why**: 65% of it.", "Two [1, 2] · three."]
    assert unfolded("a <details>\nb\n</details> c") == "a  c"


def test_a_buyer_can_compare_the_network_with_todays(draw: Callable[[str], Drawn]) -> None:
    drawn = draw("default")
    more, waterfall = drawn.results.more_devices, drawn.results.waterfall
    assert more is not None
    assert waterfall is not None
    assert waterfall.bus_bandwidth_bytes_per_s is not None
    today, first = waterfall.bus_bandwidth_bytes_per_s.value, more.requirements[0]
    assert first.bus_bytes_per_s is not None
    assert first.bus_bytes_per_s.low < today < first.bus_bytes_per_s.high
    free = f"a free network lets 4 devices train {4 * first.ceiling.value:.2f} times as fast as one"
    low = first.bus_bytes_per_s.low
    rate = bit_rate_words(low, first.bus_bytes_per_s.high)  # what joins the devices of one node is no network
    assert f"{free}. Coming near that takes {rate} a node. Expect" in drawn.answer
    assert more.bus_bytes_per_s is None
    several = replace(more, bus_bytes_per_s=today)
    reached = f"coming near that takes {rate} a node, and these reach {bit_rate_words(today)}"
    assert more_sentences(replace(several, points=())) == [free, reached]
    endless = replace(first, bus_bytes_per_s=replace(first.bus_bytes_per_s, high=1e13))
    said = more_sentences(replace(several, points=(), requirements=(endless,)))[1]
    assert said.startswith(f"coming near that takes at least {bit_rate_words(low)} a node, and these reach ")
    table = drawn.table("What the network must bring")
    assert table is not None
    assert table.rows[0]["in bits"].startswith(bit_rate_words(first.bus_bytes_per_s.value))
    assert "Today" not in table.caption
    assert bit_rate_words(today) in required_table(several).caption


def test_advice_that_was_not_trained_says_so(draw: Callable[[str], Drawn]) -> None:
    answer = draw("training").answer
    assert "On 2 devices batch 32 is 6.34 times the default's speed." in answer
    assert "Accuracy with batch 32, the setting to use, was not measured." in answer


def test_the_cost_is_that_of_the_setting_to_use(draw: Callable[[str], Drawn]) -> None:
    table = draw("training").table("Cost")
    assert table is not None
    assert [row["setting"].partition(",")[0] for row in table.rows] == ["batch 2"] * 2 + ["batch 32"] * 2


NUMBER = re.compile(r"(?<![\w.,])\d[\d,]*(?:\.\d+)?")
MOST_SENTENCES, MOST_NUMBERS = 2, 3


def test_each_answer_is_two_sentences_of_three_numbers(drawn: Drawn) -> None:
    """As the line on scaling had six. What a setting is called is none."""
    training = drawn.results.training
    called = [each.changes for each in training.groups if each.changes] if training else []
    called.append(drawn.results.recommendation.label if drawn.results.recommendation else "")
    for line in drawn.box.splitlines():
        words = re.sub(r"`[^`]*`", "", line).partition("**: ")[2]
        for name in filter(None, called):
            words = words.replace(name, "X")
        said = sentences(words)
        assert len(said) <= MOST_SENTENCES, line
        assert all(len(NUMBER.findall(each)) <= MOST_NUMBERS for each in said), line


def test_what_decides_nothing_is_left_out_in_a_line(draw: Callable[[str], Drawn]) -> None:
    drawn = draw("training")
    assert drawn.table("What if: predicted from one trial") is None
    assert "No other bucket size is predicted to differ measurably" in drawn.markdown

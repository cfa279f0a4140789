"""The values of options: what they are read as, and how a wrong one is answered."""

import pytest

from raybench.commands.options import (
    amount,
    count,
    counts,
    parse_assignment,
    parse_duration,
    parse_percent,
    parse_values,
    states,
)
from raybench.errors import RequestError


def problems(call, *arguments, **options):
    with pytest.raises(RequestError) as caught:
        call(*arguments, **options)
    assert all("\n" not in line for line in caught.value.problems)
    return list(caught.value.problems)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("knobs.batch_size=[1, 2]", [1, 2]),
        ("knobs.batch_size = 8", 8),
        ("measure.half_width=0.02", 0.02),
        ("knobs.static_graph=true", True),
        ("knobs.precision=bf16", "bf16"),
        ('knobs.precision="bf16"', "bf16"),
        ("data=/a/b", "/a/b"),
        ("environment.X=a=b", "a=b"),
        ("data=10m", "10m"),
    ],
)
def test_an_assignment_is_toml_or_a_bare_word(text, value):
    assert parse_assignment(text) == (text.partition("=")[0].strip(), value)


@pytest.mark.parametrize(
    "text", ["", "seed", "=3", "seed=", "a..b=3", ".a=3", "knobs.batch_size=[1", "a b=3"]
)
def test_an_assignment_that_is_none(text):
    (line,) = problems(parse_assignment, text)
    assert line.startswith("--set")
    assert "received" in line


@pytest.mark.parametrize(("text", "share"), [("3%", 0.03), (" 0% ", 0.0), ("2.5%", 0.025), ("99%", 0.99)])
def test_percent_is_a_share(text, share):
    assert parse_percent(text, "--fail-if-slower") == pytest.approx(share)


@pytest.mark.parametrize("text", ["", "%", "3", "0.03", "-1%", "100%", "nan%", "3%%", "a%"])
def test_percent_that_is_none(text):
    (line,) = problems(parse_percent, text, "--fail-if-slower")
    assert line == (f'--fail-if-slower: percent of at least 0% and below 100% (received "{text}")')


def test_lists_of_options():
    assert counts("1,2,4", "--nodes") == (1, 2, 4)
    assert counts("4", "--nodes") == (4,)
    assert states("crashed,timeout", "--retry") == ("crashed", "timeout")
    assert (count("8", "-"), amount("2", "-"), amount("2.5", "-")) == (8, 2.0, 2.5)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("8, max", (8, "max")),
        ("8", 8),
        ("all", "all"),
        ("1,2.5,default", (1, 2.5, "default")),
        ("8,", (8, "")),
    ],
)
def test_values_of_a_field_are_toml_or_bare_words(text, value):
    """What is wrong with them the field says: spec/test_load.py."""
    assert parse_values(text, "--batch-sizes") == value


@pytest.mark.parametrize(
    ("parse", "text", "line"),
    [
        (counts, "0", '--x: whole numbers above 0 with commas between them (received "0")'),
        (counts, "1,", '--x: whole numbers above 0 with commas between them (received "1,")'),
        (counts, "1,all", '--x: whole numbers above 0 with commas between them (received "1,all")'),
        (count, "1.5", '--x: a whole number above 0 (received "1.5")'),
        (count, "four", '--x: a whole number above 0 (received "four")'),
        (amount, "nan", '--x: a number above 0 (received "nan")'),
        (amount, "-1", '--x: a number above 0 (received "-1")'),
        (states, "crash", '--x: oom, timeout, crashed, invalid (received "crash")'),
    ],
)  # fmt: skip
def test_lists_that_are_wrong(parse, text, line):
    assert problems(parse, text, "--x") == [line]


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("10m", 600),
        ("3min", 180),
        ("90s", 90),
        ("1h30m", 5400),
        ("120", 120),
        ("1.5h", 5400),
        ("2m30", 150),
        (" 1H ", 3600),
    ],
)
def test_durations(text, seconds):
    assert parse_duration(text) == seconds


@pytest.mark.parametrize(
    "text", ["", "soon", "-5", "0", "0s", "10x", "m", "inf", "1e3", "١٠", "30s10m", "1h1h"]
)
def test_durations_that_are_none(text):
    (line,) = problems(parse_duration, text)
    assert line == (
        f'--time-budget: a time above 0 such as 90s, 10m or 1h30m, or seconds (received "{text}")'
    )

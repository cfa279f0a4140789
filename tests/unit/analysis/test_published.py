"""Published figures and their contradictions: the files against the write-ups, and the loader."""

from __future__ import annotations

import csv
import re
from pathlib import Path

import pytest

from raybench.analysis.published import (
    Contradiction,
    half_digit,
    load_contradictions,
    load_figures,
    published_path,
    sources,
)
from raybench.spec.load import studies_folder

STUDIES = (
    "mlp_scaling",
    "distilbert_ag_news",
    "resnet50_cifar10",
    "strategies_resnet_cifar10",
    "transformer_imdb",
    "transformer_ag_news",
    "transformer_ag_news_tuned",
)
STEADY = ("mlp_scaling", "strategies_resnet_cifar10", "transformer_imdb")


@pytest.mark.parametrize("name", STUDIES)
def test_each_figure_stands_in_its_write_up(name: str, data_dir: Path) -> None:
    folder = data_dir.parent / "published"
    if not folder.is_dir():
        pytest.skip("the write-ups are not here")
    figures = load_figures(name)
    assert figures
    (path,) = folder.glob(f"{figures[0].source[:3]}_*.txt")
    text = path.read_text(encoding="utf-8")
    for figure in figures:
        whole, point, decimals = figure.printed.partition(".")
        commas = f"{int(whole):,}" if whole.isdigit() else whole
        minutes, seconds = divmod(int(figure.value), 60) if figure.unit == "s" else (0, 0)
        ways = {figure.printed, f"{commas}{point}{decimals}", f"{minutes}m {seconds:02d}s"}
        patterns = (re.escape(way) + ("0*" if "." in way else "") for way in ways)
        assert any(re.search(rf"(?<![\d.]){pattern}(?!\d)", text) for pattern in patterns), figure


def test_projected_figures_are_flagged() -> None:
    for figure in load_figures("resnet50_cifar10"):
        if figure.world_size is not None and figure.origin != "chosen":
            assert (figure.origin == "projected") == (figure.world_size > 1), figure
    assert {figure.origin for figure in load_figures("transformer_ag_news_tuned")} == {"projected"}
    assert "projected" not in {figure.origin for figure in load_figures("transformer_ag_news")}


def test_what_was_calculated_is_not_called_measured() -> None:
    """002: a price times hours, ten epochs of 218.5 s, one device times the minutes."""
    words = {
        (figure.quantity, figure.words)
        for figure in load_figures("resnet50_cifar10")
        if figure.origin == "computed"
    }
    assert words == {
        ("cost", "1.03 USD"),
        ("total_time", "36.4 min"),
        ("device_minutes", "41.16 device-min"),
    }


def test_an_overhead_is_not_called_communication() -> None:
    """002's 3.7% holds its process coordination beside its transfers."""
    found = [figure for figure in load_figures("resnet50_cifar10") if figure.words == "3.7%"]
    assert [(figure.quantity, figure.origin) for figure in found] == [("overhead_fraction", "projected")]


def test_a_write_up_says_when_it_was_made_or_it_is_called_undated() -> None:
    assert {figure.dated for figure in load_figures("resnet50_cifar10")} == {True}
    assert {figure.dated for figure in load_figures("distilbert_ag_news")} == {False}
    known = sources()
    assert known["002 Baseline vs Distributed Training Comparison"].date == "2026-02-14"
    assert known["000 DDP 2-GPU Benchmark Results"].date is None
    assert {figure.source for name in STUDIES for figure in load_figures(name)} == set(known)


def test_a_study_of_ones_own_has_none() -> None:
    assert load_figures("default") == ()
    assert load_contradictions("default") == ()


def test_half_of_the_last_digit_is_open() -> None:
    assert [half_digit(each) for each in ("41", "1.78", "2e-5")] == [0.5, pytest.approx(0.005), 0.5e-5]


def rows() -> list[dict[str, str]]:
    path = published_path("contradictions")
    assert path is not None
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def test_every_contradiction_is_of_a_study_with_published_figures() -> None:
    folder = studies_folder()
    assert folder is not None
    for row in rows():
        assert set(row) == {"study", "rule", "evidence"}
        assert all(row.values()), row
        assert (folder / f"{row['study']}.toml").is_file()
        assert load_figures(row["study"])


def test_the_loader_has_each_row_of_its_study_in_order_and_no_other() -> None:
    loaded = {name: load_contradictions(name) for name in STUDIES}
    for name, found in loaded.items():
        expected = [Contradiction(row["rule"], row["evidence"]) for row in rows() if row["study"] == name]
        assert list(found) == expected
    assert sum(map(len, loaded.values())) == len(rows())
    assert len(set(map(str, rows()))) == len(rows())


@pytest.mark.parametrize("name", STEADY)
def test_steady_write_ups_have_no_contradiction(name: str) -> None:
    assert load_contradictions(name) == ()


def test_each_number_of_a_contradiction_is_published_or_follows_from_what_is() -> None:
    """What is stated stands in the figures; what is made of them follows "makes"."""
    for row in rows():
        printed = {figure.words for figure in load_figures(row["study"])}
        stated = row["evidence"].split(": ", 1)[-1]
        named = re.split(r" beside | stated, |, a parallel fraction| \+ | makes ", stated)[0]
        assert named in printed, row


@pytest.mark.parametrize(
    ("study", "numbers"),
    [
        ("distilbert_ag_news", ("loss", "0.17 stated", "epoch 3 makes 0.14")),
        ("transformer_ag_news", ("42.3 s stated", "3,750 steps", "11.3 ms a step", "60 ms to 80 ms")),
    ],
)
def test_these_contradictions_are_known(study: str, numbers: tuple[str, ...]) -> None:
    evidence = [each.evidence for each in load_contradictions(study)]
    assert sum(all(number in each for number in numbers) for each in evidence) == 1

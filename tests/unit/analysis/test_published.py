"""Published figures: the files against the write-ups, and the loader."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from raybench.analysis.published import load_figures
from raybench.report.sections.published import source_words

STUDIES = (
    "mlp_scaling",
    "distilbert_ag_news",
    "resnet50_cifar10",
    "strategies_resnet_cifar10",
    "transformer_imdb",
    "transformer_ag_news",
    "transformer_ag_news_tuned",
)


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
    figures = {
        (figure.quantity, figure.printed, figure.unit)
        for figure in load_figures("resnet50_cifar10")
        if figure.origin == "computed"
    }
    assert figures == {
        ("cost", "1.03", "USD"),
        ("total_time", "36.4", "min"),
        ("device_minutes", "41.16", "device-min"),
    }


def test_an_overhead_is_not_called_communication() -> None:
    """002's 3.7% holds its process coordination beside its transfers."""
    found = [figure for figure in load_figures("resnet50_cifar10") if figure.printed == "3.7"]
    assert [(figure.quantity, figure.origin) for figure in found] == [("overhead_fraction", "projected")]


def test_every_write_up_is_named_with_its_author_place_and_date() -> None:
    known = source_words()
    assert {figure.source for name in STUDIES for figure in load_figures(name)} == set(known)
    assert "an assignment, 2026-02-14" in known["002 Baseline vs Distributed Training Comparison"]
    assert "undated" in known["000 DDP 2-GPU Benchmark Results"]
    assert (
        "(author not named, place not named, undated)"
        in known["004 Multi-GPU DDP Performance Optimization Guide"]
    )


def test_a_study_of_ones_own_has_none() -> None:
    assert load_figures("default") == ()

"""In what the studies that ship are not their write-ups'."""

from __future__ import annotations

import csv
import re
from typing import Any

import pytest

from raybench.analysis.published import load_figures, published_path, rows_of
from raybench.analysis.published_settings import departures
from raybench.spec import Study
from raybench.spec.load import find_study, load_study
from raybench.spec.toml import flat


def shipped(name: str, **overrides: Any) -> Study:
    return load_study(find_study(name), device="cuda", overrides=tuple(overrides.items()))


def other(name: str, **overrides: Any) -> dict[str, tuple[str, str]]:
    """Fields in which the write-up says something else."""
    found = departures(shipped(name, **overrides))
    return {each.field: (each.here, each.published) for each in found if each.published is not None}


def unsaid(name: str) -> dict[str, str]:
    """Fields of which the write-up says nothing."""
    return {each.field: each.here for each in departures(shipped(name)) if each.published is None}


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("distilbert_ag_news", {"workload.checkpoint": ("none", '"distilbert-base-uncased"')}),
        ("mlp_scaling", {"measure.steps": ("none", "20"), "measure.warmup_steps": ("none", "5")}),
        (
            "resnet50_cifar10",
            {
                "optimizer.momentum": ("0.9", "0.0"),
                "training.warmup_epochs": ("1.0", "0.0"),
                "training.learning_rate_scaling": (
                    '"linear"',
                    '"with the devices, at the same global batch"',
                ),
            },
        ),
        ("strategies_resnet_cifar10", {}),
        ("transformer_imdb", {}),
        ("transformer_ag_news", {}),
        ("transformer_ag_news_tuned", {"knobs.bucket_cap_mb": ('"default"', "25")}),
    ],
)
def test_where_a_study_that_ships_is_another(name: str, expected: dict[str, tuple[str, str]]) -> None:
    assert other(name) == expected


def test_what_a_write_up_does_not_say_is_this_studys_choice() -> None:
    """004 names no learning rate, optimizer or length of training; 003 none of its settings but the model."""
    for name in ("transformer_ag_news", "transformer_imdb"):
        chosen = unsaid(name)
        assert chosen["optimizer.learning_rate"] == "0.0005"
        assert chosen["optimizer.name"] == '"adamw"'
        assert chosen["training.epochs"] == "20"
    assert unsaid("transformer_imdb")["scaling.mode"] == '"strong"'
    chosen = unsaid("strategies_resnet_cifar10")
    assert (chosen["optimizer.momentum"], chosen["training.epochs"]) == ("0.9", "3")
    assert chosen["knobs.batch_size"] == "256"


def test_a_departure_by_an_option_is_seen() -> None:
    changed = other("distilbert_ag_news", **{"optimizer.learning_rate": 1e-3, "training.epochs": 1})
    assert changed["optimizer.learning_rate"] == ("0.001", "2e-05")
    assert changed["training.epochs"] == ("1", "3")
    filled = other("distilbert_ag_news", **{"workload.checkpoint": "distilbert-base-uncased"})
    assert filled == {}


def test_a_study_of_ones_own_departs_from_nothing() -> None:
    assert departures(Study.model_validate({"name": "mine", "workload": {"name": "mlp"}})) == ()


def test_every_row_is_of_a_field_of_its_study() -> None:
    path = published_path("settings")
    assert path is not None
    with path.open(encoding="utf-8", newline="") as file:
        assert next(csv.reader(file)) == ["study", "field", "value"]
    rows = rows_of("settings")
    for row in rows:
        assert load_figures(row["study"])
        assert row["field"] in dict(flat(shipped(row["study"]).model_dump())), row
        assert re.fullmatch(r"(|\[.*\]|\".*\"|true|false|[\d.e-]+)", row["value"]), row
    assert len({(row["study"], row["field"]) for row in rows}) == len(rows)

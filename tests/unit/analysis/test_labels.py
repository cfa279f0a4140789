"""What a trial is called."""

from __future__ import annotations

from typing import Any

import pytest

from raybench.analysis.labels import (
    combination_words,
    devices_words,
    difference_words,
    knob_words,
    label,
    place_words,
    placement_words,
    setting_words,
    shown_knobs,
)
from raybench.records.requests import Place
from raybench.spec.knobs import KnobValue, Setting
from tests.unit.studies import config, study

SPEC: dict[str, Any] = {"knobs": {"batch_size": [32, 64], "bucket_cap_mb": ["default", 1]}}
OTHER = Setting(batch_size=64, bucket_cap_mb=1)


def test_a_label_has_what_the_study_explores() -> None:
    spec = study(**SPEC)
    assert label(spec, config(setting=OTHER)) == "batch 64, 1 MiB buckets"
    assert label(spec, config(setting=OTHER.at(1), world_size=1)) == "batch 64"
    assert label(spec, config(setting=OTHER), ["batch_size"]) == "1 MiB buckets"
    assert label(spec, config(setting=OTHER.at(1), world_size=1), ["batch_size"]) == "default"


def test_where_nothing_is_explored_batch_and_precision_are_named() -> None:
    assert (
        label(study(knobs={"batch_size": [32]}), config(setting=Setting(batch_size=32))) == "batch 32, fp32"
    )


def test_variables_and_placements_are_named_where_there_are_several() -> None:
    spec = study(
        **SPEC,
        environment={"OMP_PROC_BIND": ["false", "true"], "OMP_PLACES": ["cores"]},
        scaling={"placement": ["pack", [0, 3]]},
    )
    variables = {"OMP_PROC_BIND": "true", "OMP_PLACES": "cores"}
    asked = config(setting=OTHER, environment=variables, placement=(0, 3))
    assert label(spec, asked) == "batch 64, 1 MiB buckets, OMP_PROC_BIND=true, ranks 0 3"
    alone = config(setting=OTHER.at(1), environment=variables, world_size=1)
    assert label(spec, alone) == "batch 64, OMP_PROC_BIND=true"
    assert label(spec, asked, ["batch_size"]) == "1 MiB buckets, OMP_PROC_BIND=true, ranks 0 3"
    assert label(spec, asked, ["batch_size", "placement"]) == "1 MiB buckets, OMP_PROC_BIND=true"


def test_a_combination_has_the_explored_knobs_that_change_memory() -> None:
    combination = Setting(strategy="fsdp", precision="bf16", gradient_accumulation=2, bucket_cap_mb=1)
    explored = {"strategy": ["ddp", "fsdp"], "gradient_accumulation": [1, 2], "bucket_cap_mb": [1, 25]}
    spec = study(knobs={"batch_size": "max", "precision": "bf16", **explored})
    assert combination_words(spec, combination) == "fsdp, bf16, accumulation 2"
    assert combination_words(study(knobs={"batch_size": "max"}), combination) == "fsdp, bf16"


def test_the_difference_to_the_default() -> None:
    spec = study(**SPEC, environment={"OMP_PROC_BIND": ["false", "true"]})
    same, other = {"OMP_PROC_BIND": "false"}, {"OMP_PROC_BIND": "true"}
    default = Setting(batch_size=32)
    assert difference_words(spec, config(setting=default, environment=same)) == "the default"
    assert difference_words(spec, config(setting=default, environment=other)) == "OMP_PROC_BIND=true"
    assert difference_words(spec, config(setting=OTHER, environment=same)) == "batch 64, 1 MiB buckets"
    alone = config(setting=default.at(1), environment=same, world_size=1)
    assert difference_words(spec, alone) == "the default"


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("batch_size", 1024, "batch 1,024"),
        ("bucket_cap_mb", "default", "default buckets"),
        ("bucket_cap_mb", 2.5, "2.5 MiB buckets"),
        ("precision", "bf16", "bf16"),
        ("strategy", "fsdp", "fsdp"),
        ("gradient_accumulation", 4, "accumulation 4"),
        ("gradient_compression", "none", "no compression"),
        ("gradient_compression", "fp16", "fp16 compression"),
        ("static_graph", True, "static_graph"),
        ("static_graph", False, "no static_graph"),
        ("num_threads", 2, "num_threads 2"),
    ],
)
def test_knobs_in_words(name: str, value: KnobValue, words: str) -> None:
    assert knob_words(name, value) == words


def test_settings_placements_and_devices_in_words() -> None:
    assert setting_words(OTHER, []) == "default"
    assert setting_words(OTHER, ["batch_size"], {"A": None}) == "batch 64, A=None"
    assert shown_knobs(OTHER, ["strategy", "bucket_cap_mb", "batch_size"], 1) == ["strategy", "batch_size"]
    assert (placement_words("spread"), placement_words((0, 3))) == ("spread", "ranks 0 3")
    assert (devices_words(1), devices_words(2)) == ("1 device", "2 devices")
    assert place_words(Place(world_size=2, placement="spread", device="cuda")) == "2 GPUs, spread"


def test_several_knobs_and_a_variable_in_words() -> None:
    setting = Setting(
        precision="bf16", bucket_cap_mb=25, gradient_accumulation=4, gradient_compression="fp16"
    )
    knobs = ("precision", "bucket_cap_mb", "gradient_accumulation", "gradient_compression", "static_graph")
    words = "bf16, 25 MiB buckets, accumulation 4, fp16 compression, no static_graph, NCCL_ALGO=Ring"
    assert setting_words(setting, knobs, {"NCCL_ALGO": "Ring"}) == words

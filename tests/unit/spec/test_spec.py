"""The models of a study: what they take, what they refuse, what they say of themselves."""

import itertools
import math

import pytest
from packaging.version import Version
from pydantic import BaseModel, ValidationError

from raybench.spec.knobs import Knobs, Setting, bucket_sizes_mb
from raybench.spec.load import resolve
from raybench.spec.study import MeasureSpec, Study
from raybench.spec.user_input import to_toml
from raybench.spec.validation import fields
from raybench.spec.workloads import WORKLOADS, FactorySpec

MLP = {"name": "x", "workload": {"name": "mlp"}}


def _models(model: type[BaseModel]) -> list[type[BaseModel]]:
    inner = [field.annotation for field in model.model_fields.values()]
    found = [each for each in inner if isinstance(each, type) and issubclass(each, BaseModel)]
    return [model, *itertools.chain.from_iterable(_models(each) for each in found)]


@pytest.mark.parametrize(
    "model", [*_models(Study), *WORKLOADS.values(), Setting], ids=lambda each: each.__name__
)
def test_every_field_has_a_meaning(model):
    without = [name for name, field in model.model_fields.items() if not field.description]
    assert without == []


def test_a_study_is_frozen():
    study = Study(**MLP)
    with pytest.raises(ValidationError):
        study.seed = 1  # type: ignore[misc]


def test_knobs_take_a_value_or_a_list_and_the_first_is_the_default():
    knobs = Knobs(batch_size=[8, 16], precision="bf16", bucket_cap_mb=[1, "default"])
    assert knobs.batch_size == (8, 16)
    assert knobs.explored() == {"batch_size": (8, 16), "bucket_cap_mb": (1, "default")}
    assert knobs.default() == Setting(batch_size=8, precision="bf16", bucket_cap_mb=1)
    assert [(each.batch_size, each.bucket_cap_mb) for each in knobs.grid()] == [
        (8, 1),
        (8, "default"),
        (16, 1),
        (16, "default"),
    ]


def test_what_cannot_matter_on_one_device_is_reset_there():
    setting = Setting(batch_size=8, bucket_cap_mb=1, static_graph=True, gradient_compression="bf16")
    assert setting.at(1) == Setting(strategy="single", batch_size=8)


@pytest.mark.parametrize(
    "value", [True, 0, -1, math.nan, math.inf, "auto", None, [1, 5], "5", "1/", "1/0", "1/inf", "1/x"]
)
def test_a_bucket_is_a_size_or_several_or_the_word_default(value):
    with pytest.raises(ValidationError):
        Setting(bucket_cap_mb=value)


def test_several_bucket_sizes_are_one_value_in_one_spelling():
    listed = Knobs(bucket_cap_mb=["default", " 1.0 / 2.50/25"])
    assert listed.bucket_cap_mb == ("default", "1/2.5/25")
    assert bucket_sizes_mb("1/2.5/25") == (1.0, 2.5, 25.0)
    assert Setting(bucket_cap_mb="1/5").at(1) == Setting(strategy="single")
    assert Setting(bucket_cap_mb="1/5", strategy="fsdp").at(2) == Setting(strategy="fsdp")


NEWER = [
    {"bucket_cap_mb": "1/5"},
    {"batched_grad_copy": True},
    {"skip_all_reduce_unused_params": True, "find_unused_parameters": True},
]


@pytest.mark.parametrize("knobs", NEWER)
def test_what_ddp_has_since_torch_2_14_is_refused_before(knobs, monkeypatch):
    monkeypatch.setattr("raybench.spec.knobs.torch_version", lambda: Version("2.14"))
    assert Setting(**knobs).fault("cpu") is None
    monkeypatch.setattr("raybench.spec.knobs.torch_version", lambda: Version("2.13.1"))
    name, value = next(iter(knobs.items()))
    told = f"{name} {value}" if isinstance(value, str) else name
    assert Setting(**knobs).fault("cpu") == f"{told} needs torch 2.14 (received torch 2.13.1)"
    assert Setting(**knobs).at(1).fault("cpu") is None
    assert Knobs(**knobs).faults("cpu") == [Setting(**knobs).fault("cpu")]
    assert Knobs(**{name: [value, Setting.model_fields[name].default]}).faults("cpu") == []


@pytest.mark.parametrize(
    ("model", "field", "value"),
    [
        (MeasureSpec, "max_seconds", "20"),
        (MeasureSpec, "max_seconds", True),
        (MeasureSpec, "min_rounds", "10"),
        (MeasureSpec, "min_rounds", 2),
        (MeasureSpec, "half_width", 1),
        (Setting, "static_graph", "yes"),
        (Setting, "static_graph", 1),
        (Setting, "batch_size", 1.0),
        (Setting, "batch_size", True),
    ],
)
def test_types_are_taken_at_their_word(model, field, value):
    with pytest.raises(ValidationError):
        model(**{field: value})


def test_impossible_settings_say_why():
    assert "GPUs only" in str(Setting(precision="tf32").fault("cpu"))
    assert Setting(precision="tf32").fault("cuda") is None
    assert "excludes" in str(Setting(static_graph=True, find_unused_parameters=True).fault("cuda"))


@pytest.mark.parametrize(
    ("fields", "device", "words"),
    [
        ({"strategy": "dp"}, "cpu", "GPUs only"),
        ({"strategy": "fsdp", "gradient_compression": "bf16"}, "cuda", "excludes gradient_compression bf16"),
        ({"strategy": "fsdp", "find_unused_parameters": True}, "cpu", "excludes find_unused_parameters"),
        ({"strategy": "dp", "static_graph": True}, "cuda", "excludes static_graph"),
        ({"strategy": "dp", "compile": True}, "cuda", "compile excludes strategy dp"),
        ({"skip_all_reduce_unused_params": True}, "cpu", "needs find_unused_parameters"),
        ({"compile": True, "bucket_cap_mb": 0.5}, "cuda", "received 0.5"),
        ({"compile": True, "bucket_cap_mb": "1/0.5"}, "cuda", "received 1/0.5"),
    ],
)
def test_strategies_say_what_they_exclude(fields, device, words):
    assert words in (Setting(**fields).fault(device) or "")


@pytest.mark.parametrize("strategy", ["single", "dp", "ddp", "fsdp"])
def test_every_strategy_is_possible_by_itself(strategy):
    assert Setting(strategy=strategy).fault("cuda") is None
    assert Setting(strategy=strategy, static_graph=True).at(1).fault("cpu") is None


def test_what_cannot_matter_to_a_strategy_is_reset():
    given = {"bucket_cap_mb": 1, "broadcast_buffers": False, "fsdp_reshard": False}
    assert Setting(strategy="fsdp", **given).at(2) == Setting(strategy="fsdp", fsdp_reshard=False)
    assert Setting(strategy="dp", **given).at(2) == Setting(strategy="dp")
    assert Setting(**given).at(2) == Setting(bucket_cap_mb=1, broadcast_buffers=False)
    assert Setting(strategy="fsdp", **given).at(1) == Setting(strategy="single")


def test_the_default_strategy_is_the_first_that_runs_on_several_devices():
    knobs = Knobs(strategy=["single", "dp", "fsdp", "ddp"], batch_size=[8, 16])
    assert knobs.default("cuda") == Setting(strategy="dp", batch_size=8)
    assert knobs.default("cpu") == Setting(strategy="fsdp", batch_size=8)
    assert Knobs(strategy=["single"]).default() == Setting(strategy="single")


def test_a_factory_keeps_its_own_arguments():
    study = resolve({"name": "x", "workload": {"factory": "my.model:build", "depth": 3, "sizes": [1, 2]}})
    assert isinstance(study.workload, FactorySpec)
    assert study.workload.arguments == {"depth": 3, "sizes": [1, 2]}
    assert study.workload.name == "my.model:build"


def test_fields_name_every_field_with_type_default_and_meaning():
    rows = list(fields())
    named = {(row.name, row.workload) for row in rows}
    assert len(named) == len(rows)
    assert {("workload.hidden_dim", "mlp"), ("workload.factory", "factory"), ("seed", None)} <= named
    assert {f"knobs.{name}" for name in Setting.model_fields} <= {row.name for row in rows}
    assert all(row.meaning and row.type for row in rows)
    by_name = {row.name: row for row in rows}
    assert by_name["knobs.batch_size"].takes == 'a whole number above 0 or "max", or a list of these'
    assert by_name["knobs.batch_size"].default == "32"
    assert by_name["search.minimum_gain"].type == "a number above 0 and below 1"
    assert by_name["name"].required
    assert by_name["measure.steps"].default is None


def test_its_toml_has_every_default():
    text = to_toml(Study(**MLP))
    assert "hidden_dim = 1024" in text
    assert "max_seconds = 20.0" in text
    assert '[resources]\ndevice = "auto"\n' in text

"""The code of a report: it compiles, every knob is in it, and its arguments exist in each framework."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import re
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any, get_args

import pytest
from pydantic.fields import FieldInfo
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader

from raybench.analysis.recommendation import Recommendation
from raybench.analysis.results import StudyResults
from raybench.machine.host import KEPT_BY_MALLOC
from raybench.report.code import (
    ARGUMENTS,
    FRAMEWORKS,
    arguments_table,
    plain_loop,
    set_knobs,
    start_words,
    use_it,
    variables_of,
)
from raybench.report.document import write_report
from raybench.report.table import NONE
from raybench.spec.knobs import Setting
from raybench.spec.study import OptimizerSpec
from raybench.spec.workloads import CLIPPING, VisionSpec
from tests.support.analysis import analyse
from tests.support.planted import StepCosts
from tests.unit.studies import config, exactly, exactly_strong, grid, planted, searched, study

SPEC = study(knobs={"batch_size": 64})
BASE = Setting(precision="default", batch_size=64)


def other(field: FieldInfo) -> Any:
    """A value that is not the default: the last of several, a switch the other way, or a larger number."""
    if several := get_args(field.annotation):
        return several[-1]
    return not field.default if field.annotation is bool else field.default + 3


# another value of each knob than the framework's own default
OTHER = {name: other(field) for name, field in Setting.model_fields.items()}
OTHER |= {"bucket_cap_mb": 50.0, "precision": "bf16"}


@cache
def results() -> StudyResults:
    return analyse(SPEC, grid(SPEC, (1, 2))[0])


def recommended(setting: Setting, device: str, world_size: int = 2, nodes: int = 1) -> Recommendation:
    assert results().recommendation is not None
    real = VisionSpec(name="vision", input="real")
    changed = {"setting": setting, "device": device, "workload": real, "world_size": world_size}
    config = results().recommendation.config.model_copy(update=changed)
    return dataclasses.replace(
        results().recommendation,
        config=config,
        nodes=nodes,
        threads=(setting.num_threads or 1) if device == "cpu" else None,
    )


def text(setting: Setting, device: str = "cuda", **more: int) -> str:
    return plain_loop(recommended(setting, device, **more))


def arguments(setting: Setting, device: str = "cuda", **more: int) -> dict[str, tuple[str, ...]]:
    """The table's rows by the knob's name."""
    table = arguments_table(recommended(setting, device, **more))
    return {row[0].split(" = ")[0]: row[1:] for row in table.rows}


def settings() -> Iterator[Setting]:
    """The base, each knob changed alone, and several at once."""
    yield BASE
    for knob, value in OTHER.items():
        yield BASE.model_copy(update={knob: value})
    for strategy in ("ddp", "fsdp", "dp"):
        several = {"precision": "fp16", "gradient_accumulation": 2, "channels_last": True, "workers": 2}
        yield BASE.model_copy(update={"strategy": strategy, **several})
    yield BASE.model_copy(update={"static_graph": True, "gradient_accumulation": 4, "bucket_cap_mb": 25.0})


@pytest.mark.parametrize("knob", list(Setting.model_fields))
def test_every_knob_is_in_the_loop_and_has_a_row(knob: str) -> None:
    # the loader's knobs differ only where it has processes, the reshard of FSDP only there
    base = {"persistent_workers": {"workers": 2}, "fsdp_reshard": {"strategy": "fsdp"}}.get(knob, {})
    device = "cpu" if knob == "num_threads" else "cuda"
    before = BASE.model_copy(update=base)
    after = before.model_copy(update={knob: OTHER[knob]})
    assert set(text(before, device).splitlines()) != set(text(after, device).splitlines())
    if knob not in ("num_threads", "channels_last"):  # of torch alone
        assert arguments(before, device).get(knob) != arguments(after, device).get(knob)


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_it_is_python_that_fits_on_a_page(device: str) -> None:
    for setting in settings():
        for size in (1, 2):
            code = text(setting, device, world_size=size)
            ast.parse(code)
            assert [line for line in code.splitlines() if len(line) > 105] == []
            imports = [line.split("import ")[1] for line in code.splitlines() if "import " in line]
            for name in ", ".join(imports).split(", "):
                assert code.count(name.split(" as ")[-1]) > 1, name


def known_calls() -> dict[str, set[str]]:
    """The arguments of what the code and the table call, as installed."""
    from accelerate import Accelerator
    from accelerate.utils import DistributedDataParallelKwargs, FullyShardedDataParallelPlugin
    from lightning import Trainer
    from lightning.pytorch.strategies import DDPStrategy, ModelParallelStrategy
    from ray.train import ScalingConfig
    from ray.train.torch import prepare_model
    from torch.distributed.fsdp import FSDPModule, fully_shard
    from transformers import TrainingArguments

    made = (
        *(DistributedDataParallel, DataLoader, Trainer, DDPStrategy, ModelParallelStrategy, Accelerator),
        *(DistributedDataParallelKwargs, FullyShardedDataParallelPlugin, TrainingArguments, ScalingConfig),
        *(prepare_model, fully_shard),
    )
    assert FSDPModule.set_requires_gradient_sync
    known = {each.__name__: set(inspect.signature(each).parameters) for each in made}
    known["DDPStrategy"] |= known["DistributedDataParallel"]  # which it passes on
    return known


def calls(code: str) -> Iterator[tuple[str, set[str]]]:
    """Each call by its name, with its named arguments."""
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Call):
            yield ast.unparse(node.func), {keyword.arg for keyword in node.keywords if keyword.arg}


def test_arguments_exist_in_the_installed_versions() -> None:
    known, seen = known_calls(), set[str]()
    cells = [cell.replace("VALUE", "1") for row in ARGUMENTS.values() for cell in row]
    for code in [*cells, *(text(setting) for setting in settings())]:
        for name, given in calls(code):
            if name in known:
                assert given <= known[name], code
                seen.add(name)
    assert seen == set(known)
    assert all(len(row) == len(FRAMEWORKS) for row in ARGUMENTS.values())
    for row in ARGUMENTS.values():  # Ray Train's are passed on to DistributedDataParallel
        for passed in re.findall(r"parallel_strategy_kwargs=\{'(\w+)'", row[0]):
            assert passed in known["DistributedDataParallel"]


def test_a_knob_without_a_row_costs_a_cell(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(ARGUMENTS, "static_graph")
    found = arguments(BASE.model_copy(update={"static_graph": True, "broadcast_buffers": False}))
    assert found["static_graph"] == (NONE,) * len(FRAMEWORKS)
    assert NONE not in found["broadcast_buffers"]


def test_passes_before_the_last_are_called_what_the_strategy_calls_them() -> None:
    setting, knob = BASE.model_copy(update={"gradient_accumulation": 4}), "gradient_accumulation"
    assert arguments(setting)[knob][0] == "model.no_sync()"
    assert arguments(setting, world_size=1)[knob][:2] == (NONE, "Trainer(accumulate_grad_batches=4)")
    sharded = arguments(setting.model_copy(update={"strategy": "fsdp"}), world_size=4)
    assert sharded[knob][0] == "model.set_requires_gradient_sync(False)"
    assert sharded["strategy"][1] == "ModelParallelStrategy(data_parallel_size=4, tensor_parallel_size=1)"


def test_default_buckets_leave_the_argument_out() -> None:
    assert "bucket_cap_mb" not in text(BASE)
    assert "bucket_cap_mb" not in arguments(BASE)


def test_several_bucket_sizes_are_the_list_that_ddp_takes() -> None:
    setting = BASE.model_copy(update={"bucket_cap_mb": "1/2.5/25"})
    assert "        bucket_cap_mb_list=[1, 2.5, 25],\n" in text(setting)
    row = arguments(setting)["bucket_cap_mb_list"]
    assert row[1] == "DDPStrategy(bucket_cap_mb_list=[1, 2.5, 25])"
    assert row[2:] == (NONE, NONE)  # neither Accelerate nor transformers hands it on


def test_what_transformers_does_on_its_own_is_said() -> None:
    caption = arguments_table(recommended(BASE.model_copy(update={"pin_memory": False}), "cuda")).caption
    assert "ddp_find_unused_parameters=False, dataloader_pin_memory=False, max_grad_norm=0." in caption
    use = recommended(BASE, "cpu")  # whose own AdamW is fused
    adamw = use.config.model_copy(update={"optimizer": OptimizerSpec(name="adamw")})
    assert ", optim='adamw_torch'." in arguments_table(dataclasses.replace(use, config=adamw)).caption
    fused = adamw.model_copy(update={"setting": BASE.model_copy(update={"optimizer_kernels": "fused"})})
    assert "adamw_torch'" not in arguments_table(dataclasses.replace(use, config=fused)).caption
    found = arguments(BASE.model_copy(update={"find_unused_parameters": True, "pin_memory": True}))
    assert {"find_unused_parameters", "pin_memory"} <= found.keys()
    assert all(all(row) for row in found.values())


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"setting": Setting()}, {}),
        ({"setting": Setting(), "device": "cuda"}, {"precision": "fp32"}),  # torch's own has TF32
        ({"setting": Setting(precision="default"), "device": "cuda"}, {}),
        ({"setting": Setting(bucket_cap_mb=25)}, {"bucket_cap_mb": 25}),  # which is not the default
        ({"setting": Setting(bucket_cap_mb=25), "world_size": 1}, {}),
        ({"setting": Setting(strategy="fsdp", precision="bf16")}, {"precision": "bf16"}),
        ({"setting": Setting(workers=2)}, {}),  # without a loader
        (
            {"setting": Setting(workers=2), "workload": {"name": "vision", "input": "real"}},
            {"workers": 2, "persistent_workers": True},
        ),
    ],
)
def test_knobs_that_have_an_effect_and_are_not_the_default_are_set(
    fields: dict[str, Any], expected: dict[str, Any]
) -> None:
    assert set_knobs(config(**fields)) == expected


def test_processes_are_started_with_the_variables_of_the_study() -> None:
    use = recommended(BASE, "cpu", world_size=4, nodes=2)
    assert start_words(use).startswith("torchrun --nnodes=2 --nproc-per-node=2 ")
    assert start_words(recommended(BASE, "cpu", world_size=1)) == "python"
    config = use.config.model_copy(update={"environment": {"OMP_PROC_BIND": "a b"}})
    lines = variables_of(dataclasses.replace(use, config=config)).splitlines()
    assert lines[:2] == ["export OMP_PROC_BIND='a b'", "export OMP_NUM_THREADS=1"]
    assert [line.split("=")[0] for line in lines[2:-1]] == [f"export {name}" for name in KEPT_BY_MALLOC]


def test_memory_that_a_step_frees_is_kept_as_the_workers_kept_it() -> None:
    """On CPUs, unless the study sets malloc itself: then it was left alone."""
    own = {"environment": {"MALLOC_ARENA_MAX": "2"}}
    for device, changed, is_said in (("cpu", {}, True), ("cuda", {}, False), ("cpu", own, False)):
        use = recommended(BASE, device, world_size=2)
        config = use.config.model_copy(update=changed)
        said = variables_of(dataclasses.replace(use, config=config))
        assert ("export MALLOC_TOP_PAD_=67108864" in said) is is_said


def test_nodes_that_have_not_equally_many_devices_are_started_together() -> None:
    use = recommended(BASE, "cuda", world_size=3, nodes=2)
    assert start_words(use).startswith("torchrun --nnodes=2 --nproc-per-node=N --rdzv-backend=c10d")


def test_the_section_says_whose_code_it_is_and_what_else_changes() -> None:
    spec = study(knobs={"batch_size": [64, 256]}, search={"method": "optuna", "trials": 2})
    results = analyse(spec, searched(spec, (1, 2), Setting(batch_size=256)))
    section = use_it(results)
    assert section is not None
    assert section.sentences[0].startswith("This is the code of batch 256 (+")
    assert "A step takes 512 samples in place of 128" in section.sentences[1]
    assert section.variables.endswith("torchrun --nproc-per-node=2 train.py")
    assert use_it(analyse(SPEC, [])) is None


@pytest.mark.parametrize(("mode", "costs"), [("weak", exactly), ("strong", exactly_strong)])
def test_where_one_device_is_advised_the_code_is_of_one(mode: str, costs: Callable[..., StepCosts]) -> None:
    """That of several begins with ``init_process_group``, which raises without torchrun."""
    sent = {(64, "none"): costs(0.2), (64, "fp16"): costs(0.4)}
    results = planted(sent, "batch_size", "gradient_compression", scaling={"mode": mode})
    section = use_it(results)
    assert section is not None
    assert section.sentences == ("This is the code of the default for 1 device, as more are slower.",)
    assert "init_process_group" not in section.loop
    assert "set_num_threads(1)  # as measured; a process of its own may be faster with more\n" in section.loop
    assert "        batch_size=64,\n" in section.loop
    assert section.variables.endswith("\npython train.py")
    assert [row[:3] for row in section.arguments.rows][1:] == [
        ("world_size = 1", "ScalingConfig(num_workers=1)", "Trainer(devices=1)")
    ]


def test_both_documents_end_with_it(tmp_path: Path) -> None:
    write_report(tmp_path, results())
    markdown = (tmp_path / "report" / "report.md").read_text()
    page = (tmp_path / "report" / "report.html").read_text()
    last = markdown[markdown.rindex("\n## ") :]
    assert last.startswith("\n## Use it")
    assert last.count("```python") == 1
    assert "torchrun --nproc-per-node=2 train.py\n```" in last
    assert page.rindex("<h2>") == page.index("<h2>Use it")
    use_it = page[page.index("<h2>Use it") :]
    assert use_it.count("<details") == 2
    assert "num_workers=2" in use_it


def test_what_a_workload_does_after_the_backward_pass_is_named_where_the_loop_has_its_place() -> None:
    """As clipping, which was in the measured steps and in none of the code."""
    use = recommended(BASE, "cpu")
    assert "\n        # here: what your workload does after" in plain_loop(use, clips=True)
    scaled = plain_loop(recommended(BASE.model_copy(update={"precision": "fp16"}), "cuda"), clips=True)
    unscaled, here, stepped = map(scaled.index, ("scaler.unscale_(optimizer)", "# here: ", "scaler.step("))
    assert unscaled < here < stepped  # else gradients are clipped that are thousands of times too large
    assert "max_grad_norm" not in arguments_table(use, clips=True).caption
    records = grid(SPEC, (1, 2))[0]
    for left_out, said in (((CLIPPING, "logging"), False), (("logging",), True)):
        measured = [
            each.model_copy(update={"result": each.steps.model_copy(update={"left_out": left_out})})
            for each in records
            if each.steps is not None
        ]
        found = use_it(analyse(SPEC, measured))
        assert found is not None
        assert ("# here: what your workload does" in found.loop) is said
        assert ("max_grad_norm=0" in found.arguments.caption) is not said

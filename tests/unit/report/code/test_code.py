"""The code of a report: it compiles, its arguments exist, and every knob is in it or said not to be."""

from __future__ import annotations

import ast
import dataclasses
import inspect
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader

from raybench.analysis import analyse
from raybench.analysis.recommendation import Framework, Recommendation, told
from raybench.analysis.results import StudyResults
from raybench.machine.host import KEPT_BY_MALLOC
from raybench.report.code.section import SNIPPETS, hint, torch_version, use_it
from raybench.report.code.starting import start_words, variables_snippet
from raybench.report.code.torch_parts import Parts
from raybench.report.document import write_report
from raybench.spec import Setting
from raybench.spec.workloads import VisionSpec
from tests.unit.studies import grid, searched, study

VERSION = torch_version({"packages": {"torch": torch.__version__}})
SPEC = study(knobs={"batch_size": 64})
BASE = Setting(precision="default", batch_size=64)
# another value of each knob than the framework's own default
OTHER: dict[str, Any] = {
    "strategy": "fsdp",
    "batch_size": 321,
    "bucket_cap_mb": 50.0,
    "precision": "bf16",
    "gradient_accumulation": 4,
    "gradient_compression": "bf16",
    "gradient_as_bucket_view": True,
    "static_graph": True,
    "find_unused_parameters": True,
    "broadcast_buffers": False,
    "fsdp_reshard": False,
    "activation_checkpointing": True,
    "compile": True,
    "channels_last": True,
    "cudnn_benchmark": True,
    "num_threads": 3,
    "workers": 5,
    "persistent_workers": False,
    "pin_memory": False,
}


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
        told={framework: told(config, framework) for framework in Framework},
    )


def text(setting: Setting, framework: Framework, device: str = "cuda", **more: int) -> str:
    use = recommended(setting, device, **more)
    return SNIPPETS[framework](Parts(use, framework, VERSION)).text


def settings() -> Iterator[Setting]:
    """The base, each knob changed alone, and several at once."""
    yield BASE
    for knob, value in OTHER.items():
        yield BASE.model_copy(update={knob: value})
    for strategy in ("ddp", "fsdp", "dp"):
        several = {"precision": "fp16", "gradient_accumulation": 2, "channels_last": True, "workers": 2}
        yield BASE.model_copy(update={"strategy": strategy, **several})
    yield BASE.model_copy(update={"static_graph": True, "gradient_accumulation": 4, "bucket_cap_mb": 25.0})


@pytest.mark.parametrize("framework", list(Framework))
@pytest.mark.parametrize("knob", list(Setting.model_fields))
def test_every_knob_is_in_the_code_or_said_to_have_no_argument(framework: Framework, knob: str) -> None:
    # the loader's knobs differ only where it has processes, the reshard of FSDP only there
    base = {"persistent_workers": {"workers": 2}, "fsdp_reshard": {"strategy": "fsdp"}}.get(knob, {})
    device = "cpu" if knob == "num_threads" else "cuda"
    before = BASE.model_copy(update=base)
    after = before.model_copy(update={knob: OTHER[knob]})
    lines = [set(text(each, framework, device).splitlines()) for each in (before, after)]
    changed = lines[0] ^ lines[1]
    assert changed, f"{framework} does not know {knob}"


@pytest.mark.parametrize("framework", list(Framework))
@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_it_is_python_that_fits_on_a_page(framework: Framework, device: str) -> None:
    for setting in settings():
        for size in (1, 2):
            code = text(setting, framework, device, world_size=size)
            ast.parse(code)
            assert [line for line in code.splitlines() if len(line) > 105] == []


def calls(code: str, name: str) -> Iterator[set[str]]:
    """The named arguments of each call of ``name``."""
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Call) and ast.unparse(node.func) == name:
            yield {keyword.arg for keyword in node.keywords if keyword.arg}


def test_arguments_exist_in_the_installed_versions() -> None:
    from transformers import TrainingArguments

    known = {
        "TrainingArguments": {field.name for field in dataclasses.fields(TrainingArguments)},
        "DistributedDataParallel": set(inspect.signature(DistributedDataParallel).parameters),
        "DataLoader": set(inspect.signature(DataLoader).parameters),
    }
    seen = dict.fromkeys(known, 0)
    for framework in Framework:
        for setting in settings():
            for name, arguments in known.items():
                for given in calls(text(setting, framework), name):
                    assert given <= arguments
                    seen[name] += 1
    assert all(seen.values())


def test_the_older_name_of_buffers_where_torch_is_older() -> None:
    setting = BASE.model_copy(update={"broadcast_buffers": False})
    use = recommended(setting, "cuda")
    names: dict[tuple[int, ...], str] = {(2, 13): "broadcast_buffers", (2, 14): "forward_sync_buffers"}
    for version, name in (names | {(): "broadcast_buffers"}).items():
        code = SNIPPETS[Framework.TORCH](Parts(use, Framework.TORCH, version)).text
        assert f"{name}=False" in code


def test_default_buckets_leave_the_argument_out() -> None:
    assert all("bucket_cap_mb" not in text(BASE, framework) for framework in Framework)


@pytest.mark.parametrize("framework", [Framework.LIGHTNING, Framework.ACCELERATE, Framework.TRANSFORMERS])
def test_static_graph_is_left_out_where_a_framework_would_fail_with_it(framework: Framework) -> None:
    both = BASE.model_copy(update={"static_graph": True, "gradient_accumulation": 4})
    alone = BASE.model_copy(update={"static_graph": True})
    assert "static_graph=True" not in text(both, framework)
    assert "# static_graph: not with accumulation" in text(both, framework)
    assert "static_graph=True" in text(alone, framework)


def test_processes_are_started_with_the_variables_of_the_study() -> None:
    use = recommended(BASE, "cpu", world_size=4, nodes=2)
    assert start_words(use).startswith("torchrun --nnodes=2 --nproc-per-node=2 ")
    assert start_words(recommended(BASE, "cpu", world_size=1)) == "python"
    config = use.config.model_copy(update={"environment": {"OMP_PROC_BIND": "a b"}})
    lines = variables_snippet(dataclasses.replace(use, config=config)).text.splitlines()
    assert lines[:2] == ["export OMP_PROC_BIND='a b'", "export OMP_NUM_THREADS=1"]
    assert [line.split("=")[0] for line in lines[2:-1]] == [f"export {name}" for name in KEPT_BY_MALLOC]


def test_memory_that_a_step_frees_is_kept_as_the_workers_kept_it() -> None:
    """On CPUs, unless the study sets malloc itself: then it was left alone."""
    own = {"environment": {"MALLOC_ARENA_MAX": "2"}}
    for device, changed, is_said in (("cpu", {}, True), ("cuda", {}, False), ("cpu", own, False)):
        use = recommended(BASE, device, world_size=2)
        config = use.config.model_copy(update=changed)
        said = variables_snippet(dataclasses.replace(use, config=config)).text
        assert ("export MALLOC_TOP_PAD_=67108864" in said) is is_said


def test_nodes_that_have_not_equally_many_devices_are_started_together() -> None:
    use = recommended(BASE, "cuda", world_size=3, nodes=2)
    assert start_words(use).startswith("torchrun --nnodes=2 --nproc-per-node=N --rdzv-backend=c10d")
    told = "# N: the number of devices on this node, 3 on all 2 nodes together."
    assert told in variables_snippet(use).text
    for framework in (Framework.TORCH, Framework.ACCELERATE, Framework.TRANSFORMERS):
        assert told in text(BASE, framework, world_size=3, nodes=2)
        assert told not in text(BASE, framework, world_size=4, nodes=2)
    lightning = text(BASE, Framework.LIGHTNING, world_size=3, nodes=2)
    assert "# 3 devices on 2 nodes: Lightning wants equally many" in lightning


@pytest.mark.parametrize("framework", [Framework.LIGHTNING, Framework.ACCELERATE, Framework.TRANSFORMERS])
def test_fp16_on_cpus_is_refused_where_a_framework_has_none(framework: Framework) -> None:
    half = BASE.model_copy(update={"precision": "fp16"})
    code = text(half, framework, "cpu")
    assert code.startswith(f"# {framework} has no fp16 on CPUs")
    assert "import" not in code
    assert "import" in text(half, framework, "cuda")
    assert "torch.float16" in text(half, Framework.TORCH, "cpu")


def test_the_call_in_a_comment_is_that_of_the_function() -> None:
    for strategy, argument in (("ddp", ""), ("fsdp", "block_class")):
        code = text(BASE.model_copy(update={"strategy": strategy}), Framework.TRANSFORMERS)
        assert f"args=make_arguments({argument})," in code
        assert f"def make_arguments({argument}):" in code


def test_the_section_says_why_and_what_else_changes() -> None:
    spec = study(knobs={"batch_size": [64, 256]}, search={"method": "optuna", "trials": 2})
    results = analyse(spec, searched(spec, (1, 2), Setting(batch_size=256)))
    section = use_it(results, {"packages": {"torch": "2.14.1"}})
    assert section is not None
    assert "measured again against the default (+" in section.sentences[0]
    assert "A step takes 512 samples in place of 128" in section.sentences[1]
    assert [each.title for each in section.snippets][-1] == "Environment variables"
    assert hint(results).startswith("Use it: batch 256 as code")
    assert results.recommendation is not None
    long = replace(results, recommendation=replace(results.recommendation, label="a knob or another, " * 9))
    assert all(len(hint(each)) <= 80 for each in (results, long))
    assert use_it(analyse(SPEC, []), {}) is None
    assert hint(analyse(SPEC, [])) == ""


def test_both_documents_end_with_it(tmp_path: Path) -> None:
    write_report(tmp_path, results(), {"packages": {"torch": "2.14.1"}})
    markdown = (tmp_path / "report" / "report.md").read_text()
    page = (tmp_path / "report" / "report.html").read_text()
    last = markdown[markdown.rindex("\n## ") :]
    assert last.startswith("\n## Use it")
    assert last.count("```python") == len(Framework)
    assert last.rstrip().endswith("torchrun --nproc-per-node=2 train.py\n```")
    assert page.rindex("<h2>") == page.index("<h2>Use it")
    use_it = page[page.index("<h2>Use it") :]
    assert use_it.count("<details") == len(Framework) + 1

"""The code at the end of a report is executed: its loop, and four frameworks with its table's arguments."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import fp16_compress_hook
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.optim.optimizer import register_optimizer_step_post_hook
from torch.utils.data import DataLoader, DistributedSampler

from raybench.report.code import UseIt, use_it
from raybench.report.table import NONE
from tests.ranks.pasted import pasted
from tests.ranks.ranks import Ranks
from tests.support.analysis import analyse
from tests.support.planted import QUIET, FakeRunner, run_all
from tests.unit.studies import asked, exactly, study

BATCH, PASSES, BUCKET_MIB = 4, 2, 5
SETTINGS: dict[str, dict[str, Any]] = {
    "ddp": {
        "bucket_cap_mb": BUCKET_MIB,
        "gradient_compression": "fp16",
        "gradient_as_bucket_view": True,
        "broadcast_buffers": False,
        "find_unused_parameters": True,
        "batched_grad_copy": True,
    },
    "fsdp": {"strategy": "fsdp", "fsdp_reshard": False},
}
DATA: Any = [{"inputs": torch.full((16,), float(number))} for number in range(PASSES * 2 * BATCH)]  # one step
LOOP = "loop"
HOOKED = (LOOP, "Ray Train", "Accelerate")  # transformers has no such argument, Lightning not on CPUs
Trained: TypeAlias = "tuple[Model, Any]"  # the model, and what wraps it


class Model(nn.Module):
    """Two blocks, which remember the types that they have computed in."""

    _no_split_modules = ("Linear",)  # as models of transformers name their blocks

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.blocks = nn.ModuleList(nn.Linear(16, 16) for _ in range(2))
        self.computed_in = set[torch.dtype]()

    def forward(self, inputs: torch.Tensor) -> dict[str, torch.Tensor]:
        hidden = inputs
        for block in self.blocks:
            hidden = block(hidden)
            self.computed_in.add(hidden.dtype)
        return {"loss": (hidden.float() - inputs.float()).square().mean()}

    def sum(self) -> float:
        """Of all weights. A collective call where they are sharded."""
        whole = [each.full_tensor() if hasattr(each, "full_tensor") else each for each in self.parameters()]
        return sum(float(each.sum()) for each in whole)


def loss_of(model: nn.Module, batch: dict[str, torch.Tensor]) -> torch.Tensor:
    loss: torch.Tensor = model(**batch)["loss"]
    return loss


def optimizer_of(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.AdamW(model.parameters(), lr=0.01)


def shard(model: Model, arguments: dict[str, Any]) -> None:
    for each in (*model.blocks, model):
        fully_shard(each, **arguments)


# --- on each rank: a model, trained as the cells of one column have it


def arguments_of(cells: Sequence[str], **names: Any) -> defaultdict[str, dict[str, Any]]:
    """The keywords of every call in the cells, by its name; ``names``: what their values are made of."""
    found = defaultdict[str, dict[str, Any]](dict)
    for cell in cells:
        call = ast.parse(cell, mode="eval").body
        assert isinstance(call, ast.Call)
        given = found[ast.unparse(call.func)]
        for each in call.keywords:
            assert each.arg is not None
            value = eval(ast.unparse(each.value), names)
            given[each.arg] = given.get(each.arg, {}) | value if isinstance(value, dict) else value
    return found


def by_the_loop(cells: Sequence[str], folder: Path) -> Trained:
    (loop,), model = cells, Model()
    names = pasted(loop)
    blocks = [nn.Linear] if "block_class" in loop else []
    wrapper = names["prepare"](model, torch.device("cpu"), *blocks)
    names["train_epoch"](wrapper, optimizer_of(wrapper), names["make_loader"](DATA), loss_of)
    return model, wrapper


def by_ray_train(cells: Sequence[str], folder: Path) -> Trained:
    from ray.train import ScalingConfig
    from ray.train.torch import prepare_model
    from ray.train.v2._internal.execution import train_fn_utils as of_train

    size, rank, model = dist.get_world_size(), dist.get_rank(), Model()
    # as Ray Train has it in a process that torchrun has started
    of_train.set_train_fn_utils(of_train.LocalTrainFnUtils("arguments", None, size, rank, rank, size))
    names: dict[str, Any] = {"torch": torch, "fp16_compress_hook": fp16_compress_hook}
    given, wrapper = arguments_of(cells, **names), model
    assert ScalingConfig(**given["ScalingConfig"]).num_workers == size
    if "fully_shard" in given:
        shard(model, given["fully_shard"])
    else:
        wrapper = prepare_model(model, **given["prepare_model"])

    def call(name: str) -> Any:
        (cell,) = (each for each in cells if each.startswith(f"{name}("))
        return eval(cell, names | {"model": wrapper, "device": "cpu"})

    def backward(batch: dict[str, torch.Tensor]) -> None:
        with call("torch.autocast"):
            loss = loss_of(wrapper, batch)
        loss.backward()

    optimizer = optimizer_of(wrapper)
    first, last = DataLoader(DATA, sampler=DistributedSampler(DATA), **given["DataLoader"])
    if isinstance(wrapper, FSDPModule):
        call("model.set_requires_gradient_sync")
        backward(first)
        wrapper.set_requires_gradient_sync(True)
    else:
        call("model.register_comm_hook")
        with call("model.no_sync"):
            backward(first)
    backward(last)
    optimizer.step()
    return model, wrapper


def by_lightning(cells: Sequence[str], folder: Path) -> Trained:
    from lightning import LightningModule, Trainer
    from lightning.pytorch.strategies import DDPStrategy, ModelParallelStrategy

    given, wrappers = arguments_of(cells, fp16_compress_hook=fp16_compress_hook), list[Any]()

    class Module(LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.model = Model()

        def configure_model(self) -> None:
            if "fully_shard" in given:
                shard(self.model, given["fully_shard"])
                wrappers.append(self.model)

        def on_train_start(self) -> None:
            wrappers.append(self.trainer.strategy.model)

        def training_step(self, batch: dict[str, torch.Tensor], number: int) -> torch.Tensor:
            return loss_of(self.model, batch)

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return optimizer_of(self.model)

    of_shards = given.get("ModelParallelStrategy")
    strategy = ModelParallelStrategy(**of_shards) if of_shards else DDPStrategy(**given["DDPStrategy"])
    without = ("logger", "enable_checkpointing", "enable_progress_bar", "enable_model_summary")
    own = {"accelerator": "cpu", "strategy": strategy, "max_epochs": 1, **dict.fromkeys(without, False)}
    module = Module()
    Trainer(**own, **given["Trainer"]).fit(module, DataLoader(DATA, **given["DataLoader"]))
    return module.model, wrappers[0]


def by_accelerate(cells: Sequence[str], folder: Path) -> Trained:
    from accelerate import Accelerator, utils

    given, model = arguments_of(cells, **vars(utils)), Model()
    hooked, sharded = (
        [getattr(utils, name)(**given[name])] if name in given else []
        for name in ("DistributedDataParallelKwargs", "FullyShardedDataParallelPlugin")
    )
    own = {"cpu": True, "kwargs_handlers": hooked, "fsdp_plugin": next(iter(sharded), None)}
    accelerator = Accelerator(**own, **given["Accelerator"])
    loader = DataLoader(DATA, **given["DataLoader"])
    wrapper, optimizer, loader = accelerator.prepare(model, optimizer_of(model), loader)
    for batch in loader:
        with accelerator.accumulate(wrapper):
            accelerator.backward(loss_of(wrapper, batch))
            optimizer.step()
            optimizer.zero_grad()
    return model, wrapper


def by_transformers(cells: Sequence[str], folder: Path) -> Trained:
    from transformers import Trainer, TrainingArguments

    own = {"use_cpu": True, "num_train_epochs": 1, "save_strategy": "no", "report_to": []}
    given, model = arguments_of(cells)["TrainingArguments"], Model()
    trainer = Trainer(model, TrainingArguments(str(folder), **own, **given), train_dataset=DATA)
    trainer.train()
    return model, trainer.model_wrapped


BY: dict[str, Callable[[Sequence[str], Path], Trained]] = {
    LOOP: by_the_loop,
    "Ray Train": by_ray_train,
    "Lightning": by_lightning,
    "Accelerate": by_accelerate,
    "transformers": by_transformers,
}


def train(framework: str, strategy: str, cells: Sequence[str], folder: Path) -> dict[str, Any]:
    """What is seen of a step: how the model was wrapped, its types, its optimizer, its weights."""
    steps, before = list[torch.optim.Optimizer](), Model().sum()
    counted = register_optimizer_step_post_hook(lambda optimizer, *_: steps.append(optimizer))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CUDA_VISIBLE_DEVICES", "")  # where there are GPUs fully_shard would take them
        patch.setenv("MASTER_ADDR", "127.0.0.1")
        patch.setenv("LOCAL_WORLD_SIZE", str(dist.get_world_size()))
        if framework in ("Accelerate", "transformers"):
            from accelerate.state import AcceleratorState, DistributedType, PartialState

            AcceleratorState._reset_state(reset_partial_state=True)
            if strategy == "fsdp":  # both shard on GPUs only
                patch.setenv("ACCELERATE_TORCH_DEVICE", "cpu")
                found = "gloo", DistributedType.MULTI_GPU
                patch.setattr(PartialState, "_prepare_backend", lambda *_: found)
        model, wrapper = BY[framework](cells, folder)
    counted.remove()
    wrapped: dict[str, Any] = {"parts": sum(isinstance(each, FSDPModule) for each in model.modules())}
    if not isinstance(wrapper, FSDPModule):
        wrapped = {"buckets": wrapper.bucket_bytes_cap, "hooks": len(wrapper._comm_hooks)}
    return wrapped | {
        "types": model.computed_in,
        "fused": [bool(each.defaults["fused"]) for each in steps],
        "weights": (before, model.sum()),
    }


@pytest.fixture(scope="module")
def ranks() -> Iterator[Ranks]:
    """Of this module alone: a framework leaves things behind in its process."""
    ranks = Ranks(2)
    yield ranks
    ranks.close()


def section_of(strategy: str) -> UseIt:
    """The code of a study with one setting, which is the one to use."""
    knobs = {"batch_size": BATCH, "precision": "bf16", "gradient_accumulation": PASSES, **SETTINGS[strategy]}
    spec = study(knobs=knobs, optimizer={"name": "adamw"})
    requests = [
        asked(spec, "scaling", spec.knobs.default(), size, optimizer=spec.optimizer) for size in (1, 2)
    ]
    section = use_it(analyse(spec, run_all(FakeRunner(lambda *_: exactly(0.9), QUIET), requests)[0]))
    assert section is not None
    return section


@pytest.mark.promise("arguments")
@pytest.mark.parametrize("strategy", list(SETTINGS))
@pytest.mark.parametrize("framework", list(BY))
def test_it_trains_as_it_says(framework: str, strategy: str, ranks: Ranks, tmp_path: Path) -> None:
    section = section_of(strategy)
    cells, table = [section.loop], section.arguments
    if framework != LOOP:
        place = [each.heading for each in table.columns].index(framework)
        cells = [row[place] for row in table.rows if row[place] != NONE]
    if framework == "transformers":
        cells += [f"TrainingArguments({each})" for each in re.findall(r" also (.*)\.$", table.caption)]
    seen, other = ranks.call(train, framework, strategy, cells, tmp_path)
    before, after = seen.pop("weights")
    assert before != after == other.pop("weights")[1]
    wrapped = {"buckets": BUCKET_MIB * 2**20, "hooks": int(framework in HOOKED)}
    if strategy == "fsdp":
        wrapped = {"parts": 3}
    assert seen == other == wrapped | {"types": {torch.bfloat16}, "fused": [False]}

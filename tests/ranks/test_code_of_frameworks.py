"""A report's code for transformers, Accelerate and Lightning trains on two ranks, with its knobs."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from raybench.analysis import analyse
from raybench.report.code.section import use_it
from tests.ranks.pasted import loss_of, make_model, make_train_set
from tests.ranks.ranks import run_ranks
from tests.unit.studies import grid, study

ACCUMULATION, CAP_MB, BATCH = 2, 0.5, 4
SPEC = study(
    knobs={
        "batch_size": [BATCH],
        "gradient_accumulation": [ACCUMULATION],
        "bucket_cap_mb": [CAP_MB],
        "precision": ["bf16"],
        "static_graph": [False],
        "broadcast_buffers": [False],
        "num_threads": [1],
    }
)
FRAMEWORKS = ("transformers", "Accelerate", "Lightning")
Seen = dict[str, Any]


def _seen_of(module: nn.Module) -> Seen:
    """The knobs as they have arrived where the gradients travel."""
    assert isinstance(module, DistributedDataParallel), type(module)
    return {"bucket_bytes": module.bucket_bytes_cap, "buffers": module.broadcast_buffers}


class _WithLoss(nn.Module):
    """As a model of transformers returns its loss."""

    def __init__(self) -> None:
        super().__init__()
        self.model = make_model()

    def forward(self, inputs: torch.Tensor) -> dict[str, torch.Tensor]:
        return {"loss": loss_of(self.model, [inputs])}


def _by_transformers(names: dict[str, Any]) -> tuple[nn.Module, Seen]:
    from transformers import Trainer, TrainerCallback

    seen: Seen = {}

    class Look(TrainerCallback):  # type: ignore[misc]
        def on_step_end(self, *_: Any, **__: Any) -> None:
            seen.update(_seen_of(trainer.model_wrapped), types=_type_of_matrices(trainer))

    train_set: Any = [{"inputs": values} for values in make_train_set().tensors[0]]
    model, arguments = _WithLoss(), names["make_arguments"]()
    trainer = Trainer(
        model=names["prepare"](model), args=arguments, train_dataset=train_set, callbacks=[Look()]
    )
    trainer.train()
    epochs = int(arguments.num_train_epochs)
    return model, seen | {"steps": trainer.state.global_step / epochs}


def _type_of_matrices(trainer: Any) -> torch.dtype:
    with torch.no_grad(), trainer.accelerator.autocast():
        return trainer.model.model(torch.randn(2, 16)).dtype


def _by_accelerate(names: dict[str, Any]) -> tuple[nn.Module, Seen]:
    accelerator, model = names["make_accelerator"](), make_model()
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    steps = list[int]()
    optimizer.register_step_post_hook(lambda *_: steps.append(1))
    wrapped, optimizer, loader = accelerator.prepare(
        names["prepare"](model), optimizer, names["make_loader"](make_train_set())
    )
    names["train_epoch"](accelerator, wrapped, optimizer, loader, loss_of)
    with torch.no_grad(), accelerator.autocast():
        type_ = model.get_submodule("0")(torch.randn(2, 16)).dtype  # its own outputs are cast back
    return model, _seen_of(wrapped) | {"types": type_, "steps": len(steps)}


def _by_lightning(names: dict[str, Any]) -> tuple[nn.Module, Seen]:
    import lightning

    model, seen = make_model(), Seen()

    class Module(lightning.LightningModule):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.model = names["prepare"](model)

        def training_step(self, batch: Any, number: int) -> torch.Tensor:
            seen.update(_seen_of(self.trainer.strategy.model), types=self.model(batch[0]).dtype)
            return loss_of(self.model, batch)

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.SGD(self.parameters(), 0.01)

    quiet = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False}
    trainer = names["make_trainer"](max_epochs=1, **quiet)
    trainer.fit(Module(), names["make_loader"](make_train_set()))
    return model, seen | {"steps": trainer.global_step}


def _weights(model: nn.Module) -> list[float]:
    values: list[float] = torch.cat([each.detach().flatten() for each in model.parameters()]).tolist()
    return values


TRAINS: dict[str, Callable[[dict[str, Any]], tuple[nn.Module, Seen]]] = {
    "transformers": _by_transformers,
    "Accelerate": _by_accelerate,
    "Lightning": _by_lightning,
}


def rank_trains(code: dict[str, str], folder: Path) -> dict[str, tuple[list[float], Seen]]:
    """On each rank, as torchrun would start it: the trained weights, and the knobs that were seen."""
    from accelerate.state import AcceleratorState, GradientState

    os.chdir(folder)
    os.environ["TORCHELASTIC_RUN_ID"] = "tests"  # by which Lightning knows that torchrun has started it
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1", "LOCAL_WORLD_SIZE": "2"}  # not used
    found = {}
    for framework, text in code.items():
        names: dict[str, Any] = {}
        exec(compile(text, framework, "exec"), names)
        model, seen = TRAINS[framework](names)
        found[framework] = _weights(model), seen
        AcceleratorState._reset_state(True)  # which transformers and Accelerate share
        GradientState._reset_state()
    return found


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, tuple[list[float], Seen]]]:
    """Of each rank."""
    section = use_it(analyse(SPEC, grid(SPEC, (2,))[0]), {"packages": {"torch": torch.__version__}})
    assert section is not None
    code = {each.title: each.text for each in section.snippets if each.title in FRAMEWORKS}
    assert set(code) == set(FRAMEWORKS)
    return run_ranks(rank_trains, 2, code, tmp_path_factory.mktemp("frameworks"))


@pytest.mark.promise("code for frameworks")
@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_the_code_trains_the_same_weights_on_both_ranks(framework: str, trained: Any) -> None:
    first, other = (found[framework][0] for found in trained)
    assert first == other
    assert first != _weights(make_model())


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_the_codes_knobs_arrive(framework: str, trained: Any) -> None:
    samples = len(make_train_set())
    for found in trained:
        assert found[framework][1] == {
            "bucket_bytes": int(CAP_MB * 2**20),
            "buffers": False,
            "types": torch.bfloat16,
            "steps": samples // (2 * BATCH * ACCUMULATION),
        }

"""A LightningModule as a workload: its training step, optimizer and loaders, without a Trainer."""

from __future__ import annotations

import copy
import importlib
import warnings
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader

from raybench.errors import RequestError
from raybench.spec.workloads import LightningSpec
from raybench.workloads import build, check
from raybench.workloads.lightning_module import LightningWorkload
from raybench.workloads.protocol import dataset_of, left_out_of, optimizer_of
from raybench.workloads.schedule import schedule_of
from tests.support.own_trainings import Classifier, Numbers, build_lightning, numbers

BUILD = "tests.support.own_trainings:build_lightning"


def workload_of(made: Any = None) -> LightningWorkload:
    return LightningWorkload(made or build_lightning(), BUILD)


def a_batch(workload: LightningWorkload) -> Any:
    dataset = dataset_of(workload, "train")
    return workload.collate([dataset[index] for index in range(4)])


def test_its_loss_is_that_of_training_step_which_logs_to_nobody() -> None:
    workload = workload_of()
    batch, model = a_batch(workload), workload.model()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        loss = workload.loss(model, batch)
    inputs, classes = batch
    module: Any = model.module
    torch.testing.assert_close(loss, nn.functional.cross_entropy(module.net(inputs), classes))
    assert not hasattr(workload, "metric")
    shared = copy.deepcopy(model)  # as every variant has one
    torch.testing.assert_close(workload.loss(shared, batch), loss)


def test_the_module_knows_the_device_that_it_was_moved_to() -> None:
    class Asks(Classifier):
        def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
            return super().training_step(batch, batch_idx) + torch.zeros((), device=self.device)

    workload, meta = workload_of((Asks(), Numbers(16))), torch.device("meta")
    model = workload.model().to(meta)
    assert workload.loss(model, [each.to(meta) for each in a_batch(workload)]).device == meta


def test_its_optimizer_is_made_for_the_model_at_the_rate_it_begins_with() -> None:
    workload = workload_of()
    model = workload.model()
    optimizer = optimizer_of(workload, model)
    assert optimizer is not None
    assert [(group["weight_decay"], group["lr"]) for group in optimizer.param_groups] == [
        (0.1, 5e-3),
        (0.0, 5e-3),
    ]
    found = {id(each) for group in optimizer.param_groups for each in group["params"]}
    assert found == {id(each) for each in model.parameters()}


@pytest.mark.parametrize(("interval", "expected"), [("step", [0.1, 0.19, 0.28]), ("epoch", [0.1, 0.1, 0.19])])
def test_its_scheduler_knows_the_steps_and_their_interval(interval: str, expected: list[float]) -> None:
    workload = workload_of(build_lightning(interval=interval))
    optimizer = optimizer_of(workload, workload.model())
    assert optimizer is not None
    schedule = schedule_of(workload, optimizer, epochs=5, steps_per_epoch=2)
    assert schedule is not None
    assert [schedule.rates(step)[0] / 5e-3 for step in range(3)] == pytest.approx(expected)


class Other(Classifier):
    """``answer`` is what ``configure_optimizers`` returns."""

    answer: Any = staticmethod(lambda sgd, decay: None)

    def configure_optimizers(self) -> Any:
        sgd = torch.optim.SGD(self.parameters(), 0.1)
        return type(self).answer(sgd, torch.optim.lr_scheduler.ExponentialLR(sgd, 0.5))


@pytest.mark.parametrize(
    ("answer", "every"),
    [
        (lambda sgd, decay: sgd, None),
        (lambda sgd, decay: [sgd], None),
        (lambda sgd, decay: ([sgd], [decay]), 2),
        (lambda sgd, decay: ([sgd], [{"scheduler": decay, "interval": "step"}]), 1),
        (lambda sgd, decay: {"optimizer": sgd, "lr_scheduler": decay}, 2),
        (lambda sgd, decay: {"optimizer": sgd}, None),
    ],
)
def test_every_way_to_say_one_optimizer_is_understood(
    answer: Any, every: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Other, "answer", staticmethod(answer))
    workload = workload_of((Other(), Numbers(16)))
    optimizer = optimizer_of(workload, workload.model())
    assert isinstance(optimizer, torch.optim.SGD)
    assert optimizer.param_groups[0]["lr"] == 0.1
    schedule = schedule_of(workload, optimizer, 3, 2)
    assert (schedule is None) == (every is None)
    if schedule is not None and every is not None:
        rates = [schedule.rates(step)[0] for step in range(4)]
        assert rates == pytest.approx([0.1 * 0.5 ** (step // every) for step in range(4)])


@pytest.mark.parametrize(
    ("answer", "received"),
    [
        (lambda sgd, decay: [sgd, sgd], "2 optimizers"),
        (lambda sgd, decay: ([sgd, sgd], []), "2 optimizers"),
        (lambda sgd, decay: ([sgd], [decay, decay]), "SGD and 2 schedulers"),
        (lambda sgd, decay: None, "NoneType"),
    ],
)
def test_several_optimizers_are_refused(answer: Any, received: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Other, "answer", staticmethod(answer))
    workload = workload_of((Other(), Numbers(16)))
    with pytest.raises(RequestError, match=rf"one optimizer.*\(received {received}\)"):
        optimizer_of(workload, workload.model())


def test_a_module_that_steps_its_optimizers_itself_is_refused_in_a_line() -> None:
    module = Classifier()
    module.automatic_optimization = False
    with pytest.raises(RequestError) as refused:
        LightningWorkload(module, BUILD)
    assert refused.value.problems == (
        "workload.lightning: automatic optimization, whose steps raybench can run "
        "(received Classifier with automatic_optimization = False)",
    )
    with pytest.raises(RequestError, match=r"a LightningModule, .* \(received a Linear from"):
        LightningWorkload(nn.Linear(2, 2), BUILD)


def test_a_training_step_without_a_loss_is_refused() -> None:
    class Silent(Classifier):
        def training_step(self, batch: Any) -> Any:  # type: ignore[override]
            return {"logits": self(batch[0])}

    workload = workload_of((Silent(), Numbers(16)))
    with pytest.raises(RequestError, match=r"training_step returns the loss.*received a NoneType"):
        workload.loss(workload.model(), a_batch(workload))


def test_hooks_that_only_a_trainer_calls_are_named() -> None:
    class Hooked(Classifier):
        def on_before_optimizer_step(self, optimizer: Any) -> None:
            pass

        def on_after_batch_transfer(self, batch: Any, dataloader_idx: int) -> Any:
            return batch[0] * 0, batch[1]  # it is part of the forward pass

    workload = workload_of((Hooked(), Numbers(16)))
    clipping = "gradient clipping"
    assert left_out_of(workload) == (
        clipping,
        "scheduler",
        "logging",
        "evaluation",
        "on_before_optimizer_step",
    )
    assert left_out_of(workload_of())[4:] == ()
    model: Any = workload.model()
    expected = nn.functional.cross_entropy(model.module.net(torch.zeros(4, 8)), a_batch(workload)[1])
    torch.testing.assert_close(workload.loss(model, a_batch(workload)), expected)


def test_loaders_stand_alone_or_in_the_module() -> None:
    class WithLoader(Classifier):
        def train_dataloader(self) -> DataLoader[Any]:
            return DataLoader(numbers(24), batch_size=4)

    train, validation = DataLoader(numbers(32), batch_size=8), DataLoader(numbers(16))
    pair = workload_of((Classifier(), train, validation))
    assert (len(pair.dataset("train")), len(pair.dataset("test"))) == (32, 16)
    assert pair.knobs()["batch_size"] == 8
    alone = workload_of(WithLoader())
    assert len(alone.dataset("train")) == 24
    with pytest.raises(Exception, match=r"`val_dataloader` must be implemented"):
        alone.dataset("test")


def test_data_is_prepared_where_a_workload_is_looked_at_and_not_on_every_rank() -> None:
    module, data = build_lightning()
    workload = workload_of((module, data))
    workload.dataset("train")
    assert data.prepared == 0
    workload.prepare()
    assert data.prepared == 1


def test_a_look_at_it_finds_samples_and_knobs_and_runs_a_step() -> None:
    found = check(LightningSpec.model_validate({"lightning": BUILD, "samples": 64}), None, is_trained=True)
    assert found.samples == (64, 32)
    assert dict(found.knobs)["batch_size"] == 16
    assert found.untried is None


def test_both_packages_have_modules(monkeypatch: pytest.MonkeyPatch) -> None:
    older = importlib.import_module("pytorch_lightning")

    class Old(older.LightningModule):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.net = nn.Linear(8, 3)

        def training_step(self, batch: Any, batch_idx: int) -> Any:
            self.log("loss", 0.0)
            return {"loss": nn.functional.cross_entropy(self.net(batch[0]), batch[1])}

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters(), 0.1)

    workload = workload_of((Old(), DataLoader(numbers(16), batch_size=4)))
    assert workload.loss(workload.model(), a_batch(workload)).requires_grad
    assert left_out_of(workload)[4:] == ()


def test_every_rank_has_the_same_weights() -> None:
    first, other, same = (
        torch.cat(
            [
                each.flatten()
                for each in build(LightningSpec(lightning=BUILD), None, seed).model().parameters()
            ]
        )
        for seed in (1, 2, 1)  # a seed after the other: of one the module is kept
    )
    assert torch.equal(first, same)
    assert not torch.equal(first, other)


class Guarded(Classifier):
    """As Lightning documents it: made once, whoever asks."""

    def __init__(self) -> None:
        super().__init__()
        self.net: nn.Module | None = None

    def configure_model(self) -> None:
        if self.net is None:
            self.net = nn.Linear(2, 2)


def test_a_model_that_is_made_late_has_storage_although_its_size_is_asked_first() -> None:
    workload = LightningWorkload((Guarded(), DataLoader(Numbers(8), 4)), "m:f")
    with torch.device("meta"):
        copy.copy(workload).model()
    made: Any = workload.model()
    assert {each.device.type for each in made.module.net.parameters()} == {"cpu"}


def test_what_there_is_of_a_trainer_names_what_there_is_not() -> None:
    class Asks(Classifier):
        def configure_optimizers(self) -> Any:
            optimizer = torch.optim.SGD(self.parameters(), 0.1)
            return [optimizer], [torch.optim.lr_scheduler.StepLR(optimizer, self.trainer.max_epochs)]

    workload = LightningWorkload((Asks(), DataLoader(Numbers(8), 4)), "m:f")
    with pytest.raises(AttributeError, match=r"self.trainer.max_epochs: raybench has no Trainer"):
        workload.optimizer(workload.model())

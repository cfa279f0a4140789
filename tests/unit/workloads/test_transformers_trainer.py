"""A transformers.Trainer as a workload: its own numbers, and nothing of its own that disturbs the ranks'."""

from __future__ import annotations

import os
from typing import Any

import pytest
import torch
from torch import nn

from raybench.errors import InvalidTrialError, RequestError
from raybench.spec.study import Study
from raybench.spec.workloads import TrainerSpec
from raybench.workloads import build, check
from raybench.workloads.protocol import dataset_of, left_out_of
from raybench.workloads.schedule import schedule_of
from raybench.workloads.transformers_trainer import LAUNCHER, TrainerWorkload, alone
from tests.support import own_trainings
from tests.support.own_trainings import accuracy, arguments, build_trainer, text_model

BY_DEFAULT = ("the NaN filter of the logged loss", "the count of tokens on all devices")
BUILD = "tests.support.own_trainings:build_trainer"


@pytest.fixture(autouse=True)
def _output(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(own_trainings, "gettempdir", lambda: str(tmp_path))


def workload_of(**more: Any) -> tuple[Any, Any]:
    trainer = build_trainer(**more)
    return trainer, TrainerWorkload(trainer, BUILD)


def a_batch(workload: Any, size: int = 4) -> Any:
    dataset, collate = dataset_of(workload, "train"), workload.collate
    assert collate is not None
    return collate([dataset[index] for index in range(size)])


@pytest.mark.parametrize("more", [{}, {"label_smoothing_factor": 0.2}], ids=["plain", "smoothed"])
def test_loss_and_gradients_are_those_of_the_trainers_own_step(more: dict[str, Any]) -> None:
    trainer, workload = workload_of(**more)
    batch, model = a_batch(workload), workload.model()
    assert set(batch) == {"input_ids", "attention_mask", "labels"}  # neither the row nor a label by its name
    loss = workload.loss(model, batch)
    loss.backward()
    assert "labels" in batch  # which a metric needs, and the next step
    trainer.create_optimizer_and_scheduler(1)
    trainer.current_gradient_accumulation_steps = 1
    theirs = trainer.training_step(trainer.model, dict(batch))
    torch.testing.assert_close(loss.detach(), theirs, rtol=0, atol=0)
    for ours, own in zip(model.parameters(), trainer.model.parameters(), strict=True):
        torch.testing.assert_close(ours.grad, own.grad, rtol=0, atol=0)


def test_losses_of_ones_own_get_the_number_of_items() -> None:
    from transformers import Trainer

    seen: list[Any] = []

    def own(outputs: Any, labels: Any, num_items_in_batch: Any = None) -> torch.Tensor:
        seen.append(num_items_in_batch)
        return nn.functional.cross_entropy(outputs.logits, labels, reduction="sum") / num_items_in_batch

    class Doubles(Trainer):  # type: ignore[misc]
        def compute_loss(self, model: nn.Module, inputs: Any, **more: Any) -> Any:
            assert self.args.device == next(model.parameters()).device
            return 2 * super().compute_loss(model, inputs, **more)

    data = own_trainings.Texts(16)
    trainer = Doubles(text_model(), arguments(), train_dataset=data, compute_loss_func=own)
    workload = TrainerWorkload(trainer, BUILD)
    batch, model = a_batch(workload), workload.model()
    expected = 2 * model(**batch).loss
    torch.testing.assert_close(workload.loss(model, batch), expected)
    assert [int(number) for number in seen] == [4]


def test_its_optimizer_spares_biases_and_norms_of_the_model_it_gets() -> None:
    trainer, workload = workload_of()
    model = workload.model()
    optimizer = workload.optimizer(model)
    own = trainer.create_optimizer()
    for ours, theirs in zip(optimizer.param_groups, own.param_groups, strict=True):
        assert {key: value for key, value in ours.items() if key != "params"} == {
            key: value for key, value in theirs.items() if key != "params"
        }
        names = [{id(each): name for name, each in of.named_parameters()} for of in (model, trainer.model)]
        assert [names[0][id(each)] for each in ours["params"]] == [
            names[1][id(each)] for each in theirs["params"]
        ]
    assert {group["weight_decay"] for group in optimizer.param_groups} == {0.0, 0.1}
    assert workload.optimizer(model) is not optimizer


def test_an_optimizer_and_a_scheduler_that_it_was_given_are_copied() -> None:
    from transformers import Trainer, get_linear_schedule_with_warmup

    given = text_model()
    optimizer = torch.optim.SGD(given.parameters(), 0.4, momentum=0.9)
    scheduler = get_linear_schedule_with_warmup(optimizer, 2, 10)  # sets the first rate to 0
    data = own_trainings.Texts(16)
    trainer = Trainer(given, arguments(), train_dataset=data, optimizers=(optimizer, scheduler))
    workload = TrainerWorkload(trainer, BUILD)
    model = workload.model()
    copied = workload.optimizer(model)
    assert [
        each is own for each, own in zip(copied.param_groups[0]["params"], model.parameters(), strict=True)
    ]
    assert copied.param_groups[0]["lr"] == 0.4
    assert copied.param_groups[0]["momentum"] == 0.9
    schedule = schedule_of(workload, copied, 5, 2)
    assert schedule is not None
    assert [schedule.rates(step)[0] for step in (0, 1, 2, 6)] == pytest.approx([0.0, 0.2, 0.4, 0.2])


def test_its_schedule_and_clipping_are_those_of_its_arguments() -> None:
    _, workload = workload_of(max_grad_norm=0.5)
    optimizer = workload.optimizer(workload.model())
    schedule = schedule_of(workload, optimizer, 5, 2)
    assert schedule is not None
    assert [schedule.rates(step)[0] for step in (0, 1, 2, 6)] == pytest.approx([0.0, 2.5e-3, 5e-3, 2.5e-3])
    model = workload.model()
    workload.loss(model, a_batch(workload)).mul(1e3).backward()
    workload.after_backward(model)
    norm = torch.cat([each.grad.flatten() for each in model.parameters()]).norm()
    assert float(norm) == pytest.approx(0.5, rel=1e-3)
    assert {*left_out_of(workload)} == {"scheduler", "logging", "evaluation", *BY_DEFAULT}


def test_a_scheduler_that_waits_for_a_metric_is_refused_where_it_is_needed() -> None:
    _, workload = workload_of(lr_scheduler_type="reduce_lr_on_plateau", eval_strategy="epoch")
    with pytest.raises(InvalidTrialError, match="received ReduceLROnPlateau"):
        schedule_of(workload, workload.optimizer(workload.model()), 1, 1)


def test_correct_predictions_are_counted_where_its_metric_is_an_accuracy() -> None:
    trainer, workload = workload_of()
    metric = getattr(workload, "metric", None)
    assert metric is not None
    batch = a_batch(workload, 8)
    output = trainer.model(**batch)
    expected = int((output.logits.argmax(-1) == batch["labels"]).sum())
    assert metric(output, batch) == expected


@pytest.mark.parametrize("found", [{"f1": 0.5}, None, {"accuracy": 40.0}])
def test_another_metric_leaves_the_losses(found: Any) -> None:
    from transformers import Trainer

    data = own_trainings.Texts(16)
    compute = None if found is None else lambda predicted: found
    trainer = Trainer(
        text_model(), arguments(), train_dataset=data, eval_dataset=data, compute_metrics=compute
    )
    assert not hasattr(TrainerWorkload(trainer, BUILD), "metric")


def test_what_it_does_besides_a_step_is_named() -> None:
    from transformers import Trainer, TrainerCallback

    class Own(TrainerCallback):  # type: ignore[misc]
        pass

    class Steps(Trainer):  # type: ignore[misc]
        def training_step(self, *given: Any, **more: Any) -> Any:
            return super().training_step(*given, **more)

    data = own_trainings.Texts(16)
    args = arguments(neftune_noise_alpha=5.0, train_sampling_strategy="group_by_length")
    trainer = Steps(text_model(), args, train_dataset=data, callbacks=[Own()])
    left_out = TrainerWorkload(trainer, BUILD).left_out()
    assert left_out == ("LengthGroupedSampler", "Own", "Steps.training_step", "NEFTune", *BY_DEFAULT)


def test_its_arguments_are_the_studys_knobs_where_the_study_names_none() -> None:
    _, workload = workload_of(
        bf16=True, gradient_accumulation_steps=2, dataloader_num_workers=1, ddp_find_unused_parameters=False,
        use_cpu=True,
    )  # fmt: skip
    own = workload.knobs()
    base = {"name": "own", "workload": {"trainer": BUILD}}
    study = Study.model_validate(base | {"knobs": {"batch_size": [4, 8], "workers": 0}}).with_own_knobs(own)
    assert study.knobs.batch_size == (4, 8)
    assert study.knobs.workers == (0,)
    assert (study.knobs.precision, study.knobs.gradient_accumulation) == (("bf16",), (2,))
    assert study.knobs.find_unused_parameters == (False,)
    strong = Study.model_validate(base | {"scaling": {"mode": "strong"}}).with_own_knobs(own)
    assert (strong.knobs.batch_size, strong.knobs.gradient_accumulation) == ((32,), (1,))
    assert strong.knobs.workers == (1,)


@pytest.mark.filterwarnings("ignore:`gradient_checkpointing`:FutureWarning")
@pytest.mark.parametrize(
    ("more", "knobs", "finds"),
    [
        ({}, {}, True),
        ({"gradient_checkpointing": True}, {}, False),
        ({"ddp_static_graph": True}, {}, False),
        ({}, {"static_graph": True}, False),
        ({}, {"strategy": ["ddp", "fsdp"]}, False),  # which excludes it
        ({}, {"find_unused_parameters": False}, False),
    ],
)
def test_its_ddp_finds_unused_parameters_as_the_trainers_does(
    more: dict[str, Any], knobs: dict[str, Any], finds: bool
) -> None:
    _, workload = workload_of(**more)
    base = {"name": "own", "workload": {"trainer": BUILD}, "knobs": knobs}
    study = Study.model_validate(base).with_own_knobs(workload.knobs())
    assert study.knobs.find_unused_parameters == (finds,)
    assert not study.knobs.faults("cpu")


def test_what_is_no_trainer_or_has_no_data_is_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    from transformers import Trainer

    monkeypatch.setattr(own_trainings, "number", lambda: 5, raising=False)
    without = lambda: Trainer(text_model(), arguments())  # noqa: E731
    monkeypatch.setattr(own_trainings, "without_data", without, raising=False)
    for name, words in {
        "number": "a transformers.Trainer, not yet started (received a int",
        "without_data": "a Trainer with a train_dataset (received None",
    }.items():
        with pytest.raises(RequestError) as refused:
            build(TrainerSpec(trainer=f"tests.support.own_trainings:{name}"), None)
        assert refused.value.problems == (
            f"workload.trainer: {words} from tests.support.own_trainings:{name})",
        )


def test_training_needs_one_data_set_to_evaluate() -> None:
    from transformers import Trainer

    data = own_trainings.Texts(16)
    for evaluated, received in ((None, "None"), ({"a": data, "b": data}, "a dict of a, b")):
        trainer = Trainer(text_model(), arguments(), train_dataset=data, eval_dataset=evaluated)
        with pytest.raises(RequestError, match=rf"one eval_dataset \(received {received}\)"):
            TrainerWorkload(trainer, BUILD).dataset("test")


def test_it_is_made_as_in_a_process_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """A launcher's variables would let Accelerate open a group, and count the ranks of all in every loss."""
    for name, value in zip(LAUNCHER, ("1", "1", "4", "2"), strict=False):
        monkeypatch.setenv(name, value)
    before = dict(os.environ)
    with alone():
        trainer = build_trainer(use_cpu=True)
    assert dict(os.environ) == before
    assert trainer.args.world_size == trainer.accelerator.num_processes == 1
    assert not torch.distributed.is_initialized()
    assert trainer.accelerator.device.type == "cpu"


def test_trials_of_one_seed_share_a_trainer_and_not_its_weights() -> None:
    first, second = (build(TrainerSpec(trainer=BUILD), None, 3) for _ in range(2))
    assert first is second
    one, other = first.model(), second.model()
    assert not {id(each) for each in one.parameters()} & {id(each) for each in other.parameters()}


def test_code_that_asks_for_the_device_finds_the_ranks_own() -> None:
    from transformers import Trainer

    class Small(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(4, 1)

        def forward(self, inputs: torch.Tensor, labels: torch.Tensor) -> tuple[torch.Tensor]:
            assert trainer.args.device == inputs.device
            return ((self.linear(inputs)[:, 0] - labels).square().mean(),)

    data = [{"inputs": torch.ones(4), "labels": 1.0} for _ in range(8)]
    trainer = Trainer(Small(), arguments(), train_dataset=data)
    workload: Any = TrainerWorkload(trainer, BUILD)
    meta = torch.device("meta")
    batch = {name: value.to(meta) for name, value in a_batch(workload).items()}
    assert workload.loss(workload.model().to(meta), batch).device == meta
    assert trainer.args.device == trainer.accelerator.device == meta


def test_every_rank_has_the_same_weights_and_each_seed_its_own() -> None:
    random_state = torch.get_rng_state()
    # a seed after the other: of one the Trainer is kept
    models = [build(TrainerSpec(trainer=BUILD), None, seed).model() for seed in (1, 2, 1)]
    assert torch.equal(torch.get_rng_state(), random_state)
    first, other, same = (torch.cat([each.flatten() for each in model.parameters()]) for model in models)
    assert torch.equal(first, same)
    assert not torch.equal(first, other)


def test_a_look_at_it_finds_samples_and_knobs_and_runs_a_step() -> None:
    found = check(TrainerSpec.model_validate({"trainer": BUILD, "samples": 64}), None, is_trained=True)
    assert found.samples == (64, 32)
    assert dict(found.knobs)["batch_size"] == 16
    assert found.untried is None


def test_the_step_of_a_factory_is_that_of_the_trainer() -> None:
    by_hand = own_trainings.build_factory(16)
    trainer, workload = workload_of(samples=16)
    model = workload.model()
    batch = a_batch(workload)
    theirs = {"label" if name == "labels" else name: value for name, value in batch.items()}
    again = text_model()
    again.load_state_dict(trainer.model.state_dict())
    workload.loss(model, batch).backward()
    by_hand.loss(again, theirs).backward()
    for ours, other in zip(model.parameters(), again.parameters(), strict=True):
        torch.testing.assert_close(ours.grad, other.grad)


def test_the_example_counts_an_accuracy() -> None:
    from transformers import EvalPrediction

    assert accuracy(EvalPrediction(torch.eye(3).numpy(), torch.arange(3).numpy())) == {"accuracy": 1.0}


class Remembers(torch.optim.SGD):
    """An optimizer with an attribute of its own, which torch's copies leave out."""

    def __init__(self, parameters: Any) -> None:
        super().__init__(parameters, 0.1)
        self.initialized = True


def test_an_optimizer_of_ones_own_keeps_what_it_has_besides_torch_s() -> None:
    trainer, workload = workload_of()
    trainer.optimizer = Remembers(trainer.model.parameters())
    assert workload.optimizer(workload.model()).initialized


def test_an_own_way_to_make_optimizer_and_scheduler_is_taken() -> None:
    trainer, workload = workload_of()

    class Own(type(trainer)):  # type: ignore[misc]
        def create_optimizer_and_scheduler(self, num_training_steps: int) -> None:
            self.optimizer = torch.optim.SGD(self.model.parameters(), 0.5)
            self.lr_scheduler = torch.optim.lr_scheduler.StepLR(self.optimizer, 1)

    trainer.__class__ = Own
    optimizer = workload.optimizer(workload.model())
    assert isinstance(optimizer, torch.optim.SGD)
    assert (trainer.optimizer, trainer.lr_scheduler) == (None, None)


def test_its_log_does_nothing() -> None:
    trainer, _ = workload_of()
    trainer.log({"loss": 1.0})
    assert trainer.state.log_history == []


def test_its_metric_is_asked_in_evaluations_alone() -> None:
    _, workload = workload_of()
    assert workload.metric.waits  # type: ignore[attr-defined]

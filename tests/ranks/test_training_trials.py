"""Training on two ranks and on one: the same steps, exact counts, exact resume; one start of processes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_model
from torch.utils.data import default_collate

from raybench.records.messages import Outcome
from raybench.records.requests import TrainingRequest
from raybench.records.results import TrainingResult
from raybench.spec.knobs import Setting
from raybench.spec.study import OptimizerSpec, TrainingSpec
from raybench.spec.workloads import FactorySpec
from raybench.worker.communicators import Communicators
from raybench.worker.group_cache import GroupCache
from raybench.worker.strategies.sharding import release_group, shard
from raybench.worker.strategies.stepper import Stepper
from raybench.worker.training.checkpoints import STATE, last_checkpoint
from raybench.worker.training.epoch_batches import shuffled
from raybench.worker.trial import run_trial
from tests.ranks.driving import DrivingDevice, driven_on_cores
from tests.ranks.ranks import Ranks
from tests.ranks.trainable import clouds
from tests.ranks.trials import BOTH, CPU
from tests.unit import studies

NUM_TRAIN, NUM_TEST = 50, 23
DRIVING = DrivingDevice()
OVERFLOW = {"overflow": 17}  # gradients of one batch an epoch are infinite on one rank
RANDOM: dict[str, Any] = {"train": 54, "dropout": 0.3, "shaken": True, "batch_norm": True}


def request_for(
    world_size: int,
    batch_size: int,
    workload: dict[str, Any] | None = None,
    setting: dict[str, Any] | None = None,
    **training: Any,
) -> TrainingRequest:
    strategy = "single" if world_size == 1 else "ddp"
    return TrainingRequest(
        config=studies.config(
            workload=FactorySpec(factory="tests.ranks.trainable:clouds", input="real", **(workload or {})),
            optimizer=OptimizerSpec(name="sgd", learning_rate=0.2, momentum=0.9),
            setting=Setting(**({"strategy": strategy, "batch_size": batch_size} | (setting or {}))),
            world_size=world_size,
        ),
        training=TrainingSpec(**({"epochs": 3, "timeout_seconds": 60.0} | training)),
    )


def stopped_after(epoch: int, request: TrainingRequest) -> TrainingRequest:
    """It learns enough for the first epochs, and not enough for this one."""
    peer = tuple((number, 0.0 if number < epoch else 1.0) for number in range(1, epoch + 1))
    return request.model_copy(update={"pruner": "median", "peers": (peer, peer)})


class StopError(Exception):
    """A trial that is ended after an epoch."""


# By name: what is asked, and after which epoch the trial is broken off.
ASKED: dict[str, TrainingRequest] = {
    "alone": request_for(1, 16),
    "together": request_for(2, 8, save_model=True),  # 50 samples in steps of 16: the last has 2
    "accumulated": request_for(2, 4, setting={"gradient_accumulation": 2}),  # its last micro-batches: empty
    "odd": request_for(2, 7, {"train": 43, "test": 9}),  # the last step has 1 sample
    "few": request_for(2, 8, {"train": 3, "test": 1}),
    "random": request_for(2, 8, RANDOM, epochs=4),
    "sharded": request_for(2, 8, setting={"strategy": "fsdp"}, save_model=True),
    "unsharded": request_for(2, 8, setting={"strategy": "fsdp", "fsdp_reshard": False}),
    "sharded random": request_for(2, 8, RANDOM, setting={"strategy": "fsdp"}, epochs=4),
    "workers": request_for(2, 8, RANDOM, setting={"workers": 1}, epochs=2),
    "driven": request_for(2, 8, setting={"strategy": "dp"}, save_model=True),
    "driven random": request_for(2, 8, RANDOM, setting={"strategy": "dp"}, epochs=4),
    "stopped": stopped_after(2, request_for(2, 8, epochs=5, save_model=True)),
    "driven stopped": stopped_after(1, request_for(2, 8, setting={"strategy": "dp"}, epochs=5)),
    "half alone": request_for(1, 16, OVERFLOW, setting={"precision": "fp16"}),
    "half together": request_for(2, 8, OVERFLOW, setting={"precision": "fp16"}, save_model=True),
    "half fused": request_for(2, 8, OVERFLOW | {"fused": True}, setting={"precision": "fp16"}),
    "half sharded": request_for(2, 8, OVERFLOW, setting={"precision": "fp16", "strategy": "fsdp"}),
}


def rank_trains(folder: Path) -> dict[str, Outcome | None]:
    """Every trial of ``ASKED``, and one that is broken off after two epochs and gone on with."""
    communicators = Communicators("gloo")
    results = {}
    request = ASKED["driven"]
    results["driven on cores"] = run_trial(
        request, BOTH, communicators, CPU, GroupCache(), lambda progress: None
    )

    def train(
        name: str,
        place: Path | None,
        on_progress: Any = lambda progress: None,
        limits: tuple[int, int] | None = None,
    ) -> Outcome | None:
        request, cache = ASKED[name], GroupCache()
        ranks = BOTH[: request.config.world_size]
        if limits:
            cache.memory_limits[ranks] = limits
        device = DRIVING if request.config.setting.strategy == "dp" else CPU
        with driven_on_cores():
            return run_trial(
                request,
                ranks,
                communicators,
                device,
                cache,
                on_progress,
                results=place,
            )

    def stop(progress: Any) -> None:
        if progress.phase == "epoch" and progress.detail.startswith("epoch 2"):
            raise StopError(progress.detail)

    for name in ASKED:
        results[name] = train(name, None if name == "alone" else folder / "whole")
    place = folder / "broken"
    results["broken"] = train("random", place, stop)
    communicators.drop_team()  # as the worker does after a broken trial
    trial = place / "checkpoints" / ASKED["random"].trial_id
    if communicators.rank == 0:  # killed in the middle of writing the third
        (trial / f"{STATE}.unfinished").write_bytes(b"half a checkpoint")
    results["resumed"] = train("random", place)
    results["nowhere"] = train("together", None)
    results["driven broken"] = train("driven random", folder / "driven", stop)
    results["driven resumed"] = train("driven random", folder / "driven")  # the groups are still good
    results["half broken"] = train("half together", folder / "half", stop)
    communicators.drop_team()
    results["half resumed"] = train("half together", folder / "half")
    results["sharded broken"] = train("sharded random", folder / "sharded", stop)
    communicators.drop_team()
    results["sharded resumed"] = train("sharded random", folder / "sharded")
    results["no room"] = train("together", None, limits=(10**9, 100))
    results["again"] = train("random", folder / "whole")  # every epoch is in its checkpoint
    communicators.drop_team()
    if communicators.rank == 0:
        (trial / STATE).write_bytes(b"not a checkpoint")
    results["damaged"] = train("random", place)
    communicators.drop_team()
    return results


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("checkpoints")


@pytest.fixture(scope="module")
def ranks(pair: Ranks, folder: Path) -> list[dict[str, Outcome | None]]:
    results = pair.call(rank_trains, folder)
    left = sorted(
        path.name for path in (folder / "broken" / "checkpoints" / ASKED["random"].trial_id).iterdir()
    )
    assert left == [STATE], left  # the last good one, and nothing half-written
    return results


def trained(ranks: list[dict[str, Outcome | None]], name: str) -> TrainingResult:
    result = ranks[0][name]
    assert result is not None
    assert (result.state, result.reason) == ("complete", None)
    assert isinstance(result.result, TrainingResult)
    return result.result


def losses(result: TrainingResult) -> list[tuple[float, float | None]]:
    return [(epoch.train_loss, epoch.test_loss) for epoch in result.epochs]


def counts(result: TrainingResult) -> list[tuple[int | None, int | None]]:
    return [(epoch.train_correct, epoch.test_correct) for epoch in result.epochs]


def test_one_device_trains_as_a_loop_written_by_hand(ranks):
    request = ASKED["alone"]
    workload = clouds()
    train, test = workload.dataset("train"), workload.dataset("test")
    torch.manual_seed(request.config.seed)
    model = workload.model()
    optimizer = torch.optim.SGD(model.parameters(), 0.2, momentum=0.9)
    for epoch in trained(ranks, "alone").epochs:
        order, total = shuffled(NUM_TRAIN, request.config.seed, epoch.epoch), 0.0
        model.train()
        for begin in range(0, NUM_TRAIN, 16):
            batch = default_collate([train[index] for index in order[begin : begin + 16]])
            loss = workload.loss(model, batch)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += float(loss.detach()) * len(batch[1])
        model.eval()
        every = default_collate([test[index] for index in range(NUM_TEST)])
        with torch.no_grad():
            correct = int(workload.metric(model(every[0].double()), every))
            test_loss = float(workload.loss(model, every))
        assert epoch.train_loss == pytest.approx(total / NUM_TRAIN, rel=1e-9)
        assert epoch.test_loss == pytest.approx(test_loss, rel=1e-9)
        assert epoch.test_correct == correct


@pytest.mark.promise("training")
@pytest.mark.parametrize("name", ["together", "accumulated", "sharded", "unsharded"])
def test_two_ranks_train_as_one_device_at_the_same_global_batch(ranks, name):
    """50 samples in steps of 16: gradients of every step, the uneven last one included, are the same."""
    alone, several = trained(ranks, "alone"), trained(ranks, name)
    assert [epoch.steps for epoch in several.epochs] == [4, 4, 4]
    for one, other in zip(losses(alone), losses(several), strict=True):
        assert other == pytest.approx(one, rel=1e-9)
    assert counts(several) == counts(alone)


def test_the_leader_drives_every_device_as_one_large_one(ranks):
    """DataParallel: the steps of one device at the global batch, by one process; the other rank sleeps."""
    alone, driven = trained(ranks, "alone"), trained(ranks, "driven")
    for one, other in zip(losses(alone), losses(driven), strict=True):
        assert other == pytest.approx(one, rel=1e-9)
    assert counts(driven) == counts(alone)
    assert {(epoch.steps, epoch.samples) for epoch in driven.epochs} == {(4, (50, 0))}
    assert driven.peak_memory_bytes == (1000, 1001)  # of each device, as the leader sees them
    assert driven.device_memory_bytes is None
    assert len(driven.device_utilization) == 2
    assert ranks[1]["driven"] == Outcome("complete")


def test_without_gpus_nobody_drives_several_devices(ranks):
    for results in ranks:
        found = results["driven on cores"]
        assert found is not None
        assert (found.state, found.reason) == ("invalid", "strategy dp exists on GPUs only")


def test_a_leader_that_fails_wakes_the_others(ranks):
    """They know why, and the groups are good for the next trial."""
    for results in ranks:
        broken = results["driven broken"]
        assert broken is not None
        assert (broken.state, broken.broken) == ("crashed", False)
        assert "rank 0: StopError: epoch 2" in (broken.reason or "")


def test_the_model_learns(ranks):
    epochs = trained(ranks, "together").epochs
    assert epochs[-1].train_loss < 0.5 * epochs[0].train_loss
    assert epochs[-1].test_accuracy is not None
    assert epochs[-1].test_accuracy > 0.6  # chance: a third


def test_every_sample_is_counted_once_however_uneven_the_ranks(ranks):
    for name, by_rank, num_test in (
        ("together", (25, 25), 23),
        ("odd", (22, 21), 9),
        ("few", (2, 1), 1),
    ):
        for epoch in trained(ranks, name).epochs:
            assert epoch.samples == by_rank
            assert epoch.test_samples == num_test
            assert 0 <= (epoch.test_correct or 0) <= num_test


@pytest.mark.promise("exact resume")
@pytest.mark.parametrize("kind", ["", "sharded ", "driven "])
def test_a_resumed_trial_continues_the_same_losses_bit_for_bit(ranks, kind):
    """With dropout, batch normalisation and random augmentation; killed while writing a checkpoint."""
    broken = ranks[0][f"{kind}broken"]
    assert broken is not None
    assert broken.state == "crashed"
    whole, resumed = trained(ranks, f"{kind}random"), trained(ranks, f"{kind}resumed")
    assert (whole.resumed_after, resumed.resumed_after) == (0, 2)
    assert losses(resumed) == losses(whole)
    assert counts(resumed) == counts(whole)


@pytest.mark.parametrize("name", ["half together", "half fused", "half sharded"])
def test_steps_that_overflow_on_one_rank_are_left_out_on_all(ranks, name):
    """The infinite gradients are of one sample: one device and two leave out the same step of each epoch."""
    alone, several = trained(ranks, "half alone"), trained(ranks, name)
    assert [epoch.skipped_steps for epoch in alone.epochs] == [1, 1, 1]
    assert [epoch.skipped_steps for epoch in several.epochs] == [1, 1, 1]
    for one, other in zip(losses(alone), losses(several), strict=True):
        assert other == pytest.approx(one, rel=0.02)  # fp16 has eleven bits
    assert several.epochs[-1].train_loss < 0.6 * several.epochs[0].train_loss


@pytest.mark.parametrize("name", ["together", "sharded", "driven", "half together", "half resumed"])
def test_a_kept_model_is_the_one_that_was_trained(ranks, folder, name):
    """Loaded again it has the test loss of the last epoch, whichever strategy it was trained under."""
    result, asked = trained(ranks, name), "half together" if name == "half resumed" else name
    request = ASKED[asked]
    place = folder / ("half" if name == "half resumed" else "whole")
    assert result.model == f"models/{request.trial_id}"
    workload = clouds(**request.config.workload.arguments)
    model, test = workload.model(), workload.dataset("test")
    load_model(model, place / result.model / "model.safetensors")
    every = default_collate([test[index] for index in range(NUM_TEST)])
    with torch.no_grad():
        loss = float(workload.loss(model.eval(), every))
    exact = request.config.setting.precision == "fp32"
    assert loss == pytest.approx(result.epochs[-1].test_loss, rel=1e-9 if exact else 0.01)
    assert not list((place / "models").glob(".unfinished-*"))


def test_a_model_is_kept_where_it_was_asked_for(ranks, folder):
    kept = {path.name for path in (folder / "whole" / "models").iterdir()}
    assert kept == {
        request.trial_id for request in ASKED.values() if request.training.save_model and not request.peers
    }
    assert trained(ranks, "random").model is None


def test_a_model_that_cannot_be_written_costs_nothing_else(ranks):
    result = trained(ranks, "nowhere")
    assert result.model is None
    assert "there is no results directory" in result.missing["model"]
    assert losses(result) == losses(trained(ranks, "together"))


@pytest.mark.parametrize(
    ("name", "whole", "epochs"), [("stopped", "together", 2), ("driven stopped", "driven", 1)]
)
def test_what_learns_too_little_is_stopped_on_every_rank(ranks, name, whole, epochs):
    result = trained(ranks, name)
    assert len(result.epochs) == epochs
    assert losses(result) == losses(trained(ranks, whole))[:epochs]
    assert result.stopped_by.epoch == epochs
    assert trained(ranks, whole).stopped_by is None
    assert result.model is None
    if ASKED[name].training.save_model:
        assert result.missing["model"] == "training was stopped after epoch 2"


def test_at_full_precision_no_step_is_left_out(ranks):
    assert {epoch.skipped_steps for epoch in trained(ranks, "together").epochs} == {0}


def test_a_resumed_trial_goes_on_with_the_scale_of_its_gradients(ranks, folder):
    """It begins at 2**16, and each of three epochs halves it once."""
    whole, resumed = trained(ranks, "half together"), trained(ranks, "half resumed")
    assert resumed.resumed_after == 2
    assert losses(resumed) == losses(whole)
    assert [epoch.skipped_steps for epoch in resumed.epochs] == [1, 1, 1]
    for place in ("whole", "half"):
        state = last_checkpoint(folder / place / "checkpoints" / ASKED["half together"].trial_id)
        assert state is not None
        assert state["scaler"]["scale"] == 2.0**13


def rank_updates_one_bad_shard() -> tuple[int, bool]:
    """On each rank: steps left out, and whether the weights stayed, where one rank's shard is infinite."""
    team = Communicators("gloo").team(BOTH, 60.0)
    assert team is not None
    setting, module = Setting(strategy="fsdp", precision="fp16"), torch.nn.Linear(4, 6)
    shard(module, team, setting, torch.device("cpu"))
    optimizer = torch.optim.SGD(module.parameters(), 0.1)
    nothing: Any = None
    stepper = Stepper(module, optimizer, nothing, nothing, setting, torch.device("cpu"))
    for parameter in module.parameters():
        parameter.grad = torch.ones_like(parameter)
    if team.rank == 1:
        module.weight.grad.to_local().fill_(float("inf"))
    shards: list[Any] = list(module.parameters())
    before = [parameter.to_local().clone() for parameter in shards]
    stepper.scaler.scale(torch.ones(()))
    stepper._update()
    same = [torch.equal(a, p.to_local()) for a, p in zip(before, shards, strict=True)]
    found = stepper.skipped_steps, all(same)
    release_group(module)
    return found


def test_an_overflow_in_one_shard_keeps_all_shards_as_they_were(pair):
    assert pair.call(rank_updates_one_bad_shard) == [(1, True), (1, True)]


def test_a_finished_trial_is_not_trained_again(ranks):
    again = trained(ranks, "again")
    assert again.resumed_after == 4
    assert losses(again) == losses(trained(ranks, "random"))


@pytest.mark.parametrize(
    ("name", "state", "reason"),
    [
        ("damaged", "invalid", "state.pt cannot be read"),
        ("no room", "oom", "rank 1: MemoryError: the model alone needs "),  # before it is made
    ],
)
def test_what_fails_on_one_rank_is_named_on_every_rank(ranks, name, state, reason):
    for results in ranks:
        result = results[name]
        assert result is not None
        assert result.state == state
        assert reason in (result.reason or "")


def test_samples_do_not_depend_on_who_reads_them(ranks):
    """Loader processes bring the same augmented samples as the rank itself."""
    assert losses(trained(ranks, "workers")) == losses(trained(ranks, "random"))[:2]


def test_only_the_ranks_of_the_trial_take_part(ranks):
    assert ranks[1]["alone"] is None
    assert ranks[1]["together"] == Outcome("complete")

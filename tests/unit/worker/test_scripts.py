"""A script's stopwatch without its process, and a trial of it without its ranks."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint
from torch.utils.data import BatchSampler, DataLoader, IterableDataset
from torch.utils.data.dataloader import _BaseDataLoaderIter

from raybench.errors import InvalidTrialError
from raybench.spec.knobs import Setting
from raybench.spec.study import MeasureSpec
from raybench.spec.workloads import ScriptSpec
from raybench.worker.failures import LateTrialError
from raybench.worker.scripts import script_trial
from raybench.worker.scripts.script_trial import ScriptTrial, _Rounds
from raybench.worker.scripts.stopwatch import About, BlockDone, Drawn, Launch, Order, Stopwatch
from raybench.worker.strategies.ddp import SYNC_BUFFERS
from raybench.workloads.first_step import _group_of_one
from tests.unit.studies import request

LAUNCH = Launch(
    rank=0, script="train.py", is_module=False, arguments=(), ddp_arguments={}, compression="none"
)


class Rank:
    """The other end: orders blocks of three steps of which one is discarded, and keeps what is sent."""

    def __init__(self) -> None:
        self.sent: list[BlockDone] = []

    def send(self, done: BlockDone) -> None:
        self.sent.append(done)

    def recv(self) -> Order:
        return Order("plain", 1, 2)


def stopwatch() -> tuple[Stopwatch, list[BlockDone]]:
    rank: Any = Rank()
    return Stopwatch(rank, LAUNCH), rank.sent


def sgd() -> torch.optim.Optimizer:
    return torch.optim.SGD([torch.nn.Parameter(torch.zeros(2))], lr=0.1)


def step(watch: Stopwatch, *optimizers: torch.optim.Optimizer) -> None:
    for each in optimizers:
        watch._before_step(each, (each,), {})
        watch._after_step(each, (each,), {})


def test_the_optimizer_of_the_next_stage_is_the_clock_from_its_third_step_on() -> None:
    watch, sent = stopwatch()
    first, second = sgd(), sgd()
    step(watch, *[first] * 4)
    assert len(sent) == 2  # the first step, and a block
    step(watch, *[second] * 5)
    assert len(sent) == 3


def test_optimizers_that_take_turns_are_one_step() -> None:
    watch, sent = stopwatch()
    first, second, third = sgd(), sgd(), sgd()
    step(watch, *[first, second, second, third] * 7)
    assert len(sent) == 3


def test_phases_that_nothing_entered_are_left_out() -> None:
    watch, sent = stopwatch()
    step(watch, *[sgd()] * 4)
    assert set(sent[1].phases) == {"optimizer", "other"}


@pytest.mark.parametrize(("prefetched", "paused_s", "steps"), [(4, 1e9, 4), (0, 1e9, 0), (4, 1e-12, 1)])
def test_loaders_read_ahead_while_the_script_waits(prefetched: int, paused_s: float, steps: int) -> None:
    watch, sent = stopwatch()
    one = sgd()
    step(watch, one)
    watch._prefetched = prefetched
    assert watch._block is not None
    watch._block.paused_s = paused_s
    step(watch, *[one] * 3)
    assert sent[1].steps_ahead == steps


# --- samples


@pytest.fixture
def of_a_loader(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Drawn]:
    """What is counted of the first batches of a loader."""
    for name in ("__next__", "_next_index"):  # put back at the end
        monkeypatch.setattr(_BaseDataLoaderIter, name, getattr(_BaseDataLoaderIter, name))
    monkeypatch.setattr(DataLoader, "__iter__", DataLoader.__iter__)
    watch, _ = stopwatch()
    watch._watch_loaders()

    def count(data: Any, number: int = 1, **how: Any) -> Drawn:
        watch._drawn = {}
        for _ in zip(range(number), DataLoader(data, **{"batch_size": 4} | how), strict=False):
            pass
        return watch._drawn

    return count


def test_a_batch_is_known_by_its_samples_and_by_what_is_in_them(
    of_a_loader: Callable[..., Drawn],  # puts back what is watched
) -> None:
    """A data set that a script divides among its ranks has other samples at the same places."""

    def known(data: Any, steps: int = 1, **how: Any) -> int | None:
        watch, _ = stopwatch()
        watch._watch_loaders()
        watch._steps = [{}] * steps
        next(iter(DataLoader(data, batch_size=4, **how)))
        return watch._first_samples

    whole = torch.arange(16)
    assert known(whole) == known(whole) != known(whole[8:])
    assert known(whole, sampler=range(4, 8)) != known(whole)
    assert known(torch.zeros(16), sampler=range(4, 8)) != known(torch.zeros(16))
    assert known(whole, steps=0) is None  # as one that is looked at before the training


@pytest.fixture
def drawn(of_a_loader: Callable[..., Drawn]) -> Callable[..., int]:
    """Of that the samples."""
    return lambda data, **how: sum(samples for _, samples in of_a_loader(data, **how).values())


IMAGE = torch.zeros(3, 8, 8)


@pytest.mark.parametrize(
    ("sample", "how"),
    [
        ((IMAGE, 1), {}),
        ((IMAGE, 1), {"collate_fn": lambda batch: batch}),
        ((IMAGE, {"boxes": 1}), {"collate_fn": lambda batch: tuple(zip(*batch, strict=True))}),
        ({"image": IMAGE}, {"collate_fn": lambda batch: batch}),
        (("one text", "another"), {}),
        (IMAGE, {"collate_fn": lambda batch: torch.stack(batch).transpose(0, 1)}),
    ],
    ids=["tensors", "pairs as they are", "a detector's", "dicts as they are", "texts", "batch second"],
)
def test_samples_are_those_that_the_loader_asks_for(
    drawn: Callable[..., int], sample: Any, how: dict[str, Any]
) -> None:
    assert drawn([sample] * 8, **how) == 4


@pytest.mark.parametrize(
    ("batch", "samples"),
    [
        (torch.zeros(5, 3), 5),
        ((torch.zeros(5, 3), torch.zeros(5)), 5),
        ({"x": torch.zeros(5, 2)}, 5),
        ([(IMAGE, 1)] * 5, 0),
        (([IMAGE] * 5, [1] * 5), 0),
    ],
    ids=["a tensor", "a pair", "a dict", "pairs as they are", "a detector's"],
)
def test_a_batch_that_the_data_set_gives_whole_is_counted_by_its_first_tensor(
    drawn: Callable[..., int], batch: Any, samples: int
) -> None:
    assert drawn([batch], batch_size=None, collate_fn=lambda batch: batch) == samples


@pytest.mark.parametrize(
    ("data", "how", "samples", "epoch"),
    [
        ([torch.zeros(5, 3)] * 8, {}, 5, 0),
        (torch.zeros(8, 3), {"sampler": BatchSampler(range(8), 4, drop_last=False)}, 4, 8),
    ],
    ids=["whole batches", "samples by their numbers"],
)
def test_an_epoch_is_not_the_number_of_batches_that_a_data_set_gives(
    of_a_loader: Callable[..., Drawn], data: Any, how: dict[str, Any], samples: int, epoch: int
) -> None:
    (((_, length), counted),) = of_a_loader(data, batch_size=None, **how).items()
    assert (length, counted) == (epoch, (1, samples))


def test_what_an_evaluation_draws_is_of_no_step(drawn: Callable[..., int]) -> None:
    with torch.no_grad():
        assert drawn([IMAGE] * 8) == 0


class Streamed(IterableDataset[torch.Tensor]):
    def __iter__(self) -> Iterator[torch.Tensor]:
        return iter([IMAGE] * 3)


def test_the_last_batch_of_a_stream_is_what_it_gives(drawn: Callable[..., int]) -> None:
    assert drawn(Streamed(), number=2, batch_size=2) == 3


def test_a_stream_gives_as_many_as_its_loader_collates(drawn: Callable[..., int]) -> None:
    """Texts are padded to (length, batch), say."""
    lengths = iter((3, 2))  # the second has as many as the batch by chance

    def padded(batch: list[torch.Tensor]) -> torch.Tensor:
        return torch.stack(batch)[:, : next(lengths)].transpose(0, 1)

    assert drawn(Streamed(), number=2, batch_size=2, collate_fn=padded) == 4


TRAIN, OTHER, TEST = (1, 1000), (2, 1000), (3, 100)  # data sets, each with its length


def batches(*samples: int, of: tuple[int, int] = TRAIN) -> Drawn:
    return {of: (len(samples), sum(samples))} if samples else {}


EVALUATION = batches(*[8] * 13, of=TEST)


@pytest.mark.parametrize(
    ("steps", "mean", "full"),
    [
        ([batches(8)] * 4, 8, 8),
        ([batches(8), {}, {}, {}], 8, 8),  # once, and used in all
        ([batches(8), batches(8), batches(8) | EVALUATION, batches(8)], 8, 8),
        ([{}, {}, {}, batches(*[8] * 100, of=TEST)], 0, 0),
        ([{}, {}, {}], 0, 0),
        ([batches(8), *[batches(8), batches(4) | EVALUATION, batches(8)] * 4], 20 / 3, 8),  # epochs of 20
        ([batches(8, 8), *[batches(8)] * 5], 8, 8),  # one is looked at
        ([batches(8, 8), *[batches(8), batches(8), {}, batches(8, 8)] * 4], 8, 8),  # read ahead
        ([batches(8, 8, 8), *[batches(8, 8)] * 5], 16, 16),  # accumulated
        ([batches(4), *[batches(4), batches(4), batches(40)] * 4], 16, 4),  # of differing size
        ([batches(8), *[batches(8), batches(32, of=OTHER)] * 4], 20, 32),  # tasks in turn
        ([{}, *[batches(8)] * 4], 8, 8),  # a first step without a batch
        ([*[batches(8, 8, 8, 8), {}, {}, {}] * 4], 0, 0),  # of several steps at once: loaders do not tell
        ([*[batches(8, 8), {}] * 9], 0, 0),
        ([batches(0)] * 9, 0, 0),  # of which it does not tell how many samples they have
        ([*[batches(8)] * 10, batches(*[8] * 20), *[batches(8)] * 5], 8, 8),  # an evaluation of the same
        ([*[batches(8)] * 10, batches(8) | batches(64, 64, of=TEST), *[batches(8)] * 5], 8, 8),  # a short one
        ([batches(8), *[batches(8), batches(8) | batches(4, of=OTHER)] * 4], 10, 12),  # more in every second
        ([batches(8, of=(task, 1000)) for task in range(9)], 8, 8),  # tasks in turn, each of them rare
        ([batches(*[8] * 100), {}, {}, {}], 0, 0),  # all are kept, and taken apart
        ([batches(8, of=TEST), *[batches(0)] * 3], 0, 0),  # one of another set was looked at
    ],
)  # fmt: skip
def test_samples_of_a_step(steps: list[Drawn], mean: float, full: int) -> None:
    watch, _ = stopwatch()
    one = sgd()
    for each in steps:
        watch._drawn = each
        step(watch, one)
    about = watch._about()
    assert (about.samples_per_step, about.full_step) == (pytest.approx(mean), full)
    assert about.epoch_samples == 1000 or not mean


def test_a_step_of_each_group_of_parameters_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """As DeepSpeed's ZeRO steps: without a backward pass between them."""
    monkeypatch.setattr(torch.autograd, "backward", torch.autograd.backward)  # put back at the end
    watch, sent = stopwatch()
    watch._watch_passes()
    one = sgd()
    for _ in range(7):
        torch.ones(1, requires_grad=True).exp().backward()
        step(watch, one, one)
    assert len(sent) == 3
    assert watch._about().passes == 1
    assert watch._phase == "other"


def test_a_step_that_is_captured_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.autograd, "backward", torch.autograd.backward)  # put back at the end
    watch, _ = stopwatch()
    watch._watch_passes()
    one = sgd()
    step(watch, one)
    watch._gpu = torch.device("cuda")
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
    with pytest.raises(InvalidTrialError, match="CUDA graph"):
        torch.ones(1, requires_grad=True).exp().backward()


def test_backward_passes_are_micro_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    """One with its activations computed again is one."""
    monkeypatch.setattr(torch.autograd, "backward", torch.autograd.backward)  # put back at the end
    watch, _ = stopwatch()
    watch._watch_passes()
    layer, one = torch.nn.Linear(2, 2), sgd()
    for _ in range(3):
        for _ in range(4):
            inputs = torch.ones(1, 2, requires_grad=True)
            checkpoint(layer, inputs, use_reentrant=True).sum().backward()
        step(watch, one)
    assert watch._about().passes == 4


def test_a_batch_has_one_pass_that_frees_its_graph(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two micro-batches of two losses each, with or without DDP, of one batch that was drawn once."""
    monkeypatch.setattr(torch.autograd, "backward", torch.autograd.backward)  # put back at the end
    watch, _ = stopwatch()
    watch._watch_passes()
    watch._drawn, one = batches(8), sgd()
    for _ in range(3):
        for _ in range(2):
            loss = torch.ones(1, requires_grad=True).exp()
            loss.backward(retain_graph=True)
            loss.backward()
        step(watch, one)
    assert (watch._about().passes, watch._about().samples_per_step) == (2, 16)


# --- trials


ABOUT = About(
    world_size=2, has_ddp=True, on_gpu=False, unswitched=None, samples_per_step=8.0, full_step=8, passes=1,
    epoch_samples=None, first_samples=None, num_parameters=1, overridden={}, gradient_bytes=4,
    bucket_bytes=(), torch_bytes=None, device_bytes=None,
)  # fmt: skip
QUIET, MORE_S = 2, 0.1  # collectives of a step: DDP's; what is gathered now and then takes


def block(
    step_s: float, collectives: int, steps_ahead: int = 0, *, gathers: int = 0, more_s: float = MORE_S
) -> BlockDone:
    """Six steps, the first of which gather, with a collective and time of their own."""
    more = np.arange(6) < gathers
    times = step_s + more_s * more
    return BlockDone(times, {"other": times}, collectives + more.astype(np.int64), steps_ahead, ABOUT)


@pytest.fixture
def trial(monkeypatch: pytest.MonkeyPatch) -> Callable[..., ScriptTrial]:
    """Of two ranks that are one; ``blocks`` gives what comes of each order."""
    monkeypatch.setattr(script_trial, "decide", lambda rounds, *_: SimpleNamespace(
        half_width=None, stop="steps" if len(rounds) >= 4 else None
    ))  # fmt: skip

    def make(blocks: Callable[[Order], BlockDone] | None = None, **fields: Any) -> ScriptTrial:
        team: Any = SimpleNamespace(
            size=2,
            ranks=(0, 1),
            rank=0,
            leads=True,
            gather=lambda each: [each] * 2,
            from_leader=lambda each: each,
        )
        device: Any = SimpleNamespace(kind="cpu", block_seconds=0.1)
        workload = ScriptSpec.model_validate({"script": "train.py"} | fields)
        measure = MeasureSpec(steps=6)
        made = ScriptTrial(
            request(workload=workload, setting=Setting(batch_size=8), measure=measure), team, device
        )
        made._load = SimpleNamespace(of_round=lambda cores: (None, None))  # type: ignore[assignment]
        made._process = SimpleNamespace(leave=lambda seconds: None)  # type: ignore[assignment]
        if blocks is not None:
            made._block = lambda order: [blocks(order)] * 2  # type: ignore[method-assign]
        return made

    return make


def test_ranks_on_two_nodes_get_what_torchrun_gives_them(
    trial: Callable[..., ScriptTrial], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ranks 0 and 2 are on one node, 1 and 3 on another; each has two GPUs."""
    monkeypatch.setattr(script_trial, "_meeting_point", lambda: ("10.0.0.1", 29500))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,5")
    asked, found = trial(), list[dict[str, str]]()
    asked._over = "one trial"
    gpus = [("one", "4"), ("other", "4"), ("one", "5"), ("other", "5")]
    for rank, (host, gpu) in enumerate(gpus):
        monkeypatch.setattr(script_trial, "host_id", lambda host=host: host)
        on: Any = SimpleNamespace(kind="cuda", torch_device=torch.device("cuda", int(gpu) - 4))
        team: Any = SimpleNamespace(size=4, rank=rank, gather=lambda own: gpus, from_leader=lambda own: own)
        asked._team, asked._device = team, on
        found.append(asked._variables())
    names = ("RANK", "LOCAL_RANK", "GROUP_RANK", "CUDA_VISIBLE_DEVICES")
    assert [tuple(each[name] for name in names) for each in found] == [
        ("0", "0", "0", "4,5"), ("1", "0", "1", "4,5"), ("2", "1", "0", "4,5"), ("3", "1", "1", "4,5")
    ]  # fmt: skip
    names = ("WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
    assert {tuple(each[name] for name in names) for each in found} == {("4", "2", "2", "10.0.0.1", "29500")}


@pytest.mark.parametrize(("on_gpu", "kind"), [(False, "cuda"), (True, "cpu")])
def test_a_script_that_trains_on_another_device_is_refused(
    trial: Callable[..., ScriptTrial], on_gpu: bool, kind: Any
) -> None:
    """Its figures would stand under the name of one that it does not use."""
    made = trial()
    made._device = SimpleNamespace(kind=kind)  # type: ignore[assignment]
    with pytest.raises(InvalidTrialError, match=f"this study is of {kind}"):
        made._check([replace(ABOUT, on_gpu=on_gpu)] * 2)


def test_the_study_s_knob_replaces_an_argument_of_ddp_by_its_older_name_too(
    trial: Callable[..., ScriptTrial], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("__init__", "forward", "register_comm_hook", "_register_builtin_comm_hook"):  # put back
        monkeypatch.setattr(DistributedDataParallel, name, getattr(DistributedDataParallel, name))
    rank: Any = Rank()
    watch = Stopwatch(rank, trial(ddp_knobs=["broadcast_buffers"])._launch())
    watch._watch_ddp()
    with _group_of_one():
        made = DistributedDataParallel(torch.nn.Linear(2, 2), broadcast_buffers=False)
    assert getattr(made, SYNC_BUFFERS)  # the knob's default
    assert watch._overridden == {"broadcast_buffers": "False"}


def measured(trial: ScriptTrial) -> _Rounds:
    return trial._measure(["ddp", "local"], 0.01, lambda progress: None)


def levels(found: _Rounds) -> set[tuple[str, float]]:
    return {(each.variant, round(each.slowest_s, 6)) for one in found.rounds for each in one.blocks}


def and_gathers(more_s: float) -> Callable[[Order], BlockDone]:
    """Blocks of a script that gathers in two of six steps, under either variant."""

    def blocks(order: Order) -> BlockDone:
        step_s, collectives = (0.012, QUIET) if order.variant == "ddp" else (0.010, 0)
        return block(step_s, collectives, gathers=2, more_s=more_s)

    return blocks


def test_steps_that_gather_now_and_then_and_last_longer_are_steps_and_no_communication(
    trial: Callable[..., ScriptTrial],
) -> None:
    """As to evaluate, which one device does too, with nobody to gather from."""
    asked = trial(and_gathers(MORE_S))
    found = measured(asked)
    assert levels(found) == {("ddp", round(0.012 + MORE_S / 3, 6)), ("local", 0.010)}
    assert {each.num_steps for each in found.phases} == {4, 6}
    assert asked._has_long_steps()
    found.drop("local")
    assert levels(found) == {("ddp", round(0.012 + MORE_S / 3, 6))}
    assert {each.variant for each in [*found.phases, *found.step_times]} == {"ddp"}


def test_steps_that_gather_now_and_then_and_last_as_long_leave_communication_measured(
    trial: Callable[..., ScriptTrial],
) -> None:
    """As to log; and where more of DDP's are in some steps, as of a GAN, none is left out."""
    asked = trial(and_gathers(0.0))
    assert levels(measured(asked)) == {("ddp", 0.012), ("local", 0.010)}
    assert not asked._has_long_steps()

    def takes_turns(order: Order) -> BlockDone:
        return block(0.01, 1, gathers=2) if order.variant == "ddp" else block(0.04, 0)

    of_gan = trial(takes_turns)
    assert levels(measured(of_gan)) == {("ddp", round(0.01 + MORE_S / 3, 6)), ("local", 0.04)}
    assert not of_gan._has_long_steps()


@pytest.mark.parametrize("gathers", [3, 4])
def test_what_many_steps_gather_is_a_part_of_them(trial: Callable[..., ScriptTrial], gathers: int) -> None:
    """Of half of the steps, or most."""

    def blocks(order: Order) -> BlockDone:
        return block(*((0.012, QUIET) if order.variant == "ddp" else (0.010, 0)), gathers=gathers)

    more_s, asked = MORE_S * gathers / 6, trial(blocks)
    expected = {("ddp", round(0.012 + more_s, 6)), ("local", round(0.010 + more_s, 6))}
    assert levels(measured(asked)) == expected
    assert asked._usual_collectives("local") == 1  # so that skew is not seen


def test_steps_that_average_weights_now_and_then_are_steps_of_several_devices(
    trial: Callable[..., ScriptTrial],
) -> None:
    """As local SGD, two of whose six steps send: the others were all that counted."""
    asked = trial(lambda order: block(0.01, 0, gathers=2))
    assert levels(measured(asked)) == {("ddp", round(0.01 + MORE_S / 3, 6)), ("local", 0.01)}
    assert asked._warm_up([ABOUT] * 2)[0] == ["ddp"]
    assert "now and then" in asked._missing["local"]


def test_a_block_all_of_whose_steps_gather_leaves_its_round_out(trial: Callable[..., ScriptTrial]) -> None:
    orders = list[Order]()

    def blocks(order: Order) -> BlockDone:
        orders.append(order)
        return block(0.01, 1, gathers=6 if len(orders) == 3 else 0)

    found = trial(blocks)._measure(["local"], 0.01, lambda progress: None)
    assert levels(found) == {("local", 0.01)}
    assert len(orders) == 5


def test_one_step_that_gathers_more_decides_nothing_before_the_rounds(
    trial: Callable[..., ScriptTrial],
) -> None:
    """Of two steps without transfers the second one logs, with more collectives than DDP has."""

    def blocks(order: Order) -> BlockDone:
        called = np.array([0, 3]) if order.variant == "local" else np.array([1, 1])
        return replace(block(0.01, 0), collectives=called)

    assert trial(blocks)._warm_up([ABOUT] * 2)[0] == ["ddp", "local"]


def test_the_same_steps_count_on_one_device(trial: Callable[..., ScriptTrial]) -> None:
    """Whether it gathers in them or, with nobody to gather from, does not."""
    found = trial(lambda order: block(0.01, 1, gathers=2))._measure(["plain"], 0.01, lambda progress: None)
    assert levels(found) == {("plain", round(0.01 + MORE_S / 3, 6))}


@pytest.mark.parametrize(("in_local", "variants"), [(0, 2), (QUIET - 1, 2), (QUIET, 1)])
def test_steps_that_keep_gradients_are_measured_where_they_call_fewer_collectives(
    trial: Callable[..., ScriptTrial], in_local: int, variants: int
) -> None:
    """A script may have collectives of its own in every step, as Lightning; the others are DDP's."""
    asked = trial(lambda order: block(0.01, QUIET if order.variant == "ddp" else in_local))
    assert len(asked._warm_up([ABOUT] * 2)[0]) == variants
    assert ("local" in asked._missing) == (variants == 1)


def test_steps_of_ddp_that_send_nothing_are_told_from_ranks_that_train_alone(
    trial: Callable[..., ScriptTrial],
) -> None:
    for has_ddp, words in ((True, "as under no_sync"), (False, "each rank trains alone")):
        about = replace(ABOUT, has_ddp=has_ddp)
        asked = trial(lambda order, about=about: replace(block(0.01, 0), about=about))
        with pytest.raises(InvalidTrialError, match=words):
            asked._until_steady("ddp")


def raised_after(rounds: int) -> Callable[[Order], BlockDone]:
    """Of so many rounds, and a script that is too slow for more."""
    left: Iterator[int] = iter(range(2 * rounds))

    def blocks(order: Order) -> BlockDone:
        if next(left, None) is None:
            raise LateTrialError("slow")
        return block(9.0, QUIET if order.variant == "ddp" else 0)

    return blocks


def test_rounds_that_are_enough_outlive_the_time_out(trial: Callable[..., ScriptTrial]) -> None:
    found = measured(trial(raised_after(3)))
    assert (len(found.rounds), found.stopped_by) == (3, "ended")
    with pytest.raises(LateTrialError):
        measured(trial(raised_after(2)))


def test_steps_that_the_loaders_have_read_ahead_are_discarded(trial: Callable[..., ScriptTrial]) -> None:
    orders = list[Order]()

    def blocks(order: Order) -> BlockDone:
        orders.append(order)
        return block(0.01, QUIET if order.variant == "ddp" else 0.0, steps_ahead=3 * (len(orders) == 2))

    measured(trial(blocks))
    assert [order.discarded for order in orders] == [2, 2, *[3] * 6]


@pytest.mark.parametrize(
    ("counted", "args", "samples"),
    [
        (8.0, "", 16.0),
        (8.0, "--bs {batch_size}", 16.0),
        (24.0, "--bs {batch_size}", 48.0),  # three micro-batches
        (3.0, "", 6.0),
        (0.0, "--bs {batch_size}", 16.0),
        (2.0, "--bs {batch_size}", "--samples-per-step"),
        (4.0, "--bs {batch_size}", "{global_batch_size}"),  # half of it on each of two
        (0.0, "", "--samples-per-step"),
    ],
)
def test_counted_samples_are_whole_micro_batches_of_the_typed_size(
    trial: Callable[..., ScriptTrial], counted: float, args: str, samples: float | str
) -> None:
    about = [replace(ABOUT, samples_per_step=counted, full_step=int(counted))] * 2
    if isinstance(samples, float):
        assert trial(args=args)._samples(about) == (samples, samples)
        return
    with pytest.raises(InvalidTrialError, match=re.escape(samples)):
        trial(args=args)._samples(about)
    assert trial(args=args, samples_per_step=8)._samples(about) == (16.0, 16)


def test_one_rank_may_read_for_all(trial: Callable[..., ScriptTrial]) -> None:
    about = [replace(ABOUT, samples_per_step=each, full_step=int(each)) for each in (64.0, 0.0)]
    assert trial(args="--bs {batch_size}")._samples(about) == (64.0, 64)


def test_without_a_loader_samples_are_the_typed_size_times_the_passes(
    trial: Callable[..., ScriptTrial],
) -> None:
    about = [replace(ABOUT, samples_per_step=0.0, full_step=0, passes=4)] * 2
    assert trial(args="--bs {batch_size}")._samples(about) == (64.0, 64)
    assert trial(args="--bs {global_batch_size}")._samples(about) == (16.0, 16)

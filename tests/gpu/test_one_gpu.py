"""Trials on one GPU: steps, memory that runs out, a sound trial after it, the largest batch; NCCL alone."""

from __future__ import annotations

import statistics
from typing import Any

import pytest
import torch
import torch.distributed as dist

from raybench.analysis.stats.rounds import mean_rank_s
from raybench.records.messages import Outcome
from raybench.records.requests import TrialRequest
from raybench.spec.knobs import Setting
from raybench.worker.devices import open_device
from raybench.worker.devices.cuda import CUDADevice, _content
from raybench.worker.failures import is_out_of_memory
from raybench.worker.steps.as_if import Hold, StreamChannel
from raybench.worker.strategies.ddp import HookSwitch, wrap
from tests.gpu import needs_gpus
from tests.gpu.trials import TIMEOUT_S, Worker, run_all, steps
from tests.ranks.ranks import run_ranks
from tests.ranks.trials import complete

pytestmark = needs_gpus(1)
MIB, GIB = 2**20, 2**30

REQUESTS: dict[str, TrialRequest] = {
    "fp32": steps(1),
    "oom": steps(1, {"mib": 1024.0}, batch_size=16384),  # 16 TiB
    "default": steps(1, precision="default", channels_last=True, cudnn_benchmark=True),
    "bf16": steps(1, precision="bf16", role="search"),
    "compiled": steps(1, compile=True, role="search"),
}
Found = tuple[dict[str, Outcome], dict[str, int]]


@pytest.fixture(scope="module")
def one() -> Found:
    ((found, left),) = run_ranks(run_all, 1, REQUESTS, timeout_s=280)
    for name, result in found.items():
        print(name, result.state, result.reason)
    return found, left


@pytest.mark.parametrize("name", [name for name in REQUESTS if name != "oom"])
def test_steps_are_measured_with_what_the_device_tells(name, one):
    found = complete(one[0][name])
    assert len(found.rounds) >= 6
    steps_s = [mean_rank_s(block) for each in found.rounds for block in each.blocks]
    assert max(steps_s) < 3 * statistics.median(steps_s)
    assert all(each.clock_mhz[0] is None or each.clock_mhz[0] > 100 for each in found.rounds)
    assert found.peak_memory_bytes is not None
    assert found.device_memory_bytes is not None
    assert found.memory_limit_bytes is not None
    assert 0 < found.peak_memory_bytes[0] < found.device_memory_bytes[0] < found.memory_limit_bytes[0] / 2
    assert found.energy_joules == found.plain_energy_joules
    if found.energy_joules is not None:  # within what any GPU draws
        step_s = sum(steps_s) / len(steps_s)
        assert 5 * step_s < found.energy_joules < 3000 * step_s
    if REQUESTS[name].role == "scaling":
        assert found.phases
        assert found.matrix_peak_flops_per_s is not None
        assert found.matrix_peak_flops_per_s > 1e12
        assert found.flops_per_step is not None
        assert 0 < found.flops_per_step / min(steps_s) < found.matrix_peak_flops_per_s
        assert found.update_s is not None
        assert found.fused_update_s is not None
        assert 0 < found.fused_update_s < 1.2 * found.update_s


def test_nothing_of_a_trial_stays_allocated(one):
    """Workspaces of cuBLAS do; the activations of the step without memory are more."""
    assert all(size < 160 * MIB for size in one[1].values()), one[1]


def _nccl_alone() -> dict[str, Any]:
    worker = Worker()
    team = worker.communicators.team((0,), TIMEOUT_S)
    assert team is not None
    before = worker.device.available_memory()
    team.use_once(worker.device)
    after = worker.device.available_memory()
    values = torch.arange(4.0, device=worker.device.torch_device)
    dist.all_reduce(values, group=team.data)
    team.broadcast([values])
    backend = dist.get_backend(team.data)
    assert isinstance(worker.device, CUDADevice)
    assert worker.device._nccl_log is not None
    log = _content(worker.device._nccl_log)
    answer: dict[str, Any] = {"backend": backend, "values": values.tolist(), "log": log}
    if before is not None and after is not None:
        answer["taken"] = after.taken_bytes - before.taken_bytes
    worker.communicators.drop_team()
    again = worker.communicators.team((0,), TIMEOUT_S)  # a group that was destroyed is made anew
    assert again is not None
    again.use_once(worker.device)
    worker.communicators.drop_team()
    return answer


def test_nccl_with_one_rank() -> None:
    (answer,) = run_ranks(_nccl_alone, 1)
    print(answer)
    assert answer["backend"] == "nccl"
    assert answer["values"] == [0.0, 1.0, 2.0, 3.0]
    assert "NCCL INFO" in answer["log"]


FORWARD_S, BACKWARD_S, SENT_S = 0.03, 0.01, 0.025  # the second is of each of two layers


class _Sleeps(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, values: torch.Tensor, weight: torch.Tensor, cycles: float) -> Any:
        ctx.save_for_backward(weight)
        ctx.cycles = cycles
        torch.cuda._sleep(int(FORWARD_S / 2 * cycles))
        return values.clone()

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> Any:
        torch.cuda._sleep(int(BACKWARD_S * ctx.cycles))
        return gradients[0], torch.zeros_like(ctx.saved_tensors[0]), None


class _Layer(torch.nn.Module):
    def __init__(self, cycles: float) -> None:
        super().__init__()
        self.weight, self._cycles = torch.nn.Parameter(torch.zeros(2**19)), cycles

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        slept: torch.Tensor = _Sleeps.apply(values, self.weight, self._cycles)
        return slept


def _sent_on_a_stream_of_its_own() -> list[float]:
    """Median steps of DDP on one rank, without transfers and with buckets that are held on a stream."""
    worker = Worker()
    device = worker.device
    assert isinstance(device, CUDADevice)
    device.tune_pause()
    cycles, found = device._cycles_per_s, list[float]()
    team = worker.communicators.team((0,), TIMEOUT_S)
    assert team is not None
    switch = HookSwitch()

    sent = torch.futures.Future[Any]()
    sent.set_result(None)
    channel = StreamChannel(device, lambda buffer: sent)

    def send(_, bucket):  # type: ignore[no-untyped-def]
        return channel.begin(bucket.buffer(), Hold(SENT_S, SENT_S))

    model = torch.nn.Sequential(_Layer(cycles), _Layer(cycles)).to(device.torch_device)
    wrapper = wrap(model, team, Setting(bucket_cap_mb=1), device, switch)
    batch, watch = torch.ones(8, device="cuda", requires_grad=True), device.stopwatch()
    for hook in (switch.now, send):
        switch.now = hook
        watch.start()
        for _ in range(13):
            wrapper(batch).sum().backward()
            model.zero_grad()
            watch.lap()
        found.append(statistics.median(watch.read()[3:]))
    worker.communicators.drop_team()
    return found


def test_a_step_ends_when_its_transfers_do_on_a_stream_of_their_own() -> None:
    """Ready 10 and 20 ms after the backward pass began; sent from 10 to 35 and from 35 to 60."""
    ((without, with_transfers),) = run_ranks(_sent_on_a_stream_of_its_own, 1)
    compute_s = FORWARD_S + 2 * BACKWARD_S
    assert without == pytest.approx(compute_s, rel=0.05)
    assert with_transfers == pytest.approx(FORWARD_S + BACKWARD_S + 2 * SENT_S, rel=0.05)


def _without_room_for_libraries() -> list[tuple[bool, str]]:
    """What libraries say that find no memory beside torch's allocator, and whether it is known as that."""
    open_device(torch.device("cuda", 0))
    small, kept = torch.ones(64, 64, device="cuda"), torch.empty(256 * MIB, dtype=torch.uint8, device="cuda")
    held, size = [], GIB
    while size >= 2 * MIB:
        try:
            held.append(torch.empty(size, dtype=torch.uint8, device="cuda"))
        except torch.OutOfMemoryError:
            size //= 2
    del kept  # the allocator has some left, the GPU has none
    group, said = dist.new_group([0], backend="nccl"), list[tuple[bool, str]]()
    for work in (
        lambda: dist.all_reduce(small, group=group),  # type: ignore[arg-type]
        lambda: small @ small,
        lambda: torch.linalg.svd(small),
        lambda: torch.fft.fft(small),
    ):
        try:
            work()
            torch.cuda.synchronize()
        except RuntimeError as error:
            said.append((is_out_of_memory(error), f"{type(error).__name__}: {error}"))
    del held
    torch.cuda.empty_cache()
    return said


def test_libraries_that_find_no_memory_are_out_of_memory() -> None:
    (said,) = run_ranks(_without_room_for_libraries, 1)
    for _, text in said:
        print(text)
    if not said:
        pytest.skip("every library still found memory here")
    assert all(known for known, _ in said), said

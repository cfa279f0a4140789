"""Strategies, compilation and checkpointing on two real gloo ranks; gradients against one device's."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.distributed as dist
from packaging.version import Version
from torch import nn

from raybench.analysis.findings.finding import FindingName
from raybench.analysis.parity import parity_verdict
from raybench.records.messages import Outcome
from raybench.records.requests import StepsRequest
from raybench.spec.knobs import Setting
from raybench.spec.study import MeasureSpec, OptimizerSpec
from raybench.spec.workloads import FactorySpec
from raybench.worker.communicators import Communicators, Team
from raybench.worker.group_cache import GroupCache
from raybench.worker.strategies import transforms
from raybench.worker.strategies.ddp import Hook, no_transfer
from raybench.worker.strategies.models import StrategyModels
from raybench.worker.strategies.stepper import Stepper, sample_weight
from raybench.workloads import Workload, build
from tests.ranks.ranks import Ranks
from tests.ranks.trials import ALL, BOTH, CPU, SHORT, complete, serve_trial
from tests.support.alone import findings
from tests.support.planted import to_record
from tests.support.worker_rank import worker_rank
from tests.unit import studies

TIMEOUT_S = 150.0  # compiling takes ten times as long beside other tests
# Float32, sums of up to 16 samples in another order: a few units in the last of 24 bits.
RELATIVE, ABSOLUTE = 1e-5, 1e-7


class _Block(nn.Module):
    def __init__(self, norm: str, dropout: float) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(16) if norm == "batch" else nn.LayerNorm(16)
        self.linear, self.drop = nn.Linear(16, 16), nn.Dropout(dropout)

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        return values + self.drop(torch.relu(self.linear(self.norm(values))))


class _Net(nn.Module):
    def __init__(self, norm: str, dropout: float) -> None:
        super().__init__()
        self.stem, self.head = nn.Linear(16, 16), nn.Linear(16, 4)
        self.blocks = nn.ModuleList(_Block(norm, dropout) for _ in range(2))

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        values = self.stem(values)
        for block in self.blocks:
            values = block(values)
        result: torch.Tensor = self.head(values)
        return result


class _Residual:
    """A small residual network that fails, or changes its shapes, when told."""

    def __init__(
        self,
        norm: str = "layer",
        dropout: float = 0.0,
        fault: str = "",
        wrapper: str = "",
        after: int = 0,
        shapes_after: int = 10**9,
    ) -> None:
        self._norm, self._dropout, self._fault, self._wrapper = norm, dropout, fault, wrapper
        self._after, self._shapes_after, self._calls = after, shapes_after, 0
        self._rank = worker_rank()

    def model(self) -> nn.Module:
        if self._norm == "none":
            return nn.Sequential(nn.Linear(16, 8), nn.Linear(8, 4))
        return _Net(self._norm, self._dropout)

    def batch(self, size: int, generator: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
        return torch.randn(size, 16, generator=generator), torch.randn(size, 4, generator=generator)

    def loss(self, model: nn.Module, batch: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
        inputs, targets = batch
        wrapper = "fsdp" if hasattr(model, "set_requires_gradient_sync") else "bare"
        self._calls += wrapper == self._wrapper or not self._wrapper
        if self._calls > self._shapes_after:
            inputs, targets = inputs[1:], targets[1:]
        if self._fault and wrapper == self._wrapper and self._calls > self._after:
            if self._fault == "memory":
                raise MemoryError("planted: no memory")
            if self._rank == 1:
                raise ValueError("planted on rank 1")
        return nn.functional.mse_loss(model(inputs), targets)


class _Images(_Residual):
    """A small convolutional network, which asserts that its images keep the layout asked for."""

    def __init__(self, layout: str) -> None:
        super().__init__()
        self._layout = {"last": torch.channels_last, "first": torch.contiguous_format}[layout]

    def model(self) -> nn.Module:
        convolutions = [nn.Conv2d(4, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 8, 3)]
        return nn.Sequential(nn.Sequential(*convolutions), nn.Flatten(), nn.Linear(8 * 16, 4))

    def batch(self, size: int, generator: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
        images = torch.randn(size, 4, 8, 8, generator=generator)
        return images, torch.randn(size, 4, generator=generator)

    def loss(self, model: nn.Module, batch: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
        inner = getattr(model, "module", model)
        seen: list[bool] = []
        hook = inner[0].register_forward_hook(
            lambda _, inputs, output: seen.extend(
                each.is_contiguous(memory_format=self._layout) for each in (*inputs, output)
            )
        )
        loss = super().loss(model, batch)
        hook.remove()
        assert seen == [True, True], seen
        return loss


class _Silent(_Residual):
    """Its gradients never travel."""

    def communication_hook(self, group: dist.ProcessGroup) -> tuple[None, Hook]:
        return None, no_transfer


def residual(**arguments: Any) -> _Residual:
    return _Residual(**arguments)


def images(layout: str) -> _Residual:
    return _Images(layout)


def silent() -> _Residual:
    return _Silent()


def _request(workload: dict[str, Any] | None = None, **fields: Any) -> StepsRequest:
    setting = fields.pop("setting", {})
    whole = setting.get("strategy", "ddp") == "ddp"
    given: dict[str, Any] = {
        "role": "scaling",
        "workload": FactorySpec.model_validate(
            {"factory": "tests.ranks.test_strategies:residual"} | (workload or {})
        ),
        "optimizer": OptimizerSpec(learning_rate=0.05, momentum=0.9),
        "setting": Setting(**({"batch_size": 8} | setting)),
        "world_size": 2,
        "variants": ALL if whole else SHORT,
        "measure": MeasureSpec(
            half_width=0.001, steps=3, min_rounds=3, warmup_steps=1, max_seconds=5, timeout_seconds=TIMEOUT_S
        ),
    }
    return studies.request(**(given | fields))


FSDP = {"strategy": "fsdp"}
BY_INDUCTOR = "ddp compiled"
TRIALS: dict[str, StepsRequest] = {
    "ddp": _request(),
    "ddp silent": _request(
        {"factory": "tests.ranks.test_strategies:silent"},
        optimizer=OptimizerSpec(learning_rate=1e-5),
        variants=SHORT,
    ),
    "ddp dropout": _request({"dropout": 0.3}),
    "ddp batch norm": _request({"norm": "batch"}, setting={"gradient_accumulation": 2}),
    "ddp checkpointed": _request({"dropout": 0.3}, setting={"activation_checkpointing": True}),
    BY_INDUCTOR: _request(setting={"compile": True, "activation_checkpointing": True}, variants=SHORT),
    "ddp fp16 sent": _request(setting={"gradient_compression": "fp16"}, variants=SHORT),
    "ddp bf16 sent": _request(setting={"gradient_compression": "bf16"}, variants=SHORT),
    "fsdp": _request(setting=FSDP, variants=ALL),
    "fsdp strong": _request(
        setting=FSDP | {"batch_size": 16, "fsdp_reshard": False},
        scaling="strong",
        variants=("base", "plain", "ddp"),
    ),
    "fsdp dropout": _request({"dropout": 0.3}, setting=FSDP | {"activation_checkpointing": True}),
    "fsdp accumulation": _request(setting=FSDP | {"gradient_accumulation": 2}, variants=ALL),
    "fsdp bf16": _request(setting=FSDP | {"precision": "bf16"}, variants=ALL),
    "fsdp fp16": _request(setting=FSDP | {"precision": "fp16"}, variants=ALL),
    "fsdp bf16 batch norm": _request({"norm": "batch"}, setting=FSDP | {"precision": "bf16"}),
    **{
        f"{strategy} images {layout}": _request(
            {"factory": "tests.ranks.test_strategies:images", "layout": layout},
            setting={"strategy": strategy, "channels_last": layout == "last"},
            variants=SHORT,
        )
        for strategy, layout in (("ddp", "last"), ("fsdp", "first"), ("fsdp", "last"))
    },
    "fsdp compiled": _request(setting=FSDP | {"compile": True}),
    "fsdp adam": _request(setting=FSDP, optimizer=OptimizerSpec(name="adamw", learning_rate=0.001)),
    "fsdp larger than one": _request(
        {"fault": "memory", "wrapper": "bare"},
        setting=FSDP | {"batch_size": 16},
        scaling="strong",
        variants=("base", "plain", "ddp"),
    ),
    "fsdp fails": _request({"fault": "error", "wrapper": "fsdp", "after": 6}, setting=FSDP),
    "after fsdp fails": _request(setting=FSDP, role="search"),
    "fsdp against ddp": _request(
        setting=FSDP, anchor=Setting(batch_size=8), role="verification", variants=("ddp", "anchor")
    ),
    "dp": _request(setting={"strategy": "dp"}),
    # 1 alone counted, 1 alone compiled, 4 of ddp and 4 of plain to warm up, then the rounds
    "shapes change": _request(
        {"norm": "none", "shapes_after": 14}, setting={"compile": True}, variants=SHORT, role="search"
    ),
}


Two = tuple[dict[str, Outcome], list[dict[str, bool]]]  # of each trial; of each rank


def _everything(asked: dict[str, StepsRequest]) -> tuple[list[Outcome], dict[str, bool]]:
    outcomes = list[Outcome]()
    torch.set_num_threads(1)
    communicators, cache = Communicators("gloo"), GroupCache()
    arguments = transforms._compile_arguments() | {"backend": "aot_eager"}
    for name, request in asked.items():
        with pytest.MonkeyPatch.context() as patch:
            # the peak of fp16 on a core without such instructions would take as long as all trials
            patch.setattr(type(CPU), "matrix_side", 64)
            patch.setenv("TORCHINDUCTOR_COMPILE_THREADS", "1")  # without processes that import torch again
            if name != BY_INDUCTOR:  # traced, split and counted as ever, and not built by a C++ compiler
                patch.setattr(transforms, "_compile_arguments", lambda: arguments)
            outcomes += serve_trial(request, BOTH, communicators, cache)
    team = communicators.team(BOTH, TIMEOUT_S)
    assert team is not None
    close = {
        f"{strategy} {name}": check(strategy, team)
        for strategy in ("ddp", "fsdp")
        for name, check in (("even", _even), ("uneven", _uneven), ("one idle", _one_idle))
    }
    communicators.drop_team()
    return outcomes, close


@pytest.fixture(scope="module")
def two(pair: Ranks) -> Two:
    by_rank = pair.call(_everything, TRIALS, timeout_s=290)
    outcomes = dict(zip(TRIALS, by_rank[0][0], strict=True))
    for name, outcome in outcomes.items():
        print(name, outcome.state, outcome.reason, f"{outcome.wall_time_s:.2f} s")
    return outcomes, [answer[1] for answer in by_rank]


# --- gradients: one SGD step at rate 1 moves the weights by the gradient


class _Given:
    """Batches as a list."""

    prefetched = 0

    def __init__(self, batches: list[Any]) -> None:
        self._batches = list(batches)

    def next(self) -> Any:
        return self._batches.pop(0)


def _samples(number: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    return _Residual().batch(number, torch.Generator().manual_seed(seed))


def _stepper(
    strategy: str, team: Team, batches: list[Any], accumulation: int = 1
) -> tuple[Workload, Stepper]:
    spec = FactorySpec.model_validate({"factory": "tests.ranks.test_strategies:residual"})
    workload = build(spec, None)
    torch.manual_seed(5)
    setting = Setting.model_validate(
        {"strategy": strategy, "batch_size": 8, "gradient_accumulation": accumulation}
    )
    asked = studies.config(setting=setting, optimizer=OptimizerSpec(learning_rate=1.0))
    models = StrategyModels(asked, workload, workload.model(), _Given(batches), CPU)
    return workload, models.wrap(team)


def _moved(stepper: Stepper) -> list[torch.Tensor]:
    """The weights, whole on every rank."""
    return [
        getattr(each, "full_tensor", lambda e=each: e)().detach().clone()
        for each in stepper.module.parameters()
    ]


def _as_one_device(
    workload: Workload, stepper: Stepper, before: list[torch.Tensor], parts: list[Any]
) -> bool:
    """Whether the stepper's weights are where one device goes with all samples in one batch."""
    torch.manual_seed(5)
    alone = workload.model()
    loss = workload.loss(alone, tuple(torch.cat([part[i] for part in parts]) for i in range(2)))
    loss.backward()  # type: ignore[no-untyped-call]
    for weight, was, now in zip(alone.parameters(), before, _moved(stepper), strict=True):
        assert weight.grad is not None
        assert torch.equal(weight, was)
        if not torch.allclose(was - weight.grad, now, RELATIVE, ABSOLUTE):
            return False
    return True


def _even(strategy: str, team: Team) -> bool:
    parts = [_samples(4, seed) for seed in range(4)]
    workload, stepper = _stepper(strategy, team, parts[2 * team.rank :][:2], accumulation=2)
    before = _moved(stepper)
    stepper.step()
    return _as_one_device(workload, stepper, before, parts)


def _uneven(strategy: str, team: Team) -> bool:
    return _weighted(strategy, team, (5, 3))


def _one_idle(strategy: str, team: Team) -> bool:
    return _weighted(strategy, team, (6, 0))


def _weighted(strategy: str, team: Team, sizes: tuple[int, int]) -> bool:
    parts = [_samples(size or 2, seed) for seed, size in enumerate(sizes)]
    workload, stepper = _stepper(strategy, team, [])
    before = _moved(stepper)
    weight = sample_weight(sizes[team.rank], sum(sizes), team.size)
    stepper.backward(parts[team.rank], lambda loss, batch: loss * weight)
    stepper.optimizer.step()
    counted = [part for part, size in zip(parts, sizes, strict=True) if size]
    right = _as_one_device(workload, stepper, before, counted)
    if sizes == (5, 3):  # and without the weights it is not: the tolerance tells the two apart
        workload, stepper = _stepper(strategy, team, [])
        stepper.backward(parts[team.rank])
        stepper.optimizer.step()
        right = right and not _as_one_device(workload, stepper, before, counted)
    return right


def test_gradients_are_those_of_one_device(two: Two) -> None:
    for close in two[1]:
        assert len(close) == 6
        assert all(close.values()), close


# --- trials


SOUND = [name for name in TRIALS if name not in ("fsdp fails", "dp", "shapes change", "ddp silent")]


@pytest.mark.parametrize("name", SOUND)
def test_a_strategy_is_measured(name: str, two: Two) -> None:
    request, found = TRIALS[name], complete(two[0][name])
    for each in found.rounds:
        blocks = {block.variant: block for block in each.blocks}
        assert set(blocks) == set(request.variants) - set(found.missing)
        assert blocks["ddp"].ranks == BOTH
    assert found.samples_per_step == request.config.global_batch_size
    if request.config.setting.strategy == "fsdp":
        assert not found.bucket_bytes
    if request.role == "scaling" and name != "fsdp larger than one":
        parity = parity_verdict(to_record(request, two[0][name]))
        assert parity is not None, found.missing
        assert parity.agrees, parity
        assert found.parity is not None
        assert len(found.parity.losses) == 5
        assert found.parity.losses[-1] != found.parity.losses[0]  # something was learnt


def test_parity_is_exact_but_for_rounding_where_nothing_is_rounded_off(
    two: Two,
) -> None:
    """Dropout's masks and batch statistics are those of the same pieces."""
    for name in ("ddp", "ddp dropout", "ddp batch norm", "ddp checkpointed", "fsdp", "fsdp dropout"):
        parity = parity_verdict(to_record(TRIALS[name], two[0][name]))
        assert parity is not None
        assert parity.relative_difference < 1e-5, name
        assert parity.gradient_difference is not None
        assert parity.gradient_difference < 1e-5, name


def test_gradients_that_never_travel_are_seen_at_a_learning_rate_that_hides_them_in_the_losses(
    two: Two,
) -> None:
    """The planted workload's hook leaves each rank its own gradient; its losses are one device's."""
    record = to_record(TRIALS["ddp silent"], two[0]["ddp silent"])
    parity = parity_verdict(record)
    assert parity is not None
    assert parity.relative_difference < parity.tolerance / 10
    assert parity.gradient_difference is not None
    assert parity.gradient_difference > 0.1  # two ranks' gradients of 8 samples are that far apart, and more
    assert not parity.agrees
    assert FindingName.LOSSES_DISAGREE in [finding.name for finding in findings(record)]


def test_compression_has_an_error_of_the_types_size(
    two: Two,
) -> None:
    for name, digits in (("ddp fp16 sent", 11), ("ddp bf16 sent", 8)):
        found = complete(two[0][name])
        assert found.gradient_bytes == sum(found.bucket_bytes) // 2
        assert found.parity is not None
        error = found.parity.gradient_difference
        assert error is not None
        # the unit roundoff of the type bounds it; uniform rounding errors are a few times smaller
        assert 2.0**-digits / 20 < error < 2.0**-digits * 2


def test_a_model_larger_than_one_device_has_no_base(
    two: Two,
) -> None:
    found = complete(two[0]["fsdp larger than one"])
    reason = "the model does not fit on one device: MemoryError: planted: no memory"
    parity = "the model does not fit on one device"
    assert found.missing == {"plain": reason, "base": reason, "parity": parity}
    assert found.parity is None


@pytest.mark.parametrize(
    ("name", "state", "reason"),
    [
        ("fsdp fails", "crashed", "rank 1: ValueError: planted on rank 1"),
        ("dp", "invalid", "strategy dp exists on GPUs only"),
        (
            "shapes change",
            "invalid",
            # the model is a bare nn.Sequential, which older versions do not compile, and that is told
            "compile: torch compiled again within the rounds"
            if Version(torch.__version__) >= Version("2.14")
            else "compile: torch compiled nothing",
        ),
    ],
)
def test_what_cannot_be_says_why(name: str, state: str, reason: str, two: Two) -> None:
    outcome = two[0][name]
    assert outcome.state == state
    assert (outcome.reason or "").startswith(reason), outcome.reason
    assert outcome.wall_time_s < TIMEOUT_S  # whoever waited was freed, not timed out

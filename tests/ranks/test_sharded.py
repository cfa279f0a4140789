"""FSDP taken apart: what is planted in its collectives, on a rank and around the wrapper is found again."""

from __future__ import annotations

import math
import time
from dataclasses import replace
from typing import Any, cast

import pytest
import torch
from torch import nn
from torch.distributed.fsdp._fully_shard import _fsdp_collectives as torchs
from torch.distributed.tensor import DTensor

from raybench.analysis.stats.statistics import Estimate
from raybench.analysis.waterfall import Waterfall
from raybench.records.messages import Outcome
from raybench.records.requests import StepsRequest
from raybench.records.results import StepsResult
from raybench.spec.knobs import Setting
from raybench.spec.study import MeasureSpec, OptimizerSpec
from raybench.spec.workloads import FactorySpec
from raybench.worker.communicators import Communicators
from raybench.worker.group_cache import GroupCache, RankContext
from raybench.worker.steps.setup import TrialModels
from raybench.worker.strategies.sharding import shard
from tests.ranks.agreement import agrees, by_rounds, measured_undisturbed
from tests.ranks.planted import CLOCK
from tests.ranks.ranks import Ranks
from tests.ranks.trials import ALL, CPU, complete, run_trials
from tests.support.planted import to_record
from tests.support.worker_rank import worker_rank
from tests.unit import studies

pytestmark = pytest.mark.alone

# What the two trials differ by. After a wait torch works more slowly, so both have waits: the real transfers
# pass inside the shorter ones as well.
LATE_S, WRAPPER_S, LINK_S = 0.02, 0.02, 0.008
LESS_S = 0.005
BLOCKS = 2
# weights of the root and of each block before the forward and before the backward pass, then gradients
MESSAGES = 3 * (BLOCKS + 1)
# Of what is planted, with 4.5 errors less than any part: it has lasted a fifth longer on a slow machine.
FLOOR, MOST_ERROR_S = 0.25, 0.0015
SENT_FLOOR_S, SENT_ERROR_S = 0.95 * LINK_S, 0.002  # the floor is less than one message takes


class _Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(16, 16)

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        return values + torch.relu(self.linear(values))


class Waits:
    """A small network whose steps wait as planted; ``clips``: what looks at all ranks' gradients."""

    def __init__(self, late_s: float = 0.0, wrapper_s: float = 0.0, clips: bool = False) -> None:
        self._late_s, self._wrapper_s = late_s * (worker_rank() == 1), wrapper_s
        if clips:
            self.after_backward = lambda model: nn.utils.clip_grad_norm_(model.parameters(), 1.0)

    def model(self) -> nn.Module:
        return nn.Sequential(nn.Linear(16, 16), nn.Sequential(*(_Block() for _ in range(BLOCKS))))

    def batch(self, size: int, generator: torch.Generator) -> torch.Tensor:
        return torch.randn(size, 16, generator=generator)

    def loss(self, model: nn.Module, batch: torch.Tensor) -> torch.Tensor:
        is_sharded = hasattr(model, "set_requires_gradient_sync")
        CLOCK.wait_until(time.perf_counter() + self._late_s + self._wrapper_s * is_sharded)
        return nn.functional.mse_loss(model(batch), batch)


def waits(**arguments: Any) -> Waits:
    return Waits(**arguments)


def _request(workload: dict[str, Any] | None = None, **setting: Any) -> StepsRequest:
    return studies.request(
        role="search",  # without what is measured beside the rounds of a curve
        workload=FactorySpec.model_validate({"factory": "tests.ranks.test_sharded:waits"} | (workload or {})),
        optimizer=OptimizerSpec(name="adamw", learning_rate=0.01),
        setting=Setting(strategy="fsdp", batch_size=8, **setting),
        world_size=2,
        variants=ALL,
        measure=MeasureSpec(half_width=0.001, steps=3, min_rounds=18, warmup_steps=2, timeout_seconds=120),
    )


def _run(request: StepsRequest, link_s: float = 0.0) -> list[Outcome]:
    """On each rank; each of FSDP's collectives takes ``link_s``, in which the real one passes."""
    torch.set_num_threads(1)

    def slow(original: Any) -> Any:
        def sent(*arguments: Any, **how: Any) -> Any:
            until = time.perf_counter() + link_s
            found = original(*arguments, **how)
            if link_s and found is not None:
                found.wait()
            CLOCK.wait_until(until)
            return found

        return sent

    communicators = Communicators("gloo")
    with pytest.MonkeyPatch.context() as patch:
        for kind in (torchs.DefaultAllGather, torchs.DefaultReduceScatter):
            patch.setattr(kind, "__call__", slow(kind.__call__))
        found = run_trials([request], communicators, GroupCache())
    communicators.drop_team()
    return found


Case = tuple[StepsResult, Waterfall]


@pytest.fixture(scope="module")
def cases(pair: Ranks) -> tuple[Case, Case]:
    """With less planted, and with more: their differences hold nothing of torch's own."""

    def case(late_s: float, wrapper_s: float, link_s: float) -> Case:
        request = _request({"late_s": late_s, "wrapper_s": wrapper_s})
        (outcome,), _ = measured_undisturbed(
            lambda: pair.call(_run, request, link_s), lambda by_rank: complete(by_rank[0][0])
        )
        record = to_record(request, outcome)
        found = by_rounds(record).waterfall(record)
        assert found is not None
        return complete(outcome), found

    less = case(LESS_S, LESS_S, LESS_S)
    return less, case(LESS_S + LATE_S, LESS_S + WRAPPER_S, LESS_S + LINK_S)


def test_the_parts_of_a_sharded_step_are_what_was_planted(cases: tuple[Case, Case]) -> None:
    (less_steps, less), (steps, more) = cases
    for each in (less_steps, steps):
        assert not {"local", "replay"} & each.missing.keys(), each.missing
        assert (len(each.collective_bytes), each.pass_collectives) == (MESSAGES, 0)
        assert each.loss is not None
    has_less, has_more = less.parts.present(), more.parts.present()
    for part, planted_s in {"wrapper": WRAPPER_S, "skew": LATE_S / 2}.items():
        _differ(
            part, has_more[part], has_less[part], planted_s, floor=FLOOR * planted_s, most_error=MOST_ERROR_S
        )
    sent_s, sent = MESSAGES * LINK_S, "exposed_communication"
    _differ(sent, has_more[sent], has_less[sent], sent_s, floor=SENT_FLOOR_S, most_error=SENT_ERROR_S)
    _differ("replay", more.replay_s, less.replay_s, sent_s, floor=SENT_FLOOR_S, most_error=SENT_ERROR_S)


def _differ(
    name: str, more: Estimate | None, less: Estimate | None, planted_s: float, **limits: float
) -> None:
    assert more is not None
    assert less is not None
    half = math.hypot(more.half_width, less.half_width)
    value = more.value - less.value
    difference = replace(more, value=value, low=value - half, high=value + half)
    agrees(name, difference, planted_s, **limits)


def test_weights_of_steps_without_transfers_are_left_as_they_were(pair: Ranks) -> None:
    """After such steps alone with AdamW a shard has moved by no more than its decay."""
    for moved, scale in pair.call(_moved):
        assert moved < 1e-3 * scale


def _moved() -> tuple[float, float]:
    """On each rank: the largest change of a weight by ten steps without transfers, and the largest weight."""
    torch.set_num_threads(1)
    communicators = Communicators("gloo")
    team = communicators.team((0, 1), 60.0)
    assert team is not None
    config = _request().config
    models = TrialModels(config, RankContext(team, CPU, GroupCache()), lambda each: each.bare.step())
    measured = models.measured
    measured.wrap(team)
    twin = measured.make_twin(team)
    shards: list[Any] = [cast(DTensor, each.detach()).to_local() for each in twin.module.parameters()]
    before = [each.clone() for each in shards]
    sent = team.num_sent()
    assert measured.collectives is not None
    measured.collectives.leave_out()
    for _ in range(10):
        twin.step()
    assert team.num_sent() == sent
    found = max(float((a - b).abs().max()) for a, b in zip(shards, before, strict=True))
    largest = max(float(each.abs().max()) for each in before)
    models.release()
    communicators.drop_team()
    return found, largest


def test_steps_that_look_at_all_gradients_have_no_twin(pair: Ranks) -> None:
    (outcome,), _ = pair.call(_run, _request({"clips": True}))
    found = complete(outcome)
    assert found.missing["local"] == "the step looks at the gradients of all ranks"
    assert "replay" not in found.missing


def rank_shards_on_two_groups() -> list[bool]:
    """Whether the whole weights of a model are on each rank, whose group came after another's end."""
    communicators, found = Communicators("gloo"), list[bool]()
    for _ in range(2):
        team = communicators.team((0, 1), 60)
        assert team is not None
        module = nn.Linear(16, 4)
        shard(module, team, Setting(strategy="fsdp"), torch.device("cpu"))
        found.append(cast(DTensor, module.weight).full_tensor().shape == (4, 16))
        communicators.drop_team()
    return found


def test_the_group_of_an_earlier_model_may_be_gone(pair: Ranks) -> None:
    """DTensor keeps what it has worked out of operations, with the mesh: a second training met its group."""
    assert pair.call(rank_shards_on_two_groups) == [[True, True]] * 2

"""FSDP taken apart: what is planted in its collectives, on a rank and around the wrapper is found again."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, cast

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
from raybench.worker.steps.rounds import MeasuringLoop
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

BLOCKS = 1
# weights of the root and of each block before the forward and before the backward pass, then gradients
MESSAGES = 3 * (BLOCKS + 1)


@dataclass(frozen=True)
class Plant:
    """What a step waits for, in s."""

    late_s: float = 0.0  # on rank 1
    wrapper_s: float = 0.0
    link_s: float = 0.0  # that each of FSDP's collectives takes, in which the real one passes


# In turn, round by round: what differs holds nothing of torch's own, nor of how slow the machine is by then.
# After a wait torch works more slowly, so both have waits: real transfers pass inside the shorter ones too.
LESS = Plant(0.005, 0.005, 0.005)
LATE_S, WRAPPER_S, LINK_S = 0.02, 0.02, 0.008
MORE = Plant(LESS.late_s + LATE_S, LESS.wrapper_s + WRAPPER_S, LESS.link_s + LINK_S)
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

    now: ClassVar = Plant()

    def __init__(self, clips: bool = False) -> None:
        self._is_late = worker_rank() == 1
        if clips:
            self.after_backward = lambda model: nn.utils.clip_grad_norm_(model.parameters(), 1.0)

    def model(self) -> nn.Module:
        return nn.Sequential(nn.Linear(16, 16), nn.Sequential(*(_Block() for _ in range(BLOCKS))))

    def batch(self, size: int, generator: torch.Generator) -> torch.Tensor:
        return torch.randn(size, 16, generator=generator)

    def loss(self, model: nn.Module, batch: torch.Tensor) -> torch.Tensor:
        is_sharded = hasattr(model, "set_requires_gradient_sync")
        waits_s = self.now.late_s * self._is_late + self.now.wrapper_s * is_sharded
        CLOCK.wait_until(time.perf_counter() + waits_s)
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
        measure=MeasureSpec(half_width=0.001, steps=3, min_rounds=24, warmup_steps=2, timeout_seconds=120),
    )


def _turn(number: int) -> int:
    """Which of two plants a round has: one device alone is each rank's in two rounds."""
    return number // 2 % 2


def _run(request: StepsRequest, plants: Sequence[Plant] = ()) -> list[Outcome]:
    """On each rank; its rounds have ``plants`` in turn."""
    torch.set_num_threads(1)

    def slow(original: Any) -> Any:
        def sent(*arguments: Any, **how: Any) -> Any:
            until = time.perf_counter() + Waits.now.link_s
            found = original(*arguments, **how)
            if Waits.now.link_s and found is not None:
                found.wait()
            CLOCK.wait_until(until)
            return found

        return sent

    def planted(original: Any) -> Any:
        def round_(loop: MeasuringLoop, number: int) -> Any:
            Waits.now = plants[_turn(number)]
            return original(loop, number)

        return round_

    communicators = Communicators("gloo")
    with pytest.MonkeyPatch.context() as patch:
        for kind in (torchs.DefaultAllGather, torchs.DefaultReduceScatter):
            patch.setattr(kind, "__call__", slow(kind.__call__))
        if plants:
            patch.setattr(MeasuringLoop, "_round", planted(MeasuringLoop._round))
        found = run_trials([request], communicators, GroupCache())
    Waits.now = Plant()
    communicators.drop_team()
    return found


Case = tuple[StepsResult, Waterfall]


@pytest.fixture(scope="module")
def cases(pair: Ranks) -> tuple[Case, Case]:
    """Of the rounds with less planted, and of those with more."""
    request = _request()
    (outcome,), _ = measured_undisturbed(
        lambda: pair.call(_run, request, (LESS, MORE)), lambda by_rank: complete(by_rank[0][0])
    )
    steps = complete(outcome)

    def case(turn: int) -> Case:
        rounds = tuple(each for number, each in enumerate(steps.rounds) if _turn(number) == turn)
        own = steps.model_copy(update={"rounds": rounds})
        record = to_record(request, replace(outcome, result=own))
        found = by_rounds(record).waterfall(record)
        assert found is not None
        return own, found

    return case(0), case(1)


def test_the_parts_of_a_sharded_step_are_what_was_planted(cases: tuple[Case, Case]) -> None:
    (less_steps, less), (steps, more) = cases
    for each in (less_steps, steps):
        assert not {"local", "replay"} & each.missing.keys(), each.missing
        assert (len(each.collective_bytes), each.pass_collectives) == (MESSAGES, 0)
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
    request = _request({"clips": True})
    brief = request.measure.model_copy(update={"min_rounds": 3})  # nothing is timed
    (outcome,), _ = pair.call(_run, request.model_copy(update={"measure": brief}))
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

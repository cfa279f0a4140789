"""Steps as if on more devices, on two gloo ranks: what is planted of a network is found in the step."""

from __future__ import annotations

import sys
from statistics import median
from typing import Any

import pytest

from raybench.analysis.stats.rounds import slowest_rank_s, slowest_step_s
from raybench.records.messages import Outcome
from raybench.records.requests import AS_IF, AsIf, StepsRequest, Variant
from raybench.records.results import StepsResult
from raybench.spec.knobs import Setting
from raybench.spec.study import MeasureSpec
from raybench.worker.communicators import Communicators
from raybench.worker.group_cache import GroupCache
from tests.ranks.agreement import measured_undisturbed
from tests.ranks.planted import MAX_RANKS, SEEN_THREADS, Plant
from tests.ranks.ranks import Ranks
from tests.ranks.trials import ALL, CPU, complete, run_trials
from tests.unit import studies

pytestmark = pytest.mark.alone

SMALL_BUCKET_MB = 0.0005  # one bucket for each parameter, of 1 KiB
PLANT = Plant()  # backward: 4 ms a layer, three of them
LASTS_S = 0.012  # each all-reduce, on the networks that are asked for
# Buckets are ready 4, 8 and 12 ms after the backward pass begins. gloo has two threads: where all is latency
# the third begins when the first is through, at 16 ms; where all is the link's, one follows the other.
BESIDE_S, AFTER_S = 0.016, 0.028  # from the end of the backward pass to the last all-reduce's
WAKES_S = 0.003  # the system takes to wake a rank that waits for a message, at most: 2.4 ms were seen
MOST_ERROR_S = 0.0025
FEW: tuple[Variant, ...] = ("local", "ddp")  # that these steps are compared with
ROUNDS = 8  # where a median is asked for
FREE = AsIf(world_size=4, nodes=4, network="free", lines=((0.0, 0.0),))
NETWORKS = (
    AsIf(world_size=8, nodes=4, network="latency", lines=((LASTS_S, 0.0),)),
    AsIf(world_size=8, nodes=4, network="link", lines=((0.0, LASTS_S / 1024),)),
    AsIf(world_size=2),
)


def _request(
    workload: dict[str, Any],
    setting: dict[str, Any],
    as_if: tuple[AsIf, ...],
    variants: tuple[Variant, ...] = ALL,
    rounds: int = 3,
    scaling: str = "weak",
) -> StepsRequest:
    return studies.request(
        role="scaling",
        workload=workload,
        setting=Setting.model_validate({"batch_size": 8} | setting),
        scaling=scaling,
        variants=(*variants, *AS_IF[: len(as_if)]),
        as_if=as_if,
        measure=MeasureSpec(steps=5, min_rounds=rounds, warmup_steps=2, max_seconds=12, timeout_seconds=60),
    )


def _requests(stamps: str) -> dict[str, StepsRequest]:
    plant = PLANT.spec(stamps).model_dump()
    by_batch = Plant(per_sample_s=0.001, forward_s=0.0).spec(stamps).model_dump()
    mlp, four = {"name": "mlp", "hidden_dim": 32}, (AsIf(world_size=4),)
    return {
        "planted": _request(plant, {"bucket_cap_mb": SMALL_BUCKET_MB}, NETWORKS, FEW, ROUNDS),
        "strong": _request(by_batch, {"batch_size": 16}, (FREE,), ("base", *FEW), ROUNDS, "strong"),
        "compressed": _request(mlp, {"gradient_compression": "bf16", "gradient_accumulation": 2}, four),
        "buffers": _request({"factory": "tests.ranks.planted:faulty", "kind": "buffers"}, {}, four),
        "unused": _request(mlp, {"find_unused_parameters": True}, four),
    }


def _measured(requests: dict[str, StepsRequest]) -> dict[str, Outcome]:
    communicators, cache, tuned = Communicators("gloo"), GroupCache(), list[str]()
    CPU.tune_pause = lambda: tuned.append(sys._getframe(1).f_code.co_name)  # type: ignore[method-assign]
    found = run_trials(requests.values(), communicators, cache)
    del CPU.tune_pause
    assert tuned.count("_add_as_if") == 4  # once a trial: a clock that has fallen in a pause counts slower
    communicators.drop_team()
    SEEN_THREADS.clear()  # of these processes, which other modules use after this one
    return dict(zip(requests, found, strict=True))


@pytest.fixture(scope="module")
def outcomes(pair: Ranks, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Outcome]:
    stamps = tmp_path_factory.mktemp("stamps") / "stamps"
    stamps.write_bytes(bytes(8 * MAX_RANKS))
    found: dict[str, Outcome] = measured_undisturbed(
        lambda: pair.call(_measured, _requests(str(stamps)))[0], lambda by_name: complete(by_name["planted"])
    )
    return found


def _step_s(found: StepsResult, variant: Variant) -> float:
    """As a waterfall has it: without transfers each step is as long as that of its slowest rank."""
    of_block = slowest_step_s if variant == "local" else slowest_rank_s
    blocks = [each.block(variant) for each in found.rounds]
    return median(of_block(block) for block in blocks if block is not None)


@pytest.mark.parametrize(("place", "exposed_s"), [(0, BESIDE_S), (1, AFTER_S)], ids=["latency", "link"])
def test_an_all_reduce_lasts_as_long_as_on_the_network(
    outcomes: dict[str, Outcome], place: int, exposed_s: float
) -> None:
    found = complete(outcomes["planted"])
    added_s = _step_s(found, AS_IF[place]) - _step_s(found, "local") - found.held[place].waited_s
    assert exposed_s - MOST_ERROR_S <= added_s <= exposed_s + 3 * WAKES_S
    assert 0 < found.held[place].held_s <= 3 * LASTS_S


def test_as_many_devices_as_there_are_take_what_they_take(outcomes: dict[str, Outcome]) -> None:
    found = complete(outcomes["planted"])
    assert found.held[2].held_s == found.held[2].waited_s == 0.0
    assert _step_s(found, "as_if_3") == pytest.approx(_step_s(found, "ddp"), abs=MOST_ERROR_S)


def test_under_strong_scaling_each_device_has_the_batch_of_so_many(outcomes: dict[str, Outcome]) -> None:
    found = complete(outcomes["strong"])
    # 8 samples on each of two devices are 4 on each of four
    shorter_s = _step_s(found, "ddp") - _step_s(found, "as_if_1") + found.held[0].waited_s
    assert shorter_s == pytest.approx(0.004, abs=MOST_ERROR_S)


@pytest.mark.parametrize("name", ["compressed", "buffers"])
def test_it_goes_with_compression_accumulation_and_buffers(outcomes: dict[str, Outcome], name: str) -> None:
    found = complete(outcomes[name])
    assert found.missing == {}
    assert all(each.block("as_if_1") for each in found.rounds)


def test_where_gradients_cannot_be_held_back_it_is_left_out(outcomes: dict[str, Outcome]) -> None:
    found = complete(outcomes["unused"])
    assert "find_unused_parameters" in found.missing["as_if_1"]
    assert found.held == ()

"""What differs on GPUs, made to happen on two gloo ranks: work done later, an allocator's cache, counters."""

from __future__ import annotations

from itertools import pairwise
from statistics import median
from time import perf_counter
from typing import Any

import pytest
import torch
import torch.distributed as dist

from raybench.analysis.largest_batch import MEMORY_SHARE, probe_of
from raybench.records.messages import Outcome
from raybench.records.requests import (
    Configuration,
    ProbeRequest,
    StepsRequest,
    StepsRole,
    TrialRequest,
    Variant,
)
from raybench.records.results import ProbeResult, StepsResult
from raybench.spec.knobs import Setting
from raybench.spec.study import MeasureSpec
from raybench.spec.workloads import FactorySpec
from raybench.worker.communicators import Communicators, Team
from raybench.worker.devices import cuda
from raybench.worker.group_cache import GroupCache
from raybench.worker.steps import replay
from raybench.worker.steps.meters import STEPS_AHEAD
from raybench.worker.strategies import ddp
from tests.ranks import gpu_like
from tests.ranks.gpu_like import BARE_W, HOT_MHZ, WRAPPED_W, GpuLike, Seen
from tests.ranks.ranks import run_ranks
from tests.ranks.trials import BOTH, serve_trial
from tests.support.planted import to_record
from tests.unit import studies
from tests.unit.worker.fake_cuda import GIB, FakeMemory

pytestmark = pytest.mark.alone

TIMEOUT_S = 60.0
OTHERS = 2 * GIB  # NCCL's, on a GPU of 80 GiB
BARE_S, WRAPPED_S = 0.025, 0.03  # of a step on the device, where counters are read
COLD_S = 0.01  # where devices are slow after idling
SLOW_S, FAST_S = 0.008, 0.002  # of a step on the device of rank 1, and on that of rank 0


def _config(
    workload: dict[str, Any], setting: dict[str, Any], world_size: int = 2, scaling: str = "weak"
) -> Configuration:
    return studies.config(
        workload=FactorySpec.model_validate({"factory": "tests.ranks.gpu_like:build"} | workload),
        setting=Setting.model_validate({"batch_size": 10} | setting),
        world_size=world_size,
        scaling=scaling,
    )


def _steps(
    workload: dict[str, Any],
    variants: tuple[Variant, ...],
    world_size: int = 2,
    role: StepsRole = "search",
    steps: int = 3,
    anchor: Setting | None = None,
    scaling: str = "weak",
    **setting: Any,
) -> StepsRequest:
    measure = MeasureSpec(
        steps=steps, min_rounds=6, warmup_steps=1, max_seconds=10, timeout_seconds=TIMEOUT_S
    )
    config = _config(workload, setting, world_size, scaling)
    return StepsRequest(config=config, role=role, variants=variants, measure=measure, anchor=anchor)


def _probe(workload: dict[str, Any], **setting: Any) -> ProbeRequest:
    return ProbeRequest(config=_config(workload, setting), timeout_seconds=TIMEOUT_S)


REQUESTS: dict[str, TrialRequest] = {
    "probe ddp": _probe({"gib_per_sample": 1.0, "model_gib": 20.0}),
    # the whole model steps alone first and takes 70 GiB; sharded it takes 35
    "probe fsdp": _probe({"gib_per_sample": 1.0, "model_gib": 60.0}, strategy="fsdp"),
    "probe oom": _probe({"gib_per_sample": 5.0, "model_gib": 40.0}),
    "probe again": _probe({"gib_per_sample": 1.0, "model_gib": 20.0}),
    # blocks of 0.18 s and more, of which all steps are given within some ms
    "counters": _steps(
        {"late_s": (BARE_S, BARE_S), "late_wrapped_s": WRAPPED_S}, ("plain", "ddp"), 2, "scaling", steps=5
    ),
    "alone": _steps({"late_s": (BARE_S, BARE_S)}, ("plain",), 1, "scaling"),
    "idle": _steps({"alone_s": 0.004, "retries_on": (1,)}, ("plain", "ddp")),
    "cold": _steps(
        {"late_s": (COLD_S, COLD_S), "late_wrapped_s": COLD_S, "cools": True}, ("plain", "ddp"), steps=8
    ),
    "company": _steps({"late_s": (FAST_S, SLOW_S)}, ("concurrent", "ddp")),
}
# in a step 70 of the 78 GiB that NCCL leaves: as batch_size = "max" would have it
FULL = {"gib_per_sample": 7.0}
REQUESTS |= {
    "full": _steps(FULL | {"gradients_gib": 10.0}, ("plain", "ddp", "replay")),
    "fuller": _steps(FULL | {"gradients_gib": 79.0}, ("plain", "ddp", "replay")),
}
# 55 GiB in the rounds; twice the optimizer's state and twice the weights would be 79 of 78
REQUESTS["compared"] = _steps(
    {"weights_gib": 8.0, "state_gib": 16.0, "gib_per_sample": 1.0, "wrapped_gib": 21.0},
    ("plain", "ddp"),
    role="scaling",
)
# next to the anchor 84 GiB of 78, of which the anchor alone takes 30
ANCHORED = {"weights_gib": 4.0, "state_gib": 8.0, "gib_per_sample": 6.0}
SMALL = Setting(batch_size=1)
REQUESTS |= {
    "anchored": _steps(ANCHORED, ("plain", "ddp", "anchor"), anchor=SMALL),
    "anchored ddp": _steps(ANCHORED, ("ddp", "anchor"), anchor=SMALL),
    "both fit": _steps(ANCHORED | {"gib_per_sample": 5.0}, ("plain", "ddp", "anchor"), anchor=SMALL),
    "retried": _steps({"retries_on": (1,)}, ("plain", "ddp", "anchor"), anchor=SMALL),
    # 69.5 GiB, and the twin's buckets make 79
    "no twin": _steps({"buckets_gib": 9.5, "gib_per_sample": 6.0}, ("plain", "local", "ddp")),
    # one device at the batch of both takes 64 GiB, and buckets of 10 more under DDP, of the twin again
    "base": _steps(
        {"buckets_gib": 10.0, "gib_per_sample": 6.4}, ("base", "plain", "local", "ddp"), scaling="strong"
    ),
}
Found = tuple[dict[str, Outcome], dict[str, Seen]]  # of each trial; what this rank saw of each


def _listen(gpu: GpuLike) -> None:
    broadcast, all_reduce = Team.broadcast, dist.all_reduce

    def heard_broadcast(team: Team, tensors: Any) -> None:
        gpu.seen.broadcasts.append(perf_counter())
        broadcast(team, tensors)

    def heard_all_reduce(*arguments: Any, **named: Any) -> Any:
        gpu.seen.all_reduces += 1
        return all_reduce(*arguments, **named)

    Team.broadcast = heard_broadcast  # type: ignore[method-assign, assignment]
    dist.all_reduce = heard_all_reduce

    class HeldBucket(replay.ReplayBucket):
        def __init__(self, *fields: Any) -> None:
            super().__init__(*fields)
            gpu_like.hold(self, self._buffer.nbytes * gpu.gib_per_byte)

    replay.ReplayBucket = HeldBucket  # type: ignore[assignment, misc]
    wrap = ddp.wrap

    def heard_wrap(*arguments: Any) -> Any:
        wrapper = wrap(*arguments)
        gpu_like.hold(wrapper, gpu.buckets_gib)
        return wrapper

    ddp.wrap = heard_wrap  # type: ignore[assignment]


def _serve_all() -> tuple[dict[str, list[Outcome]], dict[str, Seen]]:
    torch.set_num_threads(1)
    cuda.UTILIZATION_EVERY_S = 0.2  # the planted sample period is 1/6 s
    gpu = GpuLike(FakeMemory(others=OTHERS))
    gpu_like.GPU[:] = [gpu]
    _listen(gpu)
    communicators, cache = Communicators("gloo"), GroupCache()
    outcomes, seen = {}, {}
    for name, request in REQUESTS.items():
        gpu.seen = seen[name] = Seen()
        ranks = BOTH[: request.config.world_size]
        outcomes[name] = serve_trial(request, ranks, communicators, cache, device=gpu)
    communicators.drop_team()
    return outcomes, seen


@pytest.fixture(scope="module")
def found() -> tuple[dict[str, Outcome], list[dict[str, Seen]]]:
    by_rank = run_ranks(_serve_all, 2)
    outcomes = {name: outcome for name, (outcome,) in by_rank[0][0].items()}
    for name, outcome in outcomes.items():
        print(name, outcome.state, outcome.reason, f"{outcome.wall_time_s:.2f} s")
    return outcomes, [answer[1] for answer in by_rank]


def _measured(outcome: Outcome) -> StepsResult:
    assert isinstance(outcome.result, StepsResult), outcome.reason
    return outcome.result


@pytest.mark.parametrize(("name", "gib"), [("probe ddp", 30), ("probe fsdp", 40), ("probe again", 30)])
def test_a_probe_reads_what_is_measured_and_not_what_the_cache_has_kept(name, gib, found):
    result = found[0][name].result
    assert isinstance(result, ProbeResult), found[0][name].reason
    assert result.peak_memory_bytes == (gib * GIB,) * 2
    assert result.device_memory_bytes == (gib * GIB + OTHERS,) * 2
    assert result.memory_limit_bytes == (80 * GIB,) * 2
    probe = probe_of(to_record(REQUESTS[name], found[0][name]))
    assert probe.failure is None
    assert probe.share is not None
    assert probe.share < MEMORY_SHARE


def test_a_batch_without_room_is_out_of_memory_on_every_rank(found):
    outcome = found[0]["probe oom"]
    assert (outcome.state, outcome.reason) == (
        "oom",
        f"rank 0: OutOfMemoryError: CUDA out of memory. Tried to allocate {90 * GIB} bytes",
    )
    assert probe_of(to_record(REQUESTS["probe oom"], outcome)).failure == "oom"


def test_a_teams_groups_are_used_before_its_first_model_is_made_and_never_again(found):
    for seen in found[1]:
        assert seen["probe ddp"].before_models[0] == len(GpuLike.first_transfers)
        assert seen["probe fsdp"].before_models[0] == 0  # the same team
    assert found[1][0]["alone"].before_models[0] == len(GpuLike.first_transfers)  # another one


def test_clocks_are_looked_at_late_in_the_work_and_not_when_it_is_given(found):
    """The device holds its clock down when it has worked for 50 ms, and all steps are given before that."""
    result = _measured(found[0]["counters"])
    assert {each.blocks[-1].variant for each in result.rounds} == {"plain", "ddp"}
    looks = [look for each in result.rounds for look in zip(each.throttled, each.clock_mhz, strict=True)]
    assert looks.count((True, HOT_MHZ)) >= 0.75 * len(looks)  # on busy cores a step comes late, and it cools


def test_clocks_of_one_and_of_all_are_with_their_blocks_and_temperatures_with_the_rounds(found):
    result = _measured(found[0]["company"])
    for each in result.rounds:
        block = each.block("concurrent")
        assert block is not None
        assert len(block.clock_mhz) == 2
        assert all(clock for clock in block.clock_mhz)
        assert len(each.temperature_c) == 2
    first, *_, last = (each.temperature_c[0] for each in result.rounds)
    assert first is not None
    assert last is not None
    assert last > first
    plain = [each.block("plain") for each in _measured(found[0]["counters"]).rounds]
    assert all(block is not None and len(block.clock_mhz) == 1 for block in plain)


def test_the_link_to_the_host_is_that_of_a_gpu_at_work(found):
    """Of one that idles, as when the rounds are done, it is of the first generation."""
    for link in _measured(found[0]["counters"]).pcie_links:
        assert link is not None
        assert not link.is_narrow


def test_lines_that_wait_for_the_gpu_are_those_of_the_leaders_step(found):
    assert _measured(found[0]["counters"]).host_waits == {"heard.py:7": 1}
    assert _measured(found[0]["company"]).host_waits is None  # of a search


def test_utilization_is_that_of_seconds_of_what_is_measured(found):
    """In the sample period before a look in the rounds the device idles beside ``plain``, or waits."""
    several, alone = _measured(found[0]["counters"]), _measured(found[0]["alone"])
    assert several.device_utilization == pytest.approx((1, 1), abs=0.2)  # on busy cores a step comes late
    assert alone.device_utilization == pytest.approx((1,), abs=0.2)


def test_energy_is_that_of_all_devices_and_of_one_alone(found):
    """By a counter that moves every 0.1 s, both of whose readings lag behind equal work."""
    several, alone = _measured(found[0]["counters"]), _measured(found[0]["alone"])
    assert several.energy_joules == pytest.approx(2 * WRAPPED_W * WRAPPED_S, rel=0.06)
    assert several.plain_energy_joules == pytest.approx(BARE_W * BARE_S, rel=0.06)
    assert alone.energy_joules == alone.plain_energy_joules == pytest.approx(BARE_W * BARE_S, rel=0.06)


def test_no_block_is_timed_on_clocks_that_have_fallen(found):
    """Beside ``plain`` the other device idles, and what it does then takes twice the time for 0.1 s."""
    blocks = [block for each in _measured(found[0]["cold"]).rounds for block in each.blocks]
    after = [block.slowest_s for before, block in pairwise(blocks) if before.variant == "plain"]
    assert len(after) >= 3
    assert median(after) == pytest.approx(COLD_S, rel=0.15)  # and 1.37 of it with the cold ones


def test_a_search_spends_no_seconds_on_energy(found):
    result = _measured(found[0]["company"])
    assert (result.device_utilization, result.energy_joules) == (None, None)


def test_replay_takes_no_memory_of_the_other_variants_blocks(found):
    result = _measured(found[0]["full"])
    assert result.missing == {}
    assert all(each.block("replay") for each in result.rounds)


def test_without_memory_for_its_buckets_replay_is_missing_and_the_rest_is_measured(found):
    result = _measured(found[0]["fuller"])
    assert set(result.missing) == {"replay"}
    assert "out of memory" in result.missing["replay"]
    assert all(each.block("ddp") and each.block("replay") is None for each in result.rounds)


@pytest.mark.parametrize("name", ["anchored", "anchored ddp"])
def test_what_fits_without_the_anchor_is_measured_without_it(name, found):
    result = _measured(found[0][name])
    assert set(result.missing) == {"anchor"}
    assert "out of memory" in result.missing["anchor"]
    assert _measured(found[0]["both fit"]).missing == {}


def test_a_twin_that_does_not_fit_next_to_what_is_measured_leaves_nothing_behind(found):
    assert set(_measured(found[0]["no twin"]).missing) == {"local"}


def test_one_device_at_the_batch_of_all_has_to_fit_next_to_the_twin(found):
    result = _measured(found[0]["base"])
    assert set(result.missing) == {"base"}
    assert all(each.block("local") for each in result.rounds)


def test_an_allocator_that_has_to_empty_its_cache_in_the_rounds_is_told_of_each_rank(found):
    result = _measured(found[0]["idle"])
    first, second = result.allocator_retries
    assert first == 0
    assert second == 3 * len(result.rounds)  # the timed steps of ddp
    assert _measured(found[0]["full"]).allocator_retries == (0, 0)
    assert set(_measured(found[0]["retried"]).missing) == {"anchor"}  # which would be to blame


def test_loss_parity_takes_no_more_memory_than_the_rounds(found):
    result = _measured(found[0]["compared"])
    assert result.missing == {}
    assert result.parity is not None
    assert result.parity.losses == pytest.approx(result.parity.reference_losses, rel=1e-5)


def test_no_rank_waits_in_a_broadcast_while_another_is_timed_alone(found):
    outcomes, (first, second) = found
    plains = [each.block("plain") for each in _measured(outcomes["idle"]).rounds]
    assert {block.ranks for block in plains if block} == {(0,), (1,)}
    pairs = ((first["idle"], second["idle"]), (second["idle"], first["idle"]))
    for timed, idle in pairs:
        assert len(idle.broadcasts) >= 3  # before each block of ddp that follows one of plain
        inside = [at for at in idle.broadcasts for began, ended in timed.bare_steps if began < at < ended]
        assert inside == []


def test_a_rank_steps_on_until_every_device_is_done(found):
    """Rank 0 has given its steps, and done them, long before the device of rank 1 is through."""
    fast, slow = (seen["company"] for seen in found[1])
    crowds = [(mine, other) for mine, other in zip(fast.blocks, slow.blocks, strict=True) if mine.bare]
    assert len(crowds) >= 6
    further = 0
    for mine, other in crowds:
        assert mine.left >= other.timed_done  # it does not leave before the slower one is through
        assert mine.all_done - mine.left <= STEPS_AHEAD * FAST_S  # nor has it given its device much more
        further += sum(mine.timed_done < began < other.timed_done for began, _ in fast.bare_steps)
    assert further >= len(crowds)  # at work meanwhile

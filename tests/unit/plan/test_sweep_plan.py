"""A sweep resolved for what there is."""

from __future__ import annotations

from typing import Any

import pytest

from raybench.errors import RequestError
from raybench.machine.host import Resources
from raybench.plan.sweep_plan import make_sweep_plan
from raybench.spec.sweep import Sweep
from tests.unit.sweeps import planned


def test_all_world_sizes_begin_with_two_devices() -> None:
    assert planned(6, world_sizes="all").world_sizes == (2, 4, 6)


def test_spread_is_pack_on_one_node() -> None:
    plan = planned(4, placement=("pack", "spread"))
    assert plan.placements == ("pack",)
    both = planned(4, num_nodes=2, world_sizes=(2,), placement=("pack", "spread"))
    assert [each.config.placement for each in both.requests] == ["pack", "spread"]
    assert both.group_size == 4  # everywhere, so that two of them can be spread


@pytest.mark.parametrize(
    ("resources", "fields", "words"),
    [
        (Resources("cpu", 1, "a CPU"), {}, "two devices or more"),
        (Resources("cpu", 0, "a CPU"), {}, "two devices or more"),
        (Resources("cuda", 0, "no GPU"), {}, "two devices or more"),
        (Resources("cpu", 2, "a CPU"), {"loopback_nic": True}, "--loopback-nic: of one node of GPUs"),
        (
            Resources("cuda", 4, "a GPU", num_nodes=2),
            {"loopback_nic": True},
            r"--loopback-nic: of one node of GPUs .received 2 nodes, ",
        ),
        (Resources("cpu", 2, "a CPU"), {"world_sizes": (4,)}, "at most 2 workers of 1 core,? unless"),
        (
            Resources("cuda", 2, "a GPU"),
            {"world_sizes": (4,), "resources": {"oversubscribe": True}},
            "at most 2 workers of 1 core and a GPU",
        ),
        (
            Resources("cpu", 2, "a CPU"),
            {"world_sizes": (10**9,), "resources": {"oversubscribe": True}},
            r"--world-sizes: with --oversubscribe at most 16 times .* 32 \(received 1,000,000,000\)",
        ),
    ],
)
def test_what_there_is_not_is_refused_in_a_line(
    resources: Resources, fields: dict[str, Any], words: str
) -> None:
    with pytest.raises(RequestError, match=words) as refusal:
        make_sweep_plan(Sweep.model_validate(fields), resources)
    assert len(refusal.value.problems) == 1


def test_more_workers_than_cores_are_marked() -> None:
    plan = planned(2, world_sizes=(4,), resources={"oversubscribe": True})
    assert plan.oversubscribed
    assert {each.config.oversubscribed for each in plan.requests} == {True}
    assert plan.sweep.resources.device == "cpu"  # resolved: what the directory keeps


def test_how_long_it_may_take_is_not_part_of_the_question() -> None:
    short, long = (planned(4, measure={"max_seconds": seconds}).requests[0] for seconds in (10.0, 20.0))
    assert short.trial_id == long.trial_id
    assert short.trial_id != planned(4, seed=1).requests[0].trial_id


def test_through_adapters_alone_nccl_may_use_neither_links_of_gpus_nor_shared_memory() -> None:
    plain, through = (
        make_sweep_plan(Sweep(loopback_nic=alone), Resources("cuda", 2, "a GPU")) for alone in (False, True)
    )
    variables = {"NCCL_P2P_DISABLE": "1", "NCCL_SHM_DISABLE": "1"}
    assert [each.config.environment for each in through.requests] == [variables]
    assert [each.config.environment for each in plain.requests] == [{}]

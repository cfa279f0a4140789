"""The largest batch by real trials on gloo ranks: memory that is really taken, and failures on any rank."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from raybench.analysis.largest_batch import LargestFit, decide, probe_of
from raybench.machine.host import Resources
from raybench.plan.make_plan import make_plan
from raybench.plan.trials import Plan
from raybench.records.messages import Outcome
from raybench.records.record import TrialRecord
from raybench.spec.study import Study
from raybench.worker.communicators import Communicators
from raybench.worker.group_cache import GroupCache
from tests.ranks.ranks import run_ranks
from tests.ranks.trials import BOTH, serve_trial

MIB = 2**20
LEFT_MIB = 600  # planted: what the host has left for two ranks
CASES: dict[str, dict[str, Any]] = {
    "memory": {"mib": 8},
    "memory again": {"mib": 8, "width": 17},  # after trials that took much and gave it back
    "all ranks": {"most": 11, "ranks": [0, 1]},
    "one rank": {"most": 5, "ranks": [1]},
    "model": {"width": 150_000},
}


def _plan(workload: dict[str, Any]) -> Plan:
    study = {
        "name": "hungry",
        "workload": {"factory": "tests.ranks.hungry:build"} | workload,
        "knobs": {"batch_size": "max"},
        "search": {"max_batch_size": 4096},
        "optimizer": {"momentum": 0.9},
    }
    return make_plan(Study.model_validate(study), Resources("cpu", 2, "a CPU"))


def _find(workload: dict[str, Any], communicators: Communicators, cache: GroupCache) -> list[TrialRecord]:
    """On each rank: probe after probe, as an execution asks for them; every rank hears each outcome."""
    plan, records = _plan(workload), list[TrialRecord]()
    (combination,) = plan.combinations()
    while True:
        probes = map(probe_of, records)
        found = decide(combination, plan.target, probes, plan.rules(combination))
        if found.next_batch is None:
            return records
        request = plan.probe(combination, found.next_batch)
        served: list[Outcome | None] = [*serve_trial(request, BOTH, communicators, cache)] or [None]
        outcome = communicators.everyone.from_leader(served[0])
        assert outcome is not None
        records.append(outcome.to_record(request, study="hungry", started_at="now"))


def _find_all() -> dict[str, list[str]]:
    from raybench.machine import host

    host.available_memory_bytes = lambda: LEFT_MIB * MIB
    torch.set_num_threads(1)
    communicators, cache = Communicators("gloo"), GroupCache()
    lines = {
        name: [record.model_dump_json() for record in _find(workload, communicators, cache)]
        for name, workload in CASES.items()
    }
    communicators.drop_team()
    return lines


@pytest.mark.promise("largest batch")
def test_probes_on_two_ranks():
    by_rank = run_ranks(_find_all, 2)
    assert by_rank[0] == by_rank[1]
    records = {
        name: [TrialRecord.model_validate_json(line) for line in lines] for name, lines in by_rank[0].items()
    }
    for name, found in records.items():
        shown = [(each.config.batch_size, each.state, f"{each.wall_time_s:.2f}") for each in found]
        print(name, shown, [each.reason for each in found if each.reason])
    for name in ("memory", "memory again"):
        _memory(records[name])
    one, other = (_found(records[name]).batch_size or 0 for name in ("memory", "memory again"))
    assert abs(one - other) <= 2
    assert _found(records["all ranks"]).batch_size == 11
    assert _found(records["one rank"]).batch_size == 5
    for name in ("all ranks", "one rank"):
        failed = [record for record in records[name] if record.state != "complete"]
        assert {record.state for record in failed} == {"oom"}
        assert all("planted above" in str(record.reason) for record in failed)
    (refused,) = records["model"]
    assert refused.state == "oom"
    # weights and gradients of 84 GiB each, and momentum
    assert "the model alone needs 251." in str(refused.reason)
    assert "weights 83.8" in str(refused.reason)


def _found(records: list[TrialRecord]) -> LargestFit:
    plan = _plan(CASES["memory"])
    (combination,) = plan.combinations()
    return decide(combination, plan.target, map(probe_of, records), plan.rules(combination))


def _memory(records: list[TrialRecord]) -> None:
    """The 90% are met by the memory that was really taken, and no probe went above it by more than a step."""
    found = _found(records)
    (share,) = {each.share for each in map(probe_of, records) if each.batch_size == found.batch_size}
    assert share is not None
    assert 0.85 < share <= 0.9
    assert {record.state for record in records} == {"complete"}  # nothing was tried that would not fit
    for record in records:
        assert record.probe is not None
        taken, limits = record.probe.device_memory_bytes, record.probe.memory_limit_bytes
        assert taken is not None
        assert limits is not None
        assert max(taken) < min(limits)
        # half of what is left for each rank, beside what it has
        assert all(LEFT_MIB * MIB / 2 < limit < 3 * LEFT_MIB * MIB for limit in limits)
    largest = {record.config.batch_size: record.probe for record in records}[found.batch_size or 0]
    assert largest is not None
    assert largest.fixed_memory_bytes is not None
    assert largest.device_memory_bytes is not None
    growth = max(largest.device_memory_bytes) - max(largest.fixed_memory_bytes)
    # the fixed part was read after a step, of which some may be kept
    assert growth <= (found.batch_size or 0) * 8 * MIB * 1.3 + 32 * MIB

"""Ranks that die, hang, run out of memory, raise or leave: each costs its own trial and no other."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from raybench.records.record import State
from tests.support import faulty
from tests.support.faulty_study import read_records, write_study
from tests.support.forked import ForkedCommand

HUNG_S = 10  # is waited for twice; a sound trial takes a second


def faults_of(folder: Path, batches: dict[int, State], **study: object) -> dict[int, dict[str, object]]:
    """The records by batch size, of a study in which they must end so."""
    write_study(folder, list(batches), **study)  # type: ignore[arg-type]
    command = ForkedCommand("scaling", "faulty.toml", "--output", "out", folder=folder)
    assert command.wait() == 0, command.output
    found = {
        record["request"]["config"]["setting"]["batch_size"]: record
        for record in read_records(folder)
        if not record["request"].get("visit")  # further ones are of the default and the best
    }
    assert {batch: record["state"] for batch, record in found.items()} == batches, command.output
    assert all((record["result"] is None) == (record["state"] != "complete") for record in found.values())
    assert command.survivors(10) == []
    return found


def test_what_fails_at_once_costs_its_trial_and_no_other(tmp_path: Path) -> None:
    found = faults_of(
        tmp_path,
        {
            faulty.FINE: "complete",
            faulty.KILLED: "crashed",
            faulty.OUT_OF_MEMORY: "oom",
            faulty.ALL_OUT_OF_MEMORY: "oom",
            faulty.RAISES: "crashed",
            faulty.NOT_FINITE: "invalid",
            faulty.FLOODS: "complete",
            9: "complete",
        },
    )
    reasons = {batch: str(record["reason"]) for batch, record in found.items()}
    assert "rank 1" in reasons[faulty.KILLED]
    assert "died" in reasons[faulty.KILLED]
    assert "rank 1" in reasons[faulty.OUT_OF_MEMORY]
    assert "rank 1: ValueError: planted in the user's model" in reasons[faulty.RAISES]
    assert "not finite" in reasons[faulty.NOT_FINITE]
    groups = {batch: record["group"] for batch, record in found.items()}
    # a death ends the group; what is agreed on, or freed, does not
    assert groups[faulty.FINE] == groups[faulty.KILLED] == 1
    assert {groups[batch] for batch in list(found)[2:]} == {2}


def test_what_hangs_costs_its_time_and_no_other_trial(tmp_path: Path) -> None:
    found = faults_of(
        tmp_path,
        {
            faulty.HUNG: "timeout",
            faulty.LEAVES: "crashed",
            faulty.NEVER_MADE: "timeout",
            faulty.FINE: "complete",
        },
        workload=f'mark = "{tmp_path / "mark"}"',
        timeout_s=HUNG_S,
    )
    assert f"{HUNG_S} s" in str(found[faulty.HUNG]["reason"])
    groups = [record["group"] for record in found.values()]
    assert groups == [1, 2, 3, 4]


@pytest.mark.promise("exit 1")
def test_where_no_trial_completes_the_code_is_1_and_the_reason_is_there(tmp_path: Path) -> None:
    write_study(tmp_path, [faulty.RAISES])
    command = ForkedCommand("scaling", "faulty.toml", "--output", "out", folder=tmp_path)
    assert command.wait() == 1, command.output
    assert {record["state"] for record in read_records(tmp_path)} == {"crashed"}
    assert "planted in the user's model" in (tmp_path / "out" / "report" / "report.md").read_text()


@pytest.mark.promise("group ends")
def test_a_group_that_ends_with_a_failure_loses_and_invents_no_trial(tmp_path: Path) -> None:
    """As on NCCL: every rank that fails says so and ends, and the next trial gets a new group.

    ``RAYBENCH_FAULT_REPEATS`` times each: out of memory on one rank, on some, on all, and a sound trial after
    each, whose step is a planted wait. More than a few need a longer ``--timeout`` of pytest.
    """
    repeats = int(os.environ.get("RAYBENCH_FAULT_REPEATS", "1"))
    batches = [200]
    for number in range(repeats):
        for failing in (1, 2, 3):
            batches += [300 + 10 * number + failing, 200 + 10 * (3 * number + failing)]
    write_study(tmp_path, batches, "[3]", factory="tests.support.faulty:build_ending")
    command = ForkedCommand("scaling", "faulty.toml", "--output", "out", "--oversubscribe", folder=tmp_path)
    assert command.wait(120 + 150 * repeats) == 0, command.output
    found = {
        record["request"]["config"]["setting"]["batch_size"]: record
        for record in read_records(tmp_path)
        if not record["request"].get("visit")
    }
    assert sorted(found) == sorted(batches)
    states = {batch: record["state"] for batch, record in found.items()}
    assert states == {batch: "oom" if batch % 10 else "complete" for batch in batches}
    for batch, record in found.items():
        if batch % 10:
            first = 3 - batch % 10
            reasons = [f"rank {rank}: MemoryError: planted" for rank in range(first, 3)]
            assert record["reason"] in reasons
            continue
        blocks = [block for round_ in record["result"]["rounds"] for block in round_["blocks"]]
        for block in blocks:
            samples = batches[0] if block["variant"] == "anchor" else batch
            if block["variant"] != "replay":
                assert samples * faulty.Ending.SECONDS_PER_SAMPLE < block["slowest_s"]
    groups = [found[batch]["group"] for batch in batches]
    assert groups == sorted(groups)
    assert groups[-1] == 3 * repeats + 1  # a failure ends its group, and nothing else does
    assert command.survivors(10) == []


@pytest.mark.promise("placements")
def test_sub_groups_and_placements_oversubscribed(tmp_path: Path) -> None:
    write_study(tmp_path, [8], "[1, 2, 3, 4]", scaling='placement = ["spread", [1, 3], [0, 2, 3]]')
    refused = ForkedCommand("scaling", "faulty.toml", "--output", "out", folder=tmp_path)
    assert refused.wait() == 2
    assert "oversubscribe" in refused.output

    command = ForkedCommand("scaling", "faulty.toml", "--output", "out", "--oversubscribe", folder=tmp_path)
    assert command.wait() == 0, command.output
    records = [record for record in read_records(tmp_path) if record["request"]["role"] == "scaling"]
    assert {record["state"] for record in records} == {"complete"}
    configs = [record["request"]["config"] for record in records]
    assert all(config["oversubscribed"] for config in configs)
    placed = {
        (config["world_size"], str(config["placement"])): record["ranks"]
        for config, record in zip(configs, records, strict=True)
    }
    assert placed == {
        (1, "pack"): [0],
        (2, "spread"): [0, 1],
        (2, "[1, 3]"): [1, 3],
        (3, "spread"): [0, 1, 2],
        (3, "[0, 2, 3]"): [0, 2, 3],
        (4, "spread"): [0, 1, 2, 3],
    }
    for config, record in zip(configs, records, strict=True):
        for round_ in record["result"]["rounds"]:
            for block in round_["blocks"]:
                expected = 1 if block["variant"] == "plain" else config["world_size"]
                assert len(block["ranks"]) == expected
                assert set(block["ranks"]) <= set(record["ranks"])

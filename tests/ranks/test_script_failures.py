"""Scripts of people's own that cannot be measured: each way to fail, on real gloo ranks."""

from __future__ import annotations

import pytest

from raybench.records.messages import Outcome
from tests.ranks.own_scripts import request
from tests.ranks.trials import complete

ASKED = {
    "each alone": request("planted.py", "--bare --base-ms 5"),
    "never steps": request("faulty.py", "'never steps'"),
    "spawns": request("faulty.py", "spawns"),
    "no group": request("faulty.py", "'no group'"),
    "no samples": request("faulty.py", "fine"),
    "raises": request("faulty.py", "raises", script={"samples_per_step": 8}),
    "leaves": request("faulty.py", "leaves", script={"samples_per_step": 8}),
    "dies": request("faulty.py", "dies", script={"samples_per_step": 8}),
    "hangs": request(
        "faulty.py",
        "hangs",
        script={"samples_per_step": 8},
        measure={"timeout_seconds": 40},  # a twentieth is for ending the script: two seconds on busy cores
    ),
    "ends early": request("faulty.py", "'ends early'", script={"samples_per_step": 8}),
    "without ddp": request("sharded.py", "", script={"ddp_knobs": ["bucket_cap_mb"]}),
    "after all": request("planted.py", "--base-ms 5"),
}


@pytest.mark.parametrize(
    ("how", "state", "words"),
    [
        ("never steps", "invalid", "no step of a torch.optim optimizer"),
        ("spawns", "invalid", "starts its ranks itself"),
        ("no group", "invalid", "init_process_group"),
        ("each alone", "invalid", "each rank trains alone"),
        ("no samples", "invalid", "--samples-per-step"),
        ("raises", "crashed", "rank 1: ValueError: a bug of one rank"),
        ("leaves", "crashed", "rank 1: the script exited with code 3"),
        ("dies", "crashed", "rank 1: the script exited with code -9"),
        ("hangs", "timeout", "rank 1: the script hangs"),
        ("ends early", "invalid", "the script ended within"),
        ("without ddp", "invalid", "knobs.bucket_cap_mb: the script makes no DistributedDataParallel"),
    ],
)
def test_each_way_to_fail_has_its_state_and_a_line(
    of_scripts: dict[str, Outcome], how: str, state: str, words: str
) -> None:
    outcome = of_scripts[how]
    assert (outcome.state, words in (outcome.reason or "")) == (state, True), outcome.reason
    assert not outcome.broken
    assert not outcome.ends_group


def test_what_it_printed_is_kept(of_scripts: dict[str, Outcome]) -> None:
    logs = {file.name: file.content.decode() for file in of_scripts["raises"].files}
    assert set(logs) == {"rank-0.log", "rank-1.log"}
    assert "a bug of one rank" in logs["rank-1.log"]


def test_the_group_serves_on(of_scripts: dict[str, Outcome]) -> None:
    complete(of_scripts["after all"])

"""Scripts of people's own, on real gloo ranks: what is counted, replaced, and missing."""

from __future__ import annotations

from pathlib import Path

import pytest

from raybench.records.messages import Outcome
from raybench.spec.knobs import Setting
from tests.ranks.own_scripts import request, served_in_turn
from tests.ranks.ranks import Ranks
from tests.ranks.trials import complete

ASKED = {
    "two": request(
        "planted.py",
        "--bs {batch_size}",
        setting=Setting(batch_size=4, bucket_cap_mb=3),
        script={"ddp_knobs": ["bucket_cap_mb"]},
    ),
    "accumulates": request(
        "planted.py",
        "--accumulation 3 --base-ms 5",
        setting=Setting(batch_size=8, bucket_cap_mb="1e-05/5e-05"),  # 10 and 52 bytes
        script={"ddp_knobs": ["bucket_cap_mb"]},
    ),
    "without ddp": request("planted.py", "--by-hand --base-ms 5"),
    "unused": request("planted.py", "--unused --base-ms 5"),
    "gathers now and then": request(
        "planted.py", "--gathers-every 90 --gather-ms 1000 --base-ms 5", measure={"min_rounds": 8}
    ),
    "next fold": request("planted.py", "--new-optimizer-at 20 --base-ms 5"),
    "none unused": request(
        "planted.py", "--unused --base-ms 5", script={"ddp_knobs": ["find_unused_parameters"]}
    ),
    "ends after enough": request("planted.py", "--base-ms 25 --steps 50"),
    "as a module": request(
        "", "--base-ms 5", script={"script": "tests.support.scripts.planted", "is_module": True}
    ),
    "samples": request("faulty.py", "fine", script={"samples_per_step": 8}),
}


@pytest.fixture(scope="module")
def served(pair: Ranks) -> dict[str, Outcome]:
    return served_in_turn(pair, ASKED)


def test_samples_are_what_the_loaders_gave(served: dict[str, Outcome]) -> None:
    assert complete(served["two"]).samples_per_step == 8.0
    accumulated = complete(served["accumulates"])
    assert accumulated.samples_per_step == 2 * 3 * 8
    assert accumulated.epoch_samples == 100_000 * 8 * 3
    assert complete(served["samples"]).samples_per_step == 16.0


def test_the_study_s_knobs_replace_the_arguments_of_ddp(served: dict[str, Outcome]) -> None:
    assert complete(served["two"]).overridden == {"bucket_cap_mb": "10"}
    assert complete(served["accumulates"]).overridden == {"bucket_cap_mb": "10"}
    assert complete(served["accumulates"]).bucket_bytes == (16, 96)  # of gradients of 16, 16, 16 and 64
    assert complete(served["as a module"]).overridden == {}


def test_what_a_script_cannot_tell_is_missing_with_the_reason(served: dict[str, Outcome]) -> None:
    bare = complete(served["without ddp"])
    assert {block.variant for each in bare.rounds for block in each.blocks} == {"ddp"}
    assert "DistributedDataParallel" in bare.missing["local"]
    assert "find_unused_parameters" in complete(served["unused"]).missing["local"]
    assert "local" not in complete(served["gathers now and then"]).missing


def test_what_is_gathered_now_and_then_is_no_communication(served: dict[str, Outcome]) -> None:
    """Planted: a second, which is 167 ms of each step of a block, and 5 ms in all others."""
    found = complete(served["gathers now and then"])
    assert len(found.rounds) == 8
    assert max(block.slowest_s for each in found.rounds for block in each.blocks) < 0.150


def test_the_optimizer_of_the_next_stage_is_timed_too(served: dict[str, Outcome]) -> None:
    assert len(complete(served["next fold"]).rounds) == 4


def test_a_knob_at_its_default_replaces_an_argument_of_ddp_too(served: dict[str, Outcome]) -> None:
    found = complete(served["none unused"])
    assert found.overridden == {"find_unused_parameters": "True"}
    assert "local" not in found.missing


def test_one_that_ends_after_enough_rounds_is_measured(served: dict[str, Outcome]) -> None:
    assert len(complete(served["ends after enough"]).rounds) == 3


def test_a_module_is_a_script(served: dict[str, Outcome]) -> None:
    complete(served["as a module"])


def test_what_it_printed_is_kept(served: dict[str, Outcome]) -> None:
    assert any("trained to the end" in file.content.decode() for file in served["ends after enough"].files)


def test_nothing_is_written_where_the_tests_run(served: dict[str, Outcome]) -> None:
    assert not Path("last.pt").exists()

"""Scripts of people's own, on real gloo ranks: what is counted, replaced, and missing."""

from __future__ import annotations

from pathlib import Path

import pytest

from raybench.records.messages import Outcome
from raybench.spec.knobs import Setting
from raybench.worker.scripts.script_trial import HAS_LONG_STEPS
from tests.ranks.own_scripts import request
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
    "short epochs": request("planted.py", "--bs {batch_size} --epoch 20 --base-ms 5 --compiled-step"),
    "without loader": request(
        "planted.py", "--bs {batch_size} --no-loader --accumulation 3 --base-ms 5 --built-in"
    ),
    "without ddp": request("planted.py", "--by-hand --base-ms 5"),
    "sharded": request("sharded.py", ""),
    "unused": request("planted.py", "--unused --base-ms 5"),
    "logs": request("planted.py", "--gathers-every 3 --base-ms 60", measure={"min_rounds": 3}),
    "evaluates": request(
        "planted.py", "--gathers-every 3 --gather-ms 300 --base-ms 5", measure={"min_rounds": 3}
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


def test_samples_are_what_the_loaders_gave(of_scripts: dict[str, Outcome]) -> None:
    assert complete(of_scripts["two"]).samples_per_step == 8.0
    accumulated = complete(of_scripts["accumulates"])
    assert accumulated.samples_per_step == 2 * 3 * 8
    assert accumulated.epoch_samples == 100_000 * 8 * 3
    assert complete(of_scripts["samples"]).samples_per_step == 16.0
    assert complete(of_scripts["without loader"]).samples_per_step == 2 * 3 * 8  # of its backward passes
    short = complete(of_scripts["short epochs"])  # steps of 8, 8 and 4 on each rank
    assert short.samples_per_step == pytest.approx(2 * 20 / 3, rel=0.05)
    assert short.global_batch_size == 16


def test_ranks_that_read_the_same_samples_are_known(of_scripts: dict[str, Outcome]) -> None:
    """Without a DistributedSampler; one that has it, and loaders that say nothing, are not taken for them."""
    assert complete(of_scripts["two"]).same_samples
    assert not complete(of_scripts["sharded"]).same_samples
    assert not complete(of_scripts["without loader"]).same_samples


def test_the_study_s_knobs_replace_the_arguments_of_ddp(of_scripts: dict[str, Outcome]) -> None:
    assert complete(of_scripts["two"]).overridden == {"bucket_cap_mb": "10"}
    assert complete(of_scripts["accumulates"]).overridden == {"bucket_cap_mb": "10"}
    assert complete(of_scripts["accumulates"]).bucket_bytes == (16, 96)  # of gradients of 16, 16, 16 and 64
    assert complete(of_scripts["as a module"]).overridden == {}


def test_what_a_script_cannot_tell_is_missing_with_the_reason(of_scripts: dict[str, Outcome]) -> None:
    bare = complete(of_scripts["without ddp"])
    assert {block.variant for each in bare.rounds for block in each.blocks} == {"ddp"}
    assert "DistributedDataParallel" in bare.missing["local"]
    assert "local" not in complete(of_scripts["unused"]).missing  # DDP's own look for them is not sent either
    assert "local" not in complete(of_scripts["logs"]).missing
    assert "local" not in complete(of_scripts["without loader"]).missing  # a built-in hook is switched too


def test_of_one_that_shards_its_model_there_are_steps_and_samples(of_scripts: dict[str, Outcome]) -> None:
    """Each waits 20 ms; FSDP's gathers and scatters are in it, and their time is missing with the reason."""
    found = complete(of_scripts["sharded"])
    assert min(block.slowest_s for each in found.rounds for block in each.blocks) > 0.020
    assert found.samples_per_step == 16.0
    assert "DistributedDataParallel" in found.missing["local"]


def test_steps_that_gather_are_steps_and_those_that_last_are_no_communication(
    of_scripts: dict[str, Outcome],
) -> None:
    """Planted: 300 ms in every third step, 5 ms in all others: 105 ms in the mean of any six."""
    found = complete(of_scripts["evaluates"])
    assert found.missing["local"] == HAS_LONG_STEPS
    blocks = [block for each in found.rounds for block in each.blocks]
    assert {block.variant for block in blocks} == {"ddp"}
    assert min(block.slowest_s for block in blocks) > 0.105
    assert complete(of_scripts["logs"]).local_collectives == 0  # such steps are not in those of ``local``


def test_the_optimizer_of_the_next_stage_is_timed_too(of_scripts: dict[str, Outcome]) -> None:
    assert len(complete(of_scripts["next fold"]).rounds) == 4


def test_a_knob_at_its_default_replaces_an_argument_of_ddp_too(of_scripts: dict[str, Outcome]) -> None:
    found = complete(of_scripts["none unused"])
    assert found.overridden == {"find_unused_parameters": "True"}
    assert "local" not in found.missing


def test_one_that_ends_after_enough_rounds_is_measured(of_scripts: dict[str, Outcome]) -> None:
    assert len(complete(of_scripts["ends after enough"]).rounds) == 3


def test_a_module_is_a_script(of_scripts: dict[str, Outcome]) -> None:
    complete(of_scripts["as a module"])


def test_what_it_printed_is_kept(of_scripts: dict[str, Outcome]) -> None:
    assert any(
        "trained to the end" in file.content.decode() for file in of_scripts["ends after enough"].files
    )


def test_nothing_is_written_where_the_tests_run(of_scripts: dict[str, Outcome]) -> None:
    assert not Path("last.pt").exists()

"""Scripts of people's own, on real gloo ranks: planted times found again, and each way to fail."""

from __future__ import annotations

from pathlib import Path
from statistics import median
from typing import Any

import psutil
import pytest

from raybench.records.messages import Outcome
from raybench.records.requests import StepsRequest
from raybench.records.results import StepsResult
from raybench.spec.knobs import Setting
from raybench.spec.study import MeasureSpec
from raybench.spec.workloads import FactorySpec, LightningSpec, ScriptSpec
from raybench.worker.communicators import Communicators
from raybench.worker.group_cache import GroupCache
from tests.conftest import ROOT
from tests.ranks.ranks import Ranks
from tests.ranks.trials import BOTH, complete, serve_trial
from tests.unit import studies

pytestmark = pytest.mark.alone

FOLDER = ROOT / "tests" / "support" / "scripts"
SLACK_S = 0.010  # beside what sleeps: the model, the loader, gloo, on cores that others use too


def _request(name: str, args: str, **fields: Any) -> StepsRequest:
    spec = {"script": str(FOLDER / name), "args": args} | fields.pop("script", {})
    measure = {"steps": 6, "min_rounds": 4, "warmup_steps": 1, "max_seconds": 5, "timeout_seconds": 40}
    given: dict[str, Any] = {
        "role": "scaling",
        "workload": ScriptSpec.model_validate(spec),
        "setting": Setting(batch_size=8),
        "world_size": 2,
        "variants": ("local", "ddp"),
        "measure": MeasureSpec(**(measure | fields.pop("measure", {}))),
    }
    return studies.request(**(given | fields))


PLANTED = "--bs {batch_size} --base-ms 60 --slow-ms 40 --send-ms 30 --data-ms 20"
OWN = "tests.support.own_trainings"
BRIEF = {"steps": 2, "min_rounds": 3}
ALONE_TOO: dict[str, Any] = {"variants": ("plain", "ddp"), "measure": BRIEF}
ASKED = {
    "one": _request("planted.py", PLANTED, world_size=1, variants=("plain",)),
    "two": _request(
        "planted.py",
        PLANTED,
        setting=Setting(batch_size=4, bucket_cap_mb=3),
        script={"ddp_knobs": ["bucket_cap_mb"]},
    ),
    "accumulates": _request(
        "planted.py",
        "--accumulation 3 --base-ms 5",
        setting=Setting(batch_size=8, bucket_cap_mb="1e-05/5e-05"),  # 10 and 52 bytes
        script={"ddp_knobs": ["bucket_cap_mb"]},
    ),
    "without ddp": _request("planted.py", "--by-hand --base-ms 5"),
    "each alone": _request("planted.py", "--bare --base-ms 5"),
    "unused": _request("planted.py", "--unused --base-ms 5"),
    "gathers now and then": _request("planted.py", "--gathers-every 40 --base-ms 5"),
    "none unused": _request(
        "planted.py", "--unused --base-ms 5", script={"ddp_knobs": ["find_unused_parameters"]}
    ),
    "ends after enough": _request("planted.py", "--base-ms 25 --steps 50"),
    "as a module": _request(
        "", "--base-ms 5", script={"script": "tests.support.scripts.planted", "is_module": True}
    ),
    "never steps": _request("faulty.py", "'never steps'"),
    "spawns": _request("faulty.py", "spawns"),
    "no group": _request("faulty.py", "'no group'"),
    "no samples": _request("faulty.py", "fine"),
    "samples": _request("faulty.py", "fine", script={"samples_per_step": 8}),
    "raises": _request("faulty.py", "raises", script={"samples_per_step": 8}),
    "leaves": _request("faulty.py", "leaves", script={"samples_per_step": 8}),
    "dies": _request("faulty.py", "dies", script={"samples_per_step": 8}),
    "hangs": _request(
        "faulty.py",
        "hangs",
        script={"samples_per_step": 8},
        measure={"timeout_seconds": 25},
    ),
    "ends early": _request("faulty.py", "'ends early'", script={"samples_per_step": 8}),
    "one by script": _request("waiting.py", "", world_size=1, variants=("plain",), measure=BRIEF),
    "two by script": _request("waiting.py", "", measure=BRIEF),
    "by factory": _request(
        "", "", workload=FactorySpec.model_validate({"factory": f"{OWN}:WaitingWorkload"}), **ALONE_TOO
    ),
    "by adapter": _request(
        "",
        "",
        workload=LightningSpec.model_validate({"lightning": f"{OWN}:build_waiting_lightning"}),
        **ALONE_TOO,
    ),
    "after all": _request("planted.py", "--base-ms 5"),
}


def _serve(asked: list[StepsRequest]) -> tuple[list[Outcome], int]:
    """On each rank: serve the trials in one group; what is left running of them."""
    before = {*psutil.Process().children(recursive=True)}  # a loader's server, of another module's trials
    communicators, cache, outcomes = Communicators("gloo"), GroupCache(), list[Outcome]()
    for request in asked:
        outcomes += serve_trial(request, BOTH[: request.config.world_size], communicators, cache)
    communicators.drop_team()
    return outcomes, len({*psutil.Process().children(recursive=True)} - before)


@pytest.fixture(scope="module")
def served(pair: Ranks) -> dict[str, Outcome]:
    (outcomes, left), (_, left_of_other) = pair.call(_serve, list(ASKED.values()), timeout_s=280)
    assert left == left_of_other == 0
    return dict(zip(ASKED, outcomes, strict=True))


def _level(found: StepsResult, variant: str) -> float:
    """The slowest rank's step in the least disturbed block, in s: no sleep is shorter than asked."""
    blocks = (block for each in found.rounds for block in each.blocks)
    return min(block.slowest_s for block in blocks if block.variant == variant)


def _is(found_s: float, planted_s: float) -> bool:
    """No sleep is shorter than asked."""
    return planted_s - 0.002 < found_s < planted_s + SLACK_S


def test_planted_times_are_found_again(served: dict[str, Outcome]) -> None:
    one, two = complete(served["one"]), complete(served["two"])
    assert _is(_level(one, "plain"), 0.080)
    assert _is(_level(two, "ddp"), 0.150)
    assert _is(_level(two, "local"), 0.120)
    local = [block for each in two.rounds for block in each.blocks if block.variant == "local"]
    assert median(max(block.step_time_s) - block.mean_s for block in local) == pytest.approx(0.020, abs=0.005)
    phases = [each.seconds for each in two.phases if each.variant == "ddp"]
    assert _is(min(each["data"] for each in phases), 0.020)
    assert _is(min(each["forward"] for each in phases), 0.080)  # the mean of the ranks
    assert _level(one, "plain") / _level(two, "ddp") == pytest.approx(80 / 150, abs=0.03)


def test_factory_adapter_and_script_have_one_efficiency(served: dict[str, Outcome]) -> None:
    """Planted: 100 ms a step alone, 150 ms on two; within 3 points."""
    found = {name: complete(served[name]) for name in ASKED if " by " in f" {name}"}
    assert len(found) == 4
    one, two = found["one by script"], found["two by script"]
    ratios = {name: _level(found[name], "plain") / _level(found[name], "ddp") for name in list(found)[2:]}
    ratios["by script"] = _level(one, "plain") / _level(two, "ddp")
    assert ratios == {name: pytest.approx(100 / 150, abs=0.03) for name in ratios}


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


def test_a_knob_at_its_default_replaces_an_argument_of_ddp_too(served: dict[str, Outcome]) -> None:
    found = complete(served["none unused"])
    assert found.overridden == {"find_unused_parameters": "True"}
    assert "local" not in found.missing


def test_one_that_ends_after_enough_rounds_is_measured(served: dict[str, Outcome]) -> None:
    assert len(complete(served["ends after enough"]).rounds) == 3


def test_a_module_is_a_script(served: dict[str, Outcome]) -> None:
    complete(served["as a module"])


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
    ],
)
def test_each_way_to_fail_has_its_state_and_a_line(
    served: dict[str, Outcome], how: str, state: str, words: str
) -> None:
    outcome = served[how]
    assert (outcome.state, words in (outcome.reason or "")) == (state, True), outcome.reason
    assert not outcome.broken
    assert not outcome.ends_group


def test_what_it_printed_is_kept(served: dict[str, Outcome]) -> None:
    logs = {file.name: file.content.decode() for file in served["raises"].files}
    assert set(logs) == {"rank-0.log", "rank-1.log"}
    assert "a bug of one rank" in logs["rank-1.log"]
    assert any("trained to the end" in file.content.decode() for file in served["ends after enough"].files)


def test_the_group_serves_on_and_nothing_is_left(served: dict[str, Outcome]) -> None:
    complete(served["after all"])
    assert not Path("last.pt").exists()

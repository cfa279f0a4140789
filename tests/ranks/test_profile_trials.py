"""Trials that are profiled when their rounds are done, on two gloo ranks: the traces, and what they say."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from raybench.errors import InvalidTrialError
from raybench.records.messages import Outcome
from raybench.records.requests import StepsRequest
from raybench.spec.knobs import Setting
from raybench.spec.study import MeasureSpec
from raybench.worker.communicators import Communicators
from raybench.worker.group_cache import GroupCache
from raybench.worker.steps import profiling, steps_trial
from raybench.worker.steps.profiling import traced_rank
from tests.ranks.agreement import measured_undisturbed
from tests.ranks.planted import MAX_RANKS, Plant, blocks_aligned
from tests.ranks.ranks import Ranks
from tests.ranks.trials import BOTH, SHORT, complete, serve_trial
from tests.unit import studies

pytestmark = pytest.mark.alone

LATE_S = 0.030  # of the second rank, in the forward pass
LAYERS_S = (0.006, 0.006, 0.006)  # of the backward pass; each layer has a bucket of its own
NEAR_S = 0.006
MOST_BYTES = 2**20  # of a trace of a small model: it has some hundred operators
SHORTEST: dict[str, Any] = {"half_width": 0.5, "steps": 2, "min_rounds": 3, "warmup_steps": 1}


def request(**fields: Any) -> StepsRequest:
    """A search's trial: nothing is measured beside its rounds but what ``measure`` asks for."""
    measure = MeasureSpec(**SHORTEST | fields.pop("measure", {}))
    return studies.request(role="search", variants=SHORT, measure=measure, **fields)


def serve_all(requests: dict[str, StepsRequest]) -> dict[str, list[Outcome]]:
    """On each rank."""
    torch.set_num_threads(1)
    communicators, cache = Communicators("gloo"), GroupCache()
    found = {}
    for name, asked in requests.items():
        ranks = BOTH[: asked.config.world_size]
        with pytest.MonkeyPatch.context() as patch:
            if name == "too large":
                patch.setattr(profiling, "MAX_BYTES", 100)
            if name == "fails":
                patch.setattr(steps_trial, "traces", _cannot_be_had)
            found[name] = serve_trial(asked, ranks, communicators, cache)
    communicators.drop_team()
    return found


def _cannot_be_had(*_: Any, **__: Any) -> Any:
    raise InvalidTrialError("planted")


@pytest.fixture(scope="module")
def served(pair: Ranks) -> dict[str, Outcome]:
    setting = Setting(batch_size=8, bucket_cap_mb=1)
    requests = {
        "profiled": request(setting=setting, measure={"profile": True}),
        "accumulated": request(
            setting=setting.model_copy(update={"gradient_accumulation": 3}), measure={"profile": True}
        ),
        "not asked": request(setting=setting.model_copy(update={"batch_size": 4})),
        "alone": request(setting=setting, world_size=1, measure={"profile": True}),
        "too large": request(setting=setting, measure={"profile": True}),
        "fails": request(setting=setting, measure={"profile": True}),
    }
    (leader, other) = pair.call(serve_all, requests)
    assert not any(other.values())  # what it has travelled to the leader
    return {name: outcomes[0] for name, outcomes in leader.items()}


def events(outcome: Outcome) -> list[list[dict[str, Any]]]:
    """Of each rank's trace."""
    return [json.loads(gzip.decompress(file.content))["traceEvents"] for file in outcome.files]


def names_of(trace: list[dict[str, Any]]) -> list[str]:
    return [event["name"] for event in trace if event.get("ph") == "X"]


def test_every_rank_has_a_trace_that_tensorboard_finds(served: dict[str, Outcome]) -> None:
    files = served["profiled"].files
    assert [file.name for file in files] == ["rank0.pt.trace.json.gz", "rank1.pt.trace.json.gz"]
    assert all(0 < len(file.content) < MOST_BYTES for file in files)
    ranks = [
        json.loads(gzip.decompress(file.content))["distributedInfo"]["rank"]
        for file in served["profiled"].files
    ]
    assert ranks == [0, 1]


def test_phases_are_ranges_and_transfers_are_there(served: dict[str, Outcome]) -> None:
    for trace in events(served["profiled"]):
        names = names_of(trace)
        for phase in ("data", "forward", "backward", "optimizer"):
            assert names.count(f"raybench/{phase}") == profiling.ACTIVE, phase
        assert sum(name.startswith("ProfilerStep#") for name in names) == profiling.ACTIVE
        assert names.count("gloo:all_reduce") >= profiling.ACTIVE


def test_ranges_lie_in_their_step_one_after_the_other(served: dict[str, Outcome]) -> None:
    for trace in events(served["accumulated"]):
        ranges = sorted(
            (event["ts"], event["ts"] + event["dur"], event["name"].removeprefix("raybench/"))
            for event in trace
            if event.get("ph") == "X" and event["name"].startswith("raybench/")
        )
        one_step = [*["data", "forward", "backward"] * 3, "optimizer"]
        assert [name for _, _, name in ranges] == one_step * profiling.ACTIVE
        ends = [end for _, end, _ in ranges]
        assert all(begin >= end for (begin, _, _), end in zip(ranges[1:], ends, strict=False))


def test_the_record_says_what_the_traces_say(served: dict[str, Outcome]) -> None:
    outcome = served["profiled"]
    said = complete(outcome).profile
    assert said == tuple(traced_rank(trace, rank) for rank, trace in enumerate(events(outcome)))
    for each in said:
        assert 0 <= each.both_s <= each.communication_s
        assert 0 < each.compute_s < each.steps_s


def test_one_device_has_a_trace_without_transfers(served: dict[str, Outcome]) -> None:
    (trace,) = events(served["alone"])
    (said,) = complete(served["alone"]).profile
    assert "raybench/backward" in names_of(trace)
    assert said.communication_s == 0


def test_nothing_is_profiled_unasked(served: dict[str, Outcome]) -> None:
    result = complete(served["not asked"])
    assert served["not asked"].files == ()
    assert result.profile == ()
    assert "profile" not in result.missing


@pytest.mark.parametrize(("case", "reason"), [("too large", "100 may travel"), ("fails", "planted")])
def test_a_profile_that_cannot_be_had_costs_only_itself(
    served: dict[str, Outcome], case: str, reason: str
) -> None:
    result = complete(served[case])
    assert len(result.rounds) == SHORTEST["min_rounds"]
    assert reason in result.missing["profile"]
    assert served[case].files == ()
    assert result.profile == ()


def test_planted_transfers_are_hidden_and_exposed_as_planted(pair: Ranks, tmp_path: Path) -> None:
    """The first rank's transfers wait for the second's, which comes late: longer than its layers take.

    The first one begins when the first of three layers is done, so that two layers hide it.
    """
    stamps = tmp_path / "stamps"
    np.zeros(MAX_RANKS).tofile(stamps)
    plant = Plant(straggler_s=LATE_S, straggler_rank=1, backward_s=LAYERS_S)
    setting = Setting(batch_size=8, bucket_cap_mb=0.0005)
    late = request(workload=plant.spec(str(stamps)), setting=setting, measure={"profile": True})
    waits, comes_late = measured_undisturbed(
        lambda: complete(pair.call(_serve_planted, late)[0][0]), lambda steps: steps
    ).profile
    assert waits.both_s / waits.num_steps == pytest.approx(sum(LAYERS_S[1:]), abs=NEAR_S)
    assert waits.alone_s / waits.num_steps == pytest.approx(LATE_S, abs=NEAR_S)
    assert comes_late.alone_s / comes_late.num_steps < NEAR_S


def _serve_planted(asked: StepsRequest) -> list[Outcome]:
    torch.set_num_threads(1)
    communicators = Communicators("gloo")
    with blocks_aligned():
        outcomes = serve_trial(asked, BOTH, communicators, GroupCache())
    communicators.drop_team()
    return outcomes

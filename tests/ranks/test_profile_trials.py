"""Trials that are profiled when their rounds are done, on two gloo ranks: their traces."""

from __future__ import annotations

import gzip
import json
from typing import Any

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
from tests.ranks.ranks import Ranks
from tests.ranks.trials import BOTH, SHORT, complete, serve_trial
from tests.unit import studies

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


@pytest.mark.promise("traces")
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


def test_one_device_has_a_trace_without_transfers(served: dict[str, Outcome]) -> None:
    (trace,) = events(served["alone"])
    names = names_of(trace)
    assert "raybench/backward" in names
    assert "gloo:all_reduce" not in names


def test_nothing_is_profiled_unasked(served: dict[str, Outcome]) -> None:
    result = complete(served["not asked"])
    assert served["not asked"].files == ()
    assert "profile" not in result.missing


@pytest.mark.parametrize(("case", "reason"), [("too large", "a rank may have 100"), ("fails", "planted")])
def test_a_profile_that_cannot_be_had_costs_only_itself(
    served: dict[str, Outcome], case: str, reason: str
) -> None:
    result = complete(served[case])
    assert len(result.rounds) == SHORTEST["min_rounds"]
    assert reason in result.missing["profile"]
    assert served[case].files == ()

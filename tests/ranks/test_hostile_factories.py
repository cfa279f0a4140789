"""Workloads of somebody's own that lie, leave, or change torch: no false figure, and the next is right."""

from __future__ import annotations

import gc
from typing import Any

import pytest
import torch

from raybench.errors import LONGEST_LINE
from raybench.records.messages import Outcome
from raybench.records.record import TrialRecord
from raybench.records.requests import TrainingRequest, TrialRequest
from raybench.spec.knobs import Setting
from raybench.spec.study import MeasureSpec, OptimizerSpec
from raybench.spec.training import TrainingSpec
from raybench.spec.workloads import FactorySpec
from raybench.worker.communicators import Communicators
from raybench.worker.group_cache import GroupCache
from raybench.worker.process_state import ProcessState
from tests.ranks import hostile
from tests.ranks.ranks import run_ranks
from tests.ranks.trials import BOTH, SHORT, complete, serve_trial
from tests.unit import studies

MEASURE = MeasureSpec(steps=3, min_rounds=3, warmup_steps=1, max_seconds=5, timeout_seconds=60)
FEW = "8 samples, as asked for (received 3 by the first dimension"
REAL = ("no data set", "an iterator", "a generator", "a number", "exit in dataset", "exit in a sample")
OF_THE_LOADER = ("collate drops", "counts vary")
INVALID = {
    "few": FEW,
    "few in a dict": FEW,
    "few in a tuple": FEW,
    "few in lists": FEW,
    "many": "8 samples, as asked for (received 32",
    "two sizes": "first dimensions of 3, 8",
    "nothing to count": "samples that can be counted",
    "collate drops": FEW,
    "counts vary": "samples(batch): the same for every batch",
    **dict.fromkeys(hostile.COUNTS, "samples(batch): "),
    **dict.fromkeys(hostile.TOKENS, "tokens(batch): "),
}
CRASHED = {
    "exit in build": "SystemExit: 0",
    "exit in model": "SystemExit: 0",
    "exit in loss": "SystemExit: 0",
    "interrupt in loss": "KeyboardInterrupt",
    "cancelled in loss": "CancelledError: gone",
    "unprintable": r"OSError: no file a\udcff\x1b[2J\u202eb",
    "five megabytes": "ValueError: xxx",
    "unspeakable": "UnspeakableError",
    "exit in dataset": "SystemExit: 0",
    "exit in a sample": "SystemExit: 0",
    **dict.fromkeys(REAL[:4], "is a map-style data set"),
}
# the counts of a training's pass; None: it is one that can be
TRAINED = {**dict.fromkeys(hostile.METRICS, "metric(output, batch): "), "collate drops": FEW[:1], "": None}


def _request(fault: str) -> TrialRequest:
    return studies.request(
        role="search",
        workload=_factory(fault, real=fault in REAL or fault in OF_THE_LOADER),
        optimizer=OptimizerSpec(),
        setting=Setting(batch_size=8),
        world_size=2,
        variants=SHORT,
        measure=MEASURE,
    )


def _training(fault: str) -> TrialRequest:
    return TrainingRequest(
        config=studies.config(
            workload=_factory(fault, real=True),
            optimizer=OptimizerSpec(),
            setting=Setting(batch_size=8),
            world_size=2,
        ),
        training=TrainingSpec(epochs=1, timeout_seconds=60.0, checkpoint=False, noise_scale=False),
    )


def _factory(fault: str, *, real: bool) -> FactorySpec:
    given: dict[str, Any] = {"fault": fault, "input": "real" if real else "synthetic"}
    return FactorySpec.model_validate({"factory": "tests.ranks.hostile:build"} | given)


def _serve(requests: list[TrialRequest]) -> tuple[list[Outcome], list[ProcessState], list[int]]:
    """On each rank: serve them one after the other, and how torch stood after each."""
    torch.set_num_threads(1)
    communicators, cache = Communicators("gloo"), GroupCache()
    outcomes, states, threads = list[Outcome](), list[ProcessState](), list[int]()
    for request in requests:
        outcomes += serve_trial(request, BOTH, communicators, cache)
        states.append(ProcessState.now())
        threads.append(torch.get_num_threads())
    communicators.drop_team()
    return outcomes, states, threads


NAMES = [*INVALID, *CRASHED, *hostile.CHANGES]


@pytest.fixture(scope="module")
def served() -> dict[str, Any]:
    """Every fault in the same two processes, a sound trial after each that may leave something behind."""
    asked: dict[str, TrialRequest] = {"": _request("")}
    for name in NAMES:
        asked[name] = _request(name)
        if name in hostile.CHANGES or name.startswith("exit"):
            asked[f"after {name}"] = _request("")
    asked |= {f"trained {name}": _training(name) for name in TRAINED}
    ranks = run_ranks(_serve, 2, list(asked.values()), timeout_s=280)
    outcomes = dict(zip(asked, ranks[0][0], strict=True))
    for name, outcome in outcomes.items():
        print(name, outcome.state, (outcome.reason or "")[:150], outcome.notes)
    return {"outcomes": outcomes, "states": [ranks[0][1], ranks[1][1]], "threads": ranks[0][2]}


@pytest.mark.parametrize("name", INVALID)
def test_a_batch_or_a_count_that_cannot_be_makes_the_trial_invalid(name: str, served: dict[str, Any]) -> None:
    found: Outcome = served["outcomes"][name]
    assert found.state == "invalid", found
    assert found.reason is not None
    assert INVALID[name] in found.reason


@pytest.mark.parametrize("name", CRASHED)
def test_code_that_leaves_is_a_failure_with_a_reason_that_can_be_kept(
    name: str, served: dict[str, Any]
) -> None:
    found: Outcome = served["outcomes"][name]
    assert found.state == "crashed", found
    assert found.reason is not None
    assert CRASHED[name] in found.reason
    assert len(found.reason) <= LONGEST_LINE
    record = found.to_record(_request(name), study="x", suggestion=None, started_at="2026-01-01T00:00:00")
    assert TrialRecord.model_validate_json(record.to_line().encode()) == record


@pytest.mark.parametrize("name", TRAINED)
def test_correct_predictions_that_cannot_be_make_a_training_invalid(
    name: str, served: dict[str, Any]
) -> None:
    found: Outcome = served["outcomes"][f"trained {name}"]
    told = TRAINED[name]
    assert found.state == ("complete" if told is None else "invalid"), found
    assert (told or "") in (found.reason or "")


@pytest.mark.parametrize("name", hostile.CHANGES)
def test_what_code_leaves_changed_is_put_back_and_said(name: str, served: dict[str, Any]) -> None:
    outcomes: dict[str, Outcome] = served["outcomes"]
    complete(outcomes[f"after {name}"])
    notes = " ".join(outcomes[name].notes)
    assert ("the workload left" in notes) is (name != "one thread more"), notes
    assert outcomes[f"after {name}"].notes == ()


def test_every_trial_finds_torch_as_the_first_did(served: dict[str, Any]) -> None:
    for states in served["states"]:
        assert set(states) == {states[0]}
    assert states[0].grad_enabled
    names, threads = list(served["outcomes"]), served["threads"]
    assert threads[names.index("after one thread more")] == threads[0]
    assert gc.isenabled()
    complete(served["outcomes"][""])

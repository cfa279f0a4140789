"""Workloads of the user's with a mistake: no false figure, and the next trial is right."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from raybench.errors import LONGEST_LINE
from raybench.records.messages import Outcome
from raybench.records.record import TrialRecord
from raybench.records.requests import TrainingRequest, TrialRequest
from raybench.spec.knobs import Setting
from raybench.spec.study import MeasureSpec, OptimizerSpec, TrainingSpec
from raybench.spec.workloads import FactorySpec
from raybench.worker.communicators import Communicators
from raybench.worker.group_cache import GroupCache
from tests.ranks import faulty
from tests.ranks.ranks import run_ranks
from tests.ranks.trials import BOTH, SHORT, complete, serve_trial
from tests.unit import studies

MEASURE = MeasureSpec(steps=3, min_rounds=3, warmup_steps=1, max_seconds=5, timeout_seconds=60)
FEW = "dicts (received first dimensions of 3;"
REAL = ("no data set", "exit in dataset", "exit in a sample")
OF_THE_LOADER = ("collate drops", "counts vary")
INVALID = {
    "few": FEW,
    "many": "dicts (received first dimensions of 32",
    "two sizes": "first dimensions of 3, 8",
    "nothing to count": "8 samples, as asked for, counted in",
    "collate drops": FEW,
    "counts vary": "samples(batch): the same for every batch",
    **dict.fromkeys(faulty.COUNTS, "samples(batch): "),
    **dict.fromkeys(faulty.TOKENS, "tokens(batch): "),
}
CRASHED = {
    "exit in build": "SystemExit: 0",
    "exit in model": "SystemExit: 0",
    "exit in loss": "SystemExit: 0",
    "unprintable": r"OSError: no file a\udcff\x1b[2J\u202eb",
    "exit in dataset": "SystemExit: 0",
    "exit in a sample": "SystemExit: 0",
    "no data set": "is a map-style data set",
}
# the counts of a training's pass; None: it is one that can be
TRAINED = {**dict.fromkeys(faulty.METRICS, "metric(output, batch): "), "collate drops": FEW[:1], "": None}


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
        training=TrainingSpec(epochs=1, timeout_seconds=60.0, checkpoint=False),
    )


def _factory(fault: str, *, real: bool) -> FactorySpec:
    given: dict[str, Any] = {"fault": fault, "input": "real" if real else "synthetic"}
    return FactorySpec.model_validate({"factory": "tests.ranks.faulty:build"} | given)


def _serve(requests: list[TrialRequest]) -> list[Outcome]:
    """On each rank: serve them one after the other."""
    torch.set_num_threads(1)
    communicators, cache = Communicators("gloo"), GroupCache()
    outcomes = list[Outcome]()
    for request in requests:
        outcomes += serve_trial(request, BOTH, communicators, cache)
    communicators.drop_team()
    return outcomes


NAMES = [*INVALID, *CRASHED]


@pytest.fixture(scope="module")
def served() -> dict[str, Outcome]:
    """Every fault in the same two processes, a sound trial after each that leaves."""
    asked: dict[str, TrialRequest] = {"": _request("")}
    for name in NAMES:
        asked[name] = _request(name)
        if name.startswith("exit"):
            asked[f"after {name}"] = _request("")
    asked |= {f"trained {name}": _training(name) for name in TRAINED}
    ranks = run_ranks(_serve, 2, list(asked.values()), timeout_s=280)
    outcomes = dict(zip(asked, ranks[0], strict=True))
    for name, outcome in outcomes.items():
        print(name, outcome.state, (outcome.reason or "")[:150])
    return outcomes


@pytest.mark.parametrize("name", INVALID)
def test_an_impossible_batch_or_count_is_invalid(name: str, served: dict[str, Outcome]) -> None:
    found: Outcome = served[name]
    assert found.state == "invalid", found
    assert found.reason is not None
    assert INVALID[name] in found.reason


@pytest.mark.parametrize("name", CRASHED)
def test_code_that_leaves_is_a_failure_with_a_reason_that_can_be_kept(
    name: str, served: dict[str, Outcome]
) -> None:
    found: Outcome = served[name]
    assert found.state == "crashed", found
    assert found.reason is not None
    assert CRASHED[name] in found.reason
    assert len(found.reason) <= LONGEST_LINE
    record = found.to_record(_request(name), study="x", started_at="2026-01-01T00:00:00")
    assert TrialRecord.model_validate_json(record.model_dump_json().encode()) == record


@pytest.mark.parametrize("name", TRAINED)
def test_correct_predictions_that_cannot_be_make_a_training_invalid(
    name: str, served: dict[str, Outcome]
) -> None:
    found: Outcome = served[f"trained {name}"]
    told = TRAINED[name]
    assert found.state == ("complete" if told is None else "invalid"), found
    assert (told or "") in (found.reason or "")


def test_the_trial_after_one_that_leaves_is_measured(served: dict[str, Outcome]) -> None:
    for name, outcome in served.items():
        if not name or name.startswith("after "):
            complete(outcome)

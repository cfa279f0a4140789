"""Scripts of people's own in a group of two gloo ranks: what is asked for, and what comes of it."""

from __future__ import annotations

from typing import Any

import pytest

from raybench.records.messages import Outcome
from raybench.records.requests import StepsRequest
from raybench.spec.knobs import Setting
from raybench.spec.study import MeasureSpec
from raybench.spec.workloads import ScriptSpec
from raybench.worker.communicators import Communicators
from raybench.worker.group_cache import GroupCache
from raybench.worker.scripts import script_trial
from tests.conftest import ROOT
from tests.ranks.ranks import Ranks
from tests.ranks.trials import BOTH, serve_trial
from tests.support.forked_child import ForkedChild
from tests.support.forkserver import SERVER_OF_ALL
from tests.unit import studies

FOLDER = ROOT / "tests" / "support" / "scripts"


def request(name: str, args: str, **fields: Any) -> StepsRequest:
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


def _serve(asked: list[StepsRequest]) -> tuple[list[Outcome], int]:
    """On each rank: serve the trials in one group; how many processes are left of them."""
    communicators, cache, outcomes = Communicators("gloo"), GroupCache(), list[Outcome]()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(*SERVER_OF_ALL)
        patch.setattr(script_trial, "Child", ForkedChild)
        for request in asked:
            outcomes += serve_trial(request, BOTH[: request.config.world_size], communicators, cache)
    communicators.drop_team()
    return outcomes, sum(each.poll() is None for each in ForkedChild.started)


def served_in_turn(ranks: Ranks, asked: dict[str, StepsRequest]) -> dict[str, Outcome]:
    """How each ended; none of them is left running."""
    (outcomes, left), (_, left_of_other) = ranks.call(_serve, list(asked.values()), timeout_s=280)
    assert left == left_of_other == 0
    return dict(zip(asked, outcomes, strict=True))

"""The CNN and the transformer of docs/workloads.md, exactly as they stand there: measured, and they learn."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator

import pytest

from raybench.machine.host import Resources
from raybench.plan.make_plan import make_plan
from raybench.plan.training import training_requests
from raybench.records.messages import Outcome
from raybench.records.requests import StudyRequest
from raybench.records.results import TrainingResult
from raybench.spec.load import load_study
from raybench.spec.study import Study
from raybench.worker.communicators import Communicators
from raybench.worker.group_cache import GroupCache
from raybench.workloads import check
from tests.conftest import ROOT
from tests.ranks.ranks import Ranks
from tests.ranks.trials import complete, run_trials

PAGE = ROOT / "docs" / "workloads.md"
EXAMPLES = ("my_cnn", "my_transformer")
CHANCE = {"my_cnn": 0.1, "my_transformer": 0.5}


def block(language: str, containing: str) -> str:
    (found,) = (
        text
        for text in re.findall(rf"```{language}\n(.*?)```", PAGE.read_text(), flags=re.S)
        if containing in text
    )
    return str(found)


@pytest.fixture(scope="module")
def studies(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Study]]:
    folder = tmp_path_factory.mktemp("examples")
    for name in EXAMPLES:
        (folder / f"{name}.py").write_text(block("python", "nn.Conv2d" if "cnn" in name else "nn.Embedding"))
        (folder / f"{name}.toml").write_text(block("toml", f'name = "{name}"'))
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(folder)
        patch.setenv("PYTHONPATH", f"{folder}:{ROOT}")  # of the ranks
        yield {name: load_study(folder / f"{name}.toml") for name in EXAMPLES}
    for name in EXAMPLES:
        sys.modules.pop(name, None)


def requests_of(study: Study) -> list[StudyRequest]:
    """On two devices a trial of steps, with all variants, and a training."""
    measure = study.measure.model_copy(update={"max_seconds": 1.0, "half_width": 0.9, "min_rounds": 3})
    assert study.training is not None
    training = study.training.model_copy(update={"checkpoint": False})
    short = study.model_copy(update={"measure": measure, "training": training})
    plan = make_plan(short, Resources("cpu", 2, "a CPU"))
    steps = next(each for each in plan.trials() if each.config.world_size == 2)
    return [steps, next(each for each in training_requests(plan) if each.config.world_size == 2)]


def measured(requests: dict[str, list[StudyRequest]]) -> dict[str, list[Outcome]]:
    communicators = Communicators("gloo")
    found = {name: run_trials(each, communicators, GroupCache()) for name, each in requests.items()}
    communicators.drop_team()
    return found


def test_the_examples_are_measured_and_learn(pair: Ranks, studies: dict[str, Study]) -> None:
    for study in studies.values():
        check(study.workload, study.data)
    found = pair.call(measured, {name: requests_of(study) for name, study in studies.items()})[0]
    for name, (steps, trained) in found.items():
        result = complete(steps)
        assert result.samples_per_step == result.global_batch_size
        assert (result.tokens_per_step is not None) == (name == "my_transformer")
        assert trained.state == "complete", trained.reason
        assert isinstance(trained.result, TrainingResult)
        accuracy = trained.result.epochs[-1].test_accuracy
        assert accuracy is not None
        assert accuracy > (1 + CHANCE[name]) / 2, f"{name} does not learn"

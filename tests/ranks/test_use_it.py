"""The code at the end of a report brings the gain that the study measured: on gloo ranks, and by torchrun."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from raybench.analysis.stats.statistics import Estimate, geometric
from raybench.records.messages import Outcome
from raybench.records.record import TrialRecord
from raybench.records.requests import StepsRequest
from raybench.report.code import use_it
from raybench.spec.knobs import Setting
from raybench.spec.study import Study
from raybench.worker.communicators import Communicators
from raybench.worker.group_cache import GroupCache
from tests.conftest import ROOT
from tests.ranks.agreement import measured_undisturbed, ratios_agree
from tests.ranks.pasted import ratios
from tests.ranks.ranks import Ranks
from tests.ranks.trials import BOTH, complete, serve_trial
from tests.support import budget
from tests.support.analysis import analyse
from tests.support.planted import to_record
from tests.unit.studies import asked, study

pytestmark = pytest.mark.alone

# Half as many steps of the optimizer, whose wait is nearly all of a pass: what a loader costs beside it, and
# the study's synthetic batches do not, moves this gain little.
ACCUMULATION = 2
FLOOR, MOST_ERROR = 0.04, 0.03  # in all a quarter of the gain at most, which is near 0.7 as a logarithm
MEASURE = {"half_width": 0.02, "max_seconds": 5, "min_rounds": 10}
SPEC = study(
    workload={"factory": "tests.ranks.pasted:build"},
    knobs={"batch_size": [4], "gradient_accumulation": [1, ACCUMULATION]},
    search={"method": "optuna", "trials": 2},
    measure=MEASURE,
)
DEFAULT, WINNER = Setting(batch_size=4), Setting(batch_size=4, gradient_accumulation=ACCUMULATION)
REQUESTS = [
    asked(SPEC, "scaling", DEFAULT, 2, variants=("plain", "ddp")),
    asked(SPEC, "search", WINNER, 2, anchor=DEFAULT, variants=("plain", "ddp", "anchor")),
]


def measure(requests: list[StepsRequest]) -> list[list[Outcome]]:
    """On each rank: a worker group that serves the study's trials."""
    communicators, cache = Communicators("gloo"), GroupCache()
    told = [serve_trial(each, BOTH, communicators, cache) for each in requests]
    communicators.drop_team()
    return told


@pytest.fixture(scope="module")
def records(pair: Ranks) -> list[TrialRecord]:
    told = measured_undisturbed(lambda: pair.call(measure, REQUESTS)[0], lambda told: complete(told[-1][0]))
    return [to_record(request, outcome) for request, (outcome,) in zip(REQUESTS, told, strict=True)]


def plain_loop(spec: Study, records: list[TrialRecord]) -> str:
    section = use_it(analyse(spec, records))
    assert section is not None
    return section.loop


@pytest.fixture(scope="module")
def texts(records: list[TrialRecord]) -> tuple[str, str]:
    """The default's code and the winner's."""
    alone = study(**{**SPEC.model_dump(), "knobs": {"batch_size": 4}, "search": {"method": "grid"}})
    return plain_loop(alone, records[:1]), plain_loop(SPEC, records)


@pytest.mark.promise("code to paste")
def test_the_pasted_lines_bring_the_gain_of_the_study(
    pair: Ranks, records: list[TrialRecord], texts: tuple[str, str]
) -> None:
    recommended = analyse(SPEC, records).recommendation
    assert recommended is not None
    assert recommended.is_faster
    assert recommended.gain is not None
    gain = recommended.gain.gain
    study_s = Estimate(1 + gain.value, 1 + gain.low, 1 + gain.high, gain.n)
    assert "no_sync" in texts[1]
    assert "no_sync" not in texts[0]
    found = geometric(pair.call(ratios, *texts, torch.device("cpu"))[0])
    ratios_agree(found, study_s, floor=FLOOR, most_error=MOST_ERROR)
    assert study_s.value > 1.5  # so lines that change nothing do not agree


def test_torchrun_runs_the_file_as_its_first_line_says(texts: tuple[str, str], tmp_path: Path) -> None:
    lines = [
        "from tests.ranks.pasted import loss_of, make_model, make_optimizer, make_train_set",
        texts[1],
        "",
        "",
        'if __name__ == "__main__":',
        "    model = make_model()",
        "    first = sum(float(each.sum()) for each in model.parameters())",
        "    main(model, make_train_set(), make_optimizer, loss_of, epochs=2)",
        "    last = sum(float(each.sum()) for each in model.parameters())",
        "    with open(os.environ['RANK'] + '.json', 'w') as file:",
        "        json.dump([first, last], file)",
    ]
    (tmp_path / "train.py").write_text("\n".join(["import json", "import os", *lines, ""]))
    command = texts[1].splitlines()[0].removeprefix("# Start: ").split()
    assert command == ["torchrun", "--nproc-per-node=2", "train.py"]
    command[:1] = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    names = {"PYTHONPATH": str(ROOT), "GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"}
    budget.took(budget.PROCESSES)
    done = subprocess.run(
        command,
        cwd=tmp_path,
        env=os.environ | names,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    (first, last), other = (json.loads((tmp_path / f"{rank}.json").read_text()) for rank in range(2))
    assert first != last == other[1]  # it was trained, on both ranks alike

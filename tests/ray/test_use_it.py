"""The code at the end of a report brings its gain again under Ray Train."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import torch

from raybench.analysis import analyse
from raybench.analysis.estimates.statistics import geometric
from raybench.report.code.section import use_it
from raybench.spec import Setting
from raybench.testing import FakeRunner, StepCosts
from tests.conftest import ROOT
from tests.ranks.pasted import STEP_S
from tests.unit.studies import grid, searched, study

WINNER = Setting(batch_size=4, gradient_accumulation=8)
PASS_S = 0.001


def costs(config: object, setting: Setting) -> StepCosts:
    """The optimizer's wait, as it is in what is trained below."""
    return StepCosts(plain_s=PASS_S * setting.gradient_accumulation + STEP_S)


def ray_code(*, winner: bool) -> str:
    knobs = {"batch_size": [4], "gradient_accumulation": [1, 8] if winner else [1]}
    spec = study(knobs=knobs, search={"method": "optuna", "trials": 2})
    runner = FakeRunner(costs)
    records = searched(spec, (2,), WINNER, runner) if winner else grid(spec, (2,), runner)[0]
    section = use_it(analyse(spec, records), {"packages": {"torch": torch.__version__}})
    assert section is not None
    assert section.snippets[1].title == "Ray Train"
    return section.snippets[1].text


def test_the_pasted_lines_find_the_gain_again(tmp_path: Path) -> None:
    files = [tmp_path / "default.py", tmp_path / "winner.py"]
    for file, winner in zip(files, (False, True), strict=True):
        file.write_text(ray_code(winner=winner))
    out = tmp_path / "ratios.json"
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    environment.pop("RAY_ADDRESS", None)
    done = subprocess.run(
        [sys.executable, "-m", "tests.ray.pasted_in_ray", *map(str, files), str(out)],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    ratio = geometric(json.loads(out.read_text()))
    print(f"by the pasted lines {ratio}")
    assert ratio.low > 1.5  # a step of the optimizer in eight passes in the place of one in each

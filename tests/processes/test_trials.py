"""The id of a trial is of what is asked alone."""

from __future__ import annotations

import os

from tests.conftest import ROOT
from tests.processes.starting import LIMIT_S, program
from tests.unit.plan.test_trials import request

CODE = """
from tests.unit.plan.test_trials import request
knobs = {"precision": "bf16", "batch_size": 64}
print(request(environment={"B": "2", "A": "1"}, knobs=knobs).trial_id)
"""


def test_ids_are_the_same_in_another_process_and_with_another_order_of_keys() -> None:
    seed = "2" if os.environ.get("PYTHONHASHSEED") == "1" else "1"  # hashes as this process has not
    with program(CODE, env={**os.environ, "PYTHONPATH": str(ROOT), "PYTHONHASHSEED": seed}) as process:
        found, _ = process.communicate(timeout=4 * LIMIT_S)
    asked = request(environment={"A": "1", "B": "2"}, knobs={"batch_size": 64, "precision": "bf16"})
    assert found.split() == [asked.trial_id]

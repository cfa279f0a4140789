"""How it was measured, in sentences."""

from __future__ import annotations

import pytest

from raybench.analysis import analyse
from raybench.records.record import TrialRecord
from raybench.report.method import method_words
from raybench.testing import FakeLearning
from tests.unit.studies import grid, study, trained_study


def test_training_leaves_the_words_on_the_method_as_they_are():
    plan, records = trained_study(FakeLearning())
    steps = [record for record in records if record.steps is not None]
    assert method_words(analyse(plan.study, records)) == method_words(analyse(plan.study, steps))


OFF, OWN = "TF32 is off, for convolutions too", "At torch's own precision TF32 is as torch has it"


@pytest.mark.parametrize(
    ("device", "precisions", "says"),
    [
        ("cuda", ["fp32", "tf32"], [f"At fp32 {OFF}"]),
        ("cuda", ["bf16", "default"], [f"At bf16 {OFF}", OWN]),
        ("cuda", ["fp32", "bf16"], [f"At fp32 and bf16 {OFF}"]),
        ("cuda", ["tf32"], []),
        ("cpu", ["fp32"], []),
    ],
)
def test_what_becomes_of_tf32_is_said_on_gpus(device, precisions, says):
    spec = study(knobs={"precision": precisions})
    records = [_on(device, record) for record in grid(spec, (1, 2))[0]]
    told = [sentence for sentence in method_words(analyse(spec, records)) if "TF32" in sentence]
    assert len(told) == len(says)
    assert all(sentence.startswith(start) for sentence, start in zip(told, says, strict=True))


def _on(device: str, record: TrialRecord) -> TrialRecord:
    config = record.config.model_copy(update={"device": device})
    return record.model_copy(update={"request": record.request.model_copy(update={"config": config})})

"""How it was measured, in sentences."""

from __future__ import annotations

from raybench.analysis import analyse
from raybench.report.method import method_words
from raybench.testing import FakeLearning
from tests.unit.studies import trained_study


def test_training_leaves_the_words_on_the_method_as_they_are():
    plan, records = trained_study(FakeLearning())
    steps = [record for record in records if record.steps is not None]
    assert method_words(analyse(plan.study, records)) == method_words(analyse(plan.study, steps))

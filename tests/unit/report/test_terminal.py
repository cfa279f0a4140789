"""What a study prints at its end fits the terminal, and the answer comes last."""

from __future__ import annotations

import io
import re

import pytest
from rich.console import Console

from raybench.analysis.results import StudyResults
from raybench.machine.host import Resources
from raybench.plan.make_plan import make_plan
from raybench.records.record import TrialRecord
from raybench.records.requests import Configuration
from raybench.report.answer import answer_of
from raybench.report.terminal import print_summary
from raybench.spec.knobs import Setting
from tests.support.analysis import analyse
from tests.support.planted import FakeRunner, StepCosts
from tests.unit.runs import QUIET_ENOUGH, run
from tests.unit.studies import asked, failed, study


def printed(results: StudyResults, width: int = 80) -> str:
    text = io.StringIO()
    print_summary(results, Console(file=text, width=width))
    return text.getvalue()


@pytest.mark.parametrize("which", ["results", "wide"])
def test_the_terminal_table_fits_80_columns(which: str, request: pytest.FixtureRequest) -> None:
    text = printed(request.getfixturevalue(which))
    assert max(map(len, text.splitlines())) <= 80
    assert len(text.splitlines()) < 80


def test_a_narrow_terminal_is_not_overrun(results: StudyResults) -> None:
    assert max(map(len, printed(results, 60).splitlines())) <= 60


def test_the_answer_stands_below_the_table(results: StudyResults) -> None:
    text = printed(results)
    use = results.recommendation
    assert use is not None
    assert text.rindex(" times as fast as one, with ") > text.rindex("\u2500")
    assert (
        "times the default's speed on 2 devices."
        in " ".join(text.split()).rpartition("% of each step is lost")[2]
    )
    assert " ".join(text.split()).endswith(f"Use it: {use.label} as code, at the end of the report")


def test_failures_are_in_the_terminal(wide: StudyResults) -> None:
    assert "oom" in printed(wide)
    said = " ".join(printed(wide).split())
    assert re.search(r"\d+ rows, 2 settings more in report\.html", said)


def costs(config: Configuration, setting: Setting) -> StepCosts:
    """bf16 takes a third of fp32's time."""
    plain_s = 0.010 if setting.precision == "fp32" else 0.003
    return StepCosts(plain_s=plain_s, contention_s=0.0005, wrapper_s=0.0005, exposed_s=0.002)


@pytest.mark.parametrize("left_out", [(), ("scaling",)])
def test_the_recommended_setting_is_in_the_table_wherever_it_was_measured(left_out: tuple[str, ...]) -> None:
    knobs = {"batch_size": [512, 32], "precision": ["fp32", "bf16"]}
    search = {"method": "optuna", "trials": 4}
    plan = make_plan(study(knobs=knobs, search=search), Resources("cpu", 2, "a CPU"))
    store = run(plan, FakeRunner(costs, QUIET_ENOUGH))[1]

    def is_left_out(record: TrialRecord) -> bool:
        return record.request.role in left_out and record.config.setting.precision == "bf16"

    results = analyse(plan.study, [record for record in store.records if not is_left_out(record)])
    recommended = results.recommendation
    assert recommended is not None
    assert recommended.config.setting.precision == "bf16"
    assert "bf16" in printed(results, 140).split("\u2500")[-1]


def test_the_error_of_a_broken_study_is_told_to_its_end() -> None:
    error = (
        "rank 0: RuntimeError: The size of tensor a (512) must match the size of tensor b (8) at "
        "non-singleton dimension 0"
    )
    spec = study(knobs={"batch_size": [32]})
    record = failed(asked(spec, "scaling", Setting(batch_size=32), 2), "crashed", error)
    results = analyse(spec, [record])
    assert answer_of(results) == f"No trial completed: 1 crashed ({error})."
    assert printed(results, 400).count(error) == 1


def test_a_study_of_which_nothing_completed_has_no_table() -> None:
    spec = study(knobs={"batch_size": [32]})
    results = analyse(spec, [failed(asked(spec, "scaling", Setting(batch_size=32), 2))])
    assert "step time" not in printed(results)

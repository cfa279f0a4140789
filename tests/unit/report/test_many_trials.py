"""A report of n trials takes calls in proportion to n: three times the trials, about three times as much."""

from __future__ import annotations

import random
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from raybench.analysis import analyse, attribution
from raybench.analysis.diagnosis import which
from raybench.machine.environment import capture
from raybench.records.record import TrialRecord
from raybench.records.store import ResultsDirectory
from raybench.report.contents import make_tables
from raybench.report.tables import trials
from raybench.spec import Setting, Study
from tests.support.planted import FakeRunner, run_all
from tests.unit.calls import calls
from tests.unit.studies import asked, study

KNOBS: dict[str, list[Any]] = {
    "batch_size": [32, 64, 128, 256],
    "bucket_cap_mb": ["default", *range(1, 33)],
    "precision": ["fp32", "bf16"],
    "gradient_accumulation": [1, 2, 4],
    "gradient_as_bucket_view": [False, True],
    "static_graph": [False, True],
}
FEW, MANY = 250, 750


def suggestions(number: int) -> tuple[Study, list[TrialRecord]]:
    """So many suggestions of a search; rounds are those of a few simulated trials."""
    spec = study(knobs=KNOBS, search={"method": "optuna", "trials": number})
    settings = [Setting(**dict(zip(KNOBS, values, strict=True))) for values in product(*KNOBS.values())]
    chosen = [settings[0], *random.Random(1).sample(settings[1:], number - 1)]
    requests = [asked(spec, "search", setting, 2) for setting in chosen]
    measured, _ = run_all(FakeRunner(seed=1), requests[:40], spec.name)
    records = [
        measured[place % 40].model_copy(
            update={"request": request, "trial_id": request.trial_id, "suggestion": place}
        )
        for place, request in enumerate(requests)
    ]
    return spec, records


def test_work_grows_with_the_number_of_trials() -> None:
    check_growth(FEW, MANY)


def check_growth(few: int, many: int) -> None:
    """Of so many trials each."""

    def work(spec: Study, records: list[TrialRecord]) -> int:
        return calls(lambda: make_tables(analyse(spec, records)))

    one, other = (work(*suggestions(number)) for number in (few, many))
    assert other < 1.4 * (many / few) * one  # a study that compared all pairs would take 9 times as much


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("large") / "results"
    spec, records = suggestions(FEW)
    with ResultsDirectory.create(path, spec, capture()) as store:
        assert store
    with (path / "trials.jsonl").open("a") as file:
        file.writelines(record.to_line() + "\n" for record in records)
    return path


def test_packed_rounds_say_the_same(large: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with ResultsDirectory.open_readonly(large) as store:
        plain, spec = store.records(), store.study()
    monkeypatch.setattr(store, "PACKED_FROM_BYTES", 0)
    with ResultsDirectory.open_readonly(large) as store:
        packed = store.records()
    assert plain == packed
    assert packed[3].steps is not None
    assert not isinstance(packed[3].steps.rounds, tuple)
    assert analyse(spec, packed[:50]).scalings == analyse(spec, plain[:50]).scalings


def test_documents_hold_the_first_of_very_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trials, "MOST_TRIALS", 20)
    spec, records = suggestions(50)
    table = make_tables(analyse(spec, records)).trials
    assert len(table.rows) == 20
    assert "The first 20 of 50 trials; all are in summary.csv." in table.caption


def test_of_very_many_the_most_and_the_least_efficient_are_diagnosed(monkeypatch: pytest.MonkeyPatch) -> None:
    spec, records = suggestions(50)
    every = analyse(spec, records)
    monkeypatch.setattr(which, "MOST", 40)
    monkeypatch.setattr(which, "AT_EITHER_END", 5)
    some = analyse(spec, records)
    ordered = sorted(every.measured, key=lambda each: every.scalings[each.trial_id].efficiency.value)  # type: ignore[union-attr]
    named = {each.trial_id for each in (*ordered[:5], *ordered[-5:], every.headline) if each}
    of_all = [each for each in every.findings if each.trial_id in named]
    assert of_all
    assert [each for each in some.findings if each.trial_id] == of_all
    assert some.diagnosis == every.diagnosis
    assert "the 5 most and the 5 least efficient" in which.not_diagnosed_words(50)


def test_of_very_many_effects_the_largest_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    spec, records = suggestions(50)
    every = analyse(spec, records).attribution
    monkeypatch.setattr(attribution, "MANY", 40)
    monkeypatch.setattr(attribution, "MOST_TOGETHER", 10)
    some = analyse(spec, records).attribution
    assert every is not None
    assert some is not None
    assert some.singles == every.singles
    ratios = [each.efficiency_ratio for each in every.together[:10]]  # of some trials the rounds are the same
    assert [each.efficiency_ratio for each in some.together] == ratios
    assert some.num_left_out == len(every.together) - 10

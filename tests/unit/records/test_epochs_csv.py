"""epochs.csv: made of the records, one row an epoch and seed."""

import csv

from raybench.records.store import ResultsDirectory
from tests.support.planted import FakeLearning
from tests.unit.records.test_store import ENVIRONMENT
from tests.unit.studies import trained_study


def test_epochs_csv_is_made_of_the_records_and_again_on_resume(tmp_path):
    plan, records = trained_study(FakeLearning(num_train=1001))
    store = ResultsDirectory.create(tmp_path / "results", plan.study, ENVIRONMENT)
    path = tmp_path / "results" / "epochs.csv"
    for record in records:
        store.append(record)
    store.close()
    written = path.read_text()
    rows = list(csv.DictReader(written.splitlines()))
    assert len(rows) == 6 * 4  # one an epoch and seed
    assert {(row["world_size"], row["seed"]) for row in rows} == {(n, s) for n in "12" for s in "012"}
    two = next(row for row in rows if row["world_size"] == "2")
    assert two["samples_by_rank"] == "501 500"
    assert 0 < float(two["test_accuracy"]) < 1
    path.unlink()
    ResultsDirectory.resume(tmp_path / "results").close()
    assert path.read_text() == written

"""What a request's id covers, and what is measured beside its rounds."""

from raybench.records.requests import TrainingRequest
from raybench.spec import TrainingSpec
from tests.unit.studies import config, request

REAL = {"name": "vision", "input": "real"}


def test_the_id_covers_the_training_but_not_how_long_it_may_take():
    plain, patient, longer = (
        TrainingRequest(config=config(workload=REAL), training=spec)
        for spec in (TrainingSpec(), TrainingSpec(timeout_seconds=1.0), TrainingSpec(epochs=9))
    )
    assert plain.trial_id == patient.trial_id
    assert plain.trial_id != longer.trial_id
    assert plain.trial_id != request(workload=REAL).trial_id
    assert (patient.timeout_s, request().timeout_s) == (1.0, 300.0)


def test_phases_and_parity_are_measured_in_scaling_trials_only():
    roles = ("search", "scaling", "confirmation", "verification")
    assert [role for role in roles if request(role=role).measures_beside_rounds] == ["scaling"]

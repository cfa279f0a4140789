"""What a request's id covers, and what is measured beside its rounds."""

import hashlib
import json

import pytest

from raybench.records.requests import TrainingRequest
from raybench.spec.knobs import Setting
from raybench.spec.study import MeasureSpec, TrainingSpec
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
    kept = TrainingRequest(config=config(workload=REAL), training=TrainingSpec(save_model=True))
    assert kept.trial_id == plain.trial_id  # what is done with the model afterwards
    assert (patient.timeout_s, request().timeout_s) == (1.0, 300.0)


@pytest.mark.parametrize(("rule", "factor"), [("none", 1.0), ("linear", 8.0), ("world_size", 2.0)])
def test_the_learning_rate_grows_by_rule(rule, factor):
    training = TrainingSpec(learning_rate_scaling=rule, reference_batch=32)
    two, one = (
        config(workload=REAL, world_size=size, setting=Setting(batch_size=batch))
        for size, batch in ((2, 128), (1, 32))
    )
    assert TrainingRequest(config=two, training=training).learning_rate_factor == factor
    assert TrainingRequest(config=one, training=training).learning_rate_factor == 1.0


def test_a_further_visit_is_another_trial_and_the_first_one_is_the_trial_itself():
    once, thrice = (request(measure=MeasureSpec(starts=starts)) for starts in (1, 3))
    others = [request(measure=MeasureSpec(starts=3), **each) for each in ({"start": 1}, {"visit": 1})]
    assert once.trial_id == thrice.trial_id
    assert len({each.trial_id for each in (once, *others)}) == 3
    before_there_were_starts = once.model_dump(
        mode="json",
        exclude={
            "config": {"oversubscribed": True, "setting": set(Setting.model_fields)},
            "measure": {"timeout_seconds", "max_seconds", "starts", "profile"},
            "start": True,
            "visit": True,
            "anchor_failure": True,
            "as_if": True,
        },
    )
    before_there_were_starts["config"]["setting"] = once.config.setting.differences(Setting())
    text = json.dumps(before_there_were_starts, sort_keys=True, separators=(",", ":"))
    assert once.trial_id == hashlib.sha256(text.encode()).hexdigest()[:12]


def test_a_knob_makes_another_trial_where_it_is_not_at_its_default():
    settings = [Setting(), Setting(batch_size=64), Setting(static_graph=True), Setting(workers=1)]
    for asked in (lambda each: request(setting=each), lambda each: request(anchor=each)):
        assert len({asked(each).trial_id for each in (*settings, Setting(strategy="ddp"))}) == len(settings)
    assert request(anchor=Setting()).trial_id != request(anchor=None).trial_id


def test_phases_and_parity_are_measured_in_scaling_trials_only():
    roles = ("search", "scaling", "verification")
    assert [role for role in roles if request(role=role).measures_beside_rounds] == ["scaling"]

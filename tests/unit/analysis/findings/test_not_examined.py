"""What nobody could look for in a trial, and what it would take."""

from __future__ import annotations

from raybench.analysis.findings.diagnose import not_examined
from raybench.analysis.findings.finding import FindingName, Need
from raybench.records.record import TrialRecord
from raybench.spec.knobs import Setting
from tests.support.alone import case_of, findings
from tests.support.analysis import analyse
from tests.support.planted import QUIET, FakeRunner, StepCosts, run_all
from tests.unit.studies import asked, measured, study, with_anchor

LOAD = {"hosts": (0, 0), "host_cores": (2, 2)}


def told(record: TrialRecord, **more: object) -> dict[FindingName, Need]:
    """Of a record with rounds and facts of its own."""
    assert record.steps is not None
    result = record.steps.model_copy(update=more)
    return dict(not_examined(case_of(record.model_copy(update={"result": result}))))


def test_one_batch_says_nothing_of_others_and_nobody_told_the_load() -> None:
    found = told(measured(StepCosts(plain_s=0.040), QUIET))
    assert found[FindingName.BATCH_TOO_SMALL] is Need.BATCHES
    assert found[FindingName.OTHER_PROCESSES] is Need.LOAD
    assert Need.VARIANTS not in found.values()
    assert FindingName.THROTTLING not in found  # of CPUs nothing is claimed


def test_clocks_and_load_that_are_known_are_examined() -> None:
    record = measured(StepCosts(plain_s=0.040), QUIET, device="cuda")
    assert told(record)[FindingName.THROTTLING] is Need.CLOCKS
    assert record.steps is not None
    known = {"clock_mhz": (1980.0, 1980.0), "other_cores": (0.0, 0.0)}
    rounds = tuple(each.model_copy(update=known) for each in record.steps.rounds)
    assert (
        told(record, rounds=rounds, **LOAD).keys() & {FindingName.THROTTLING, FindingName.OTHER_PROCESSES}
        == set()
    )


def test_without_one_device_communication_and_skew_are_examined() -> None:
    """As of FSDP, of a model that no device holds alone."""
    missing = {"plain": "out of memory", "concurrent": "out of memory"}
    record = measured(StepCosts(plain_s=0.010, exposed_s=0.006, replay_s=0.008, missing=missing), QUIET)
    without = {name for name, need in told(record).items() if need is Need.VARIANTS}
    assert without == {FindingName.COSTLY_WRAPPER, FindingName.CONTENTION}
    assert [each.name for each in findings(record) if each.explains] == [FindingName.COMMUNICATION_BOUND]


def test_a_trial_without_the_silent_variant_divides_no_step() -> None:
    record = measured(StepCosts(plain_s=0.040), QUIET)
    assert record.steps is not None
    rounds = tuple(
        each.model_copy(
            update={"blocks": tuple(one for one in each.blocks if one.variant in ("plain", "ddp"))}
        )
        for each in record.steps.rounds
    )
    found = told(record, rounds=rounds)
    missing = {name for name, need in found.items() if need is Need.VARIANTS}
    assert missing == {
        FindingName.COMMUNICATION_BOUND,
        FindingName.COSTLY_WRAPPER,
        FindingName.CONTENTION,
        FindingName.JITTER,
    }


def test_a_larger_batch_that_was_verified_was_measured() -> None:
    spec, default = study(knobs={"batch_size": [64]}), Setting(batch_size=64)
    for changed, is_missing in (({"batch_size": 128}, False), ({"static_graph": True}, True)):
        tested = asked(spec, "verification", default.model_copy(update=changed), 2)
        requests = [asked(spec, "scaling", default, 2), with_anchor(tested, default)]
        records = run_all(FakeRunner(lambda *_: StepCosts(plain_s=0.01, exposed_s=0.01), QUIET), requests)[0]
        missing = dict(analyse(spec, records).not_examined)
        assert (FindingName.BATCH_TOO_SMALL in missing) is is_missing

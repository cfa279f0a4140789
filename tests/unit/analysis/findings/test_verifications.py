"""What a diagnosis proposes and raybench cannot try is the user's, whatever else was tested."""

from __future__ import annotations

from dataclasses import replace

import pytest
from packaging.version import Version

from raybench.analysis.findings.finding import Finding, FindingName, Severity
from raybench.analysis.findings.verifications import Verification, Verified, proposals, verifications
from raybench.analysis.resolve import resolve
from raybench.report.sections.settings import verification_table
from raybench.spec.knobs import KnobValue, Setting
from tests.support.analysis import analyse
from tests.support.planted import QUIET, FakeRunner, StepCosts, run_all
from tests.unit.analysis.simulate.planted import BURSTS, trial_in_bursts
from tests.unit.studies import asked, study, with_anchor

SPEC = study(knobs={"batch_size": [64]})
DEFAULT = Setting(batch_size=64)
CHANGED = DEFAULT.model_copy(update={"static_graph": True})


def of_changes(gain: float, *changes: dict[str, KnobValue] | None) -> tuple[Verification, ...]:
    """A headline whose findings propose ``changes``, and one trial of verification: static_graph."""

    def costs(config: object, setting: Setting) -> StepCosts:
        return StepCosts(plain_s=0.01, exposed_s=0.01 / (1 + gain) if setting.static_graph else 0.01)

    testing = with_anchor(asked(SPEC, "verification", CHANGED, 2), DEFAULT)
    records = run_all(FakeRunner(costs, QUIET), [asked(SPEC, "scaling", DEFAULT, 2), testing])[0]
    facts = resolve(SPEC, records)
    assert facts.headline is not None
    found = Finding(FindingName.COMMUNICATION_BOUND, Severity.WARNING, facts.headline.trial_id, {})
    explained = replace(found, explains=facts.scaling(facts.headline).step_time_s.scaled(0.4))
    names = list(FindingName)
    return verifications(
        facts,
        [replace(explained, name=names[place], change=change) for place, change in enumerate(changes)],
    )


@pytest.mark.parametrize("change", [None, {}])
@pytest.mark.parametrize("gain", [-0.3, 0.0, 1.0])
def test_a_finding_without_a_change_is_never_held_against_the_headline(
    change: dict[str, KnobValue] | None, gain: float
) -> None:
    """Its setting is the headline's own, which has a trial: that is no test of it."""
    without, other = of_changes(gain, change, {"static_graph": True})
    assert without.verdict is Verified.NEEDS_YOU
    assert (without.record, without.gain) == (None, None)
    assert other.record is not None
    assert other.record.config.setting.static_graph
    expected = {-0.3: {Verified.REFUTED}, 1.0: {Verified.CONFIRMED}}
    assert other.verdict in expected.get(gain, {Verified.REFUTED, Verified.UNDECIDED})


def test_what_cannot_be_tried_on_this_device_says_why() -> None:
    (found, _) = of_changes(0.0, {"precision": "fp16"}, {"static_graph": True})
    assert found.verdict in (Verified.NEEDS_YOU, Verified.NOT_RUN)
    assert bool(found.reason) is (found.verdict is Verified.NEEDS_YOU)
    assert found.record is None


GPUS = study(resources={"device": "cuda"}, scaling={"world_sizes": [2]})
LIST = "5/15"


def test_a_list_of_bucket_sizes_that_the_simulator_proposes_is_among_them() -> None:
    facts = resolve(GPUS, [trial_in_bursts(), trial_in_bursts(1.0)])
    (listed,) = proposals(facts, [])
    assert listed.change == {"bucket_cap_mb": LIST}
    truth = BURSTS.simulated_s("default") / BURSTS.simulated_s(LIST)
    assert listed.predicted is not None
    assert listed.predicted.low < truth < listed.predicted.high
    assert not listed.needs_you
    assert proposals(resolve(GPUS, [trial_in_bursts()]), []) == []


def test_an_older_torch_leaves_the_list_to_the_user(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("raybench.spec.knobs.torch_version", lambda: Version("2.13"))
    (listed,) = proposals(resolve(GPUS, [trial_in_bursts(), trial_in_bursts(1.0)]), [])
    assert listed.obstacle == f"bucket_cap_mb {LIST} needs torch 2.14 (received torch 2.13)"


def test_a_list_that_was_measured_stands_with_its_prediction() -> None:
    anchor = Setting(bucket_cap_mb="default")
    test = trial_in_bursts(LIST, role="verification", anchor=anchor, variants=("ddp", "replay", "anchor"))
    results = analyse(GPUS, [trial_in_bursts(), trial_in_bursts(1.0), test])
    found = next(each for each in results.verifications if each.record is not None)
    assert found.proposal.change == {"bucket_cap_mb": LIST}
    assert found.proposal.predicted is not None
    (row,) = [each for each in verification_table(results).rows if LIST in each[1]]
    assert row[0] == "what if"
    assert row[2].startswith("+")

"""What a diagnosis proposes and raybench cannot try is the user's, whatever else was tested."""

from __future__ import annotations

from dataclasses import replace

import pytest

from raybench.analysis.findings.finding import Finding, FindingName, Severity
from raybench.analysis.findings.verifications import Verification, Verified, verifications
from raybench.analysis.resolve import resolve
from raybench.spec import Setting
from raybench.spec.knobs import KnobValue
from tests.support.planted import QUIET, FakeRunner, StepCosts, run_all
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
    assert (without.record, without.gain, without.ruled_out) == (None, None, False)
    assert other.record is not None
    assert other.record.config.setting.static_graph
    expected = {-0.3: {Verified.REFUTED}, 1.0: {Verified.CONFIRMED}}
    assert other.verdict in expected.get(gain, {Verified.REFUTED, Verified.UNDECIDED})


def test_what_cannot_be_tried_on_this_device_says_why() -> None:
    (found, _) = of_changes(0.0, {"precision": "fp16"}, {"static_graph": True})
    assert found.verdict in (Verified.NEEDS_YOU, Verified.NOT_RUN)
    assert bool(found.reason) is (found.verdict is Verified.NEEDS_YOU)
    assert found.record is None

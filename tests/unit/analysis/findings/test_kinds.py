"""The list of rules has every class of findings, and the classes name every finding."""

from __future__ import annotations

import inspect

from raybench.analysis.findings import (
    batch,
    communication,
    compute,
    evenness,
    of_study,
    steadiness,
    unattributed,
)
from raybench.analysis.findings.diagnose import EVERY
from raybench.analysis.findings.finding import FindingName, Kind

RULES = (batch, communication, compute, evenness, of_study, steadiness, unattributed)


def test_every_finding_has_a_rule_that_names_it() -> None:
    code = "".join(inspect.getsource(module) for module in RULES)
    assert [name for name in FindingName if f"FindingName.{name.name}" not in code] == []


def _concrete(kind: type[Kind]) -> set[type[Kind]]:
    below = {each for child in kind.__subclasses__() for each in _concrete(child)}
    return below if inspect.isabstract(kind) or kind.__subclasses__() else {kind}


def test_every_rule_is_in_the_list_once() -> None:
    assert len(set(EVERY)) == len(EVERY)
    assert _concrete(Kind) == set(EVERY)

"""The closed list has every finding once, each a class that says all that a finding says."""

from __future__ import annotations

import inspect
from collections import Counter

from raybench.analysis.findings.diagnose import EVERY
from raybench.analysis.findings.finding import FindingName, Kind


def test_every_finding_is_in_the_list_once() -> None:
    assert Counter(kind.name for kind in EVERY) == Counter(FindingName)
    assert len(set(EVERY)) == len(EVERY)


def _concrete(kind: type[Kind]) -> set[type[Kind]]:
    below = {each for child in kind.__subclasses__() for each in _concrete(child)}
    return below if inspect.isabstract(kind) or kind.__subclasses__() else {kind}


def test_no_class_of_findings_stands_beside_the_list() -> None:
    assert _concrete(Kind) == set(EVERY)

"""Planted causes come back as the first finding, and little is claimed of sound studies.

benchmarks/diagnosis.py does the same with hundreds of studies.
"""

from __future__ import annotations

import pytest

from raybench.analysis.findings.finding import Reason
from tests.support.planted.causes import CAUSES, PlantedCause
from tests.unit.analysis.findings.test_causes import claimed_of_sound, right_of

pytestmark = pytest.mark.long


@pytest.mark.parametrize("cause", CAUSES, ids=lambda cause: f"{cause.name} {cause.kind}".strip())
def test_a_planted_cause_is_the_first_finding(cause: PlantedCause) -> None:
    uneven = cause.reason is Reason.SLOW_ALONE
    assert right_of(cause, 8) >= (4 if uneven else 6 if cause.pairs else 7)


def test_nothing_is_claimed_of_sound_studies() -> None:
    assert claimed_of_sound(200) <= 17  # 10 of 200 by chance; more than 17 in 1% of such tests

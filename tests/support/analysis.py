"""All that follows from records that are in no results directory."""

from __future__ import annotations

from collections.abc import Sequence

from raybench.analysis.findings.case import Around
from raybench.analysis.resolve import resolve
from raybench.analysis.results import StudyResults, found_in
from raybench.records.record import TrialRecord
from raybench.spec.study import Study


def analyse(study: Study, records: Sequence[TrialRecord], around: Around | None = None) -> StudyResults:
    """Of records in whatever states, however many there are; ``around``: the machine, where it is known."""
    around = around or Around()
    return found_in(resolve(study, records, around.environment), around)

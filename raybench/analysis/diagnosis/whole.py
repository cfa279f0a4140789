"""What findings on a study may look at: its trials beside each other, and what it has no numbers of."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Self

from raybench.analysis.confirmations import Confirmation
from raybench.analysis.diagnosis.case import Around
from raybench.analysis.diagnosis.findings import Kind
from raybench.analysis.disagreements import Disagreement
from raybench.analysis.measured import MeasuredStudy
from raybench.analysis.speaking import InSameRounds
from raybench.analysis.uneven_load import UnderLoad


@dataclass(frozen=True)
class WholeStudy:
    """A measured study with what is around it; empty where there is nothing of it."""

    results: MeasuredStudy
    around: Around = field(default_factory=Around)
    confirmed: Sequence[Confirmation] = ()
    apart: Sequence[Disagreement] = ()  # settings whose measurements disagree
    loaded: Sequence[UnderLoad] = ()  # trials that others disturbed more than those beside them
    shared: InSameRounds | None = None  # settings that were measured in the same rounds
    left_out: Sequence[str] = ()  # what was asked and not measured, in words


@dataclass(frozen=True)
class OfStudy(Kind):
    """A kind of finding on a study: of several trials, or of none."""

    whole: WholeStudy

    @classmethod
    @abstractmethod
    def condition(cls, whole: WholeStudy) -> list[Self]:
        """Each time that the study has it."""

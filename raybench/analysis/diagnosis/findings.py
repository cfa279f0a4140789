"""The closed list of what raybench finds wrong, and what a finding carries."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class FindingName(StrEnum):
    """Every finding there is."""

    OUTLIER_ROUNDS = "outlier rounds"
    DRIFT = "drift"
    NOISY_MEASUREMENT = "noisy measurement"
    UNEVEN_DEVICES = "uneven devices"
    STRAGGLER = "straggler"
    OTHER_PROCESSES = "other processes"
    THROTTLING = "throttling"
    OVERSUBSCRIBED = "oversubscribed"
    LOSSES_DISAGREE = "losses disagree"
    NOT_ALL_MEASURED = "not all measured"


class Severity(StrEnum):
    """How much a finding matters to whoever reads the numbers."""

    NOTE = "note"  # the estimator copes with it
    WARNING = "warning"  # the numbers are less sure, or less general, than they look
    PROBLEM = "problem"  # the numbers should not be used as they are


@dataclass(frozen=True)
class Finding:
    """One thing that was noticed in one trial."""

    name: FindingName
    severity: Severity
    trial_id: str
    evidence: str  # in numbers, with units
    next_step: str
    values: dict[str, float]  # the evidence's numbers by name, units in the names

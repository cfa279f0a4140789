"""Which programs took the cores while a trial ran, and which of them could be stopped."""

from __future__ import annotations

from collections.abc import Mapping

from raybench.analysis.load import load_of
from raybench.records.measurements import StepsResult
from raybench.records.record import TrialRecord

WORTH_NAMING = 0.01  # of a core
MUCH_UNNAMED = 0.3  # of what was taken
OURS = ("Ray", "raybench", "kernel")  # that cannot be stopped: without them there is no study


def programs_of(steps: StepsResult) -> dict[str, float]:
    """Cores' worth of time by program, of those that took a hundredth of a core, the most first."""
    named = {name: used for name, used in steps.other_programs.items() if used >= WORTH_NAMING}
    return dict(sorted(named.items(), key=lambda one: -one[1]))


def stoppable(steps: StepsResult) -> dict[str, float]:
    """Those that are neither the study's own nor the kernel's."""
    return {name: used for name, used in programs_of(steps).items() if name not in OURS}


def taken_by_others(record: TrialRecord) -> float:
    """Cores that went to what could be stopped, whether it has a name or not; 0 where nobody named any."""
    load = load_of(record)
    if load is None or record.steps is None or not record.steps.other_programs:
        return 0.0
    ours = sum(used for name, used in record.steps.other_programs.items() if name in OURS)
    return max(load.taken - ours, 0.0)


def programs_words(programs: Mapping[str, float], taken: float = 0.0) -> str:
    """Such as "python 0.71, chrome 0.20"; of cores ``taken`` also what none of them accounts for."""
    unnamed = taken - sum(programs.values())
    named = [f"{name} {used:.2f}" for name, used in programs.items()]
    if unnamed > MUCH_UNNAMED * taken:
        named.append(f"programs that came and went {unnamed:.2f}")
    return ", ".join(named)

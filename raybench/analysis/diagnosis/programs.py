"""Which programs took the cores while a trial ran, and which of them could be stopped."""

from __future__ import annotations

from collections.abc import Mapping

from raybench.records.measurements import StepsResult

WORTH_NAMING = 0.01  # of a core
OURS = ("Ray", "raybench", "kernel")  # that cannot be stopped: without them there is no study


def programs_of(steps: StepsResult) -> dict[str, float]:
    """Cores' worth of time by program, of those that took a hundredth of a core, the most first."""
    named = {name: used for name, used in steps.other_programs.items() if used >= WORTH_NAMING}
    return dict(sorted(named.items(), key=lambda one: -one[1]))


def stoppable(steps: StepsResult) -> dict[str, float]:
    """Those that are neither the study's own nor the kernel's."""
    return {name: used for name, used in programs_of(steps).items() if name not in OURS}


def programs_words(programs: Mapping[str, float]) -> str:
    """Such as "python 0.71, chrome 0.20"."""
    return ", ".join(f"{name} {used:.2f}" for name, used in programs.items())

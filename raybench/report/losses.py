"""The parts of a step as shares of it: what is lost for certain."""

from __future__ import annotations

from raybench.analysis.stats.statistics import Estimate
from raybench.analysis.stats.waterfall import Waterfall
from raybench.report.format import PART_WORDS


def shares_of_step(waterfall: Waterfall) -> dict[str, Estimate]:
    """The parts that were measured, by their names in words, the ideal one among them."""
    step_s = waterfall.step_time_s.value
    return {
        PART_WORDS[name]: part.scaled(1 / step_s).as_share for name, part in waterfall.parts.present().items()
    }


def certain(shares: dict[str, Estimate], least: float) -> list[tuple[str, Estimate]]:
    """Those of at least ``least`` of the step whose interval lies above 0, the largest first."""
    known = [(name, share) for name, share in shares.items() if share.low > 0 and share.value >= least]
    return sorted(known, key=lambda item: -item[1].value)

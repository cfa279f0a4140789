"""What a training costs on one device and on several."""

from __future__ import annotations

from collections.abc import Callable

from raybench.analysis.cost import RUNS, CostPoint
from raybench.analysis.results import StudyResults
from raybench.analysis.settings import scaled_settings
from raybench.analysis.stats.statistics import Estimate
from raybench.report.format import figures, interval, plain_lasting, run_words, times
from raybench.report.table import Column, Table, make_table, numbers


def cost_table(results: StudyResults) -> Table:
    """Time, device time and, at a price, money of a run on one device and on several; what runs save."""
    price, shown = results.study.cost.price_per_device_hour, _shown(results)
    at = f"At {price:g} a device-hour." if price else "No price is set (`cost.price_per_device_hour`)."
    made_of = (
        "By the epochs trained, or the mean step, slow ones included; without evaluation. Fewer than "
        "three seeds have no interval."
        if any(each.is_trained for each in shown)
        else "By the mean step, slow ones included; without start-up and evaluation."
    )
    saved = f"saved in 1 and {RUNS} runs"

    def of_runs(total: Estimate, words: Callable[[Estimate], str]) -> str:
        """Of one run, and of all with the interval."""
        one = total.value / RUNS
        return f"{words(Estimate(one, one, one, total.n))}, {words(total)}"

    columns: list[Column[CostPoint]] = [
        numbers("devices", lambda each: each.at.world_size),
        Column("setting", lambda each: each.label),
        numbers("time", lambda each: each.cost.time_s, plain_lasting),
        numbers("cost", lambda each: each.cost.money, interval),
        numbers("device-time", lambda each: each.cost.device_s, plain_lasting),
        numbers("energy, kJ", lambda each: each.cost.energy_joules, lambda joules: figures(joules / 1e3)),
        # where there is a price, money saved takes its place: columns of nothing are not shown
        numbers("device-time over one's", lambda each: None if price else each.device_time_ratio, times),
        numbers(f"time {saved}", lambda each: each.saved_s, lambda time_s: of_runs(time_s, plain_lasting)),
        numbers(f"money {saved}", lambda each: each.saved_money, lambda money: of_runs(money, interval)),
    ]
    return make_table("Cost", f"A run is {run_words(results.run.epochs)}. {at} {made_of}", columns, shown)


def _shown(results: StudyResults) -> list[CostPoint]:
    """The default's points, and those of the setting to use; where that was not scaled, of the fastest.

    None where all are on one number of devices: there is no choice.
    """
    if len({point.at.world_size for point in results.costs}) < 2:
        return []
    use, scaled = results.recommendation, scaled_settings(results)
    of_use = (each for each in scaled if use and each.main.config.same_question(use.config))
    fastest = max(scaled, key=lambda each: each.main.scaling.throughput_samples_per_s.value)
    points = *scaled[0].points, *next(of_use, fastest).points
    return [each for each in results.costs if each.at in points]

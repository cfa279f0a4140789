"""What a training costs on one device and on several."""

from __future__ import annotations

from dataclasses import dataclass

from raybench.analysis.cost import Cost, CostPoint
from raybench.analysis.curves import Curve
from raybench.analysis.labels import devices_words
from raybench.analysis.recommendation import DeviceAdvice
from raybench.analysis.results import StudyResults
from raybench.analysis.stats.statistics import Estimate
from raybench.records.record import TrialRecord
from raybench.report.format import figures, percent, plain_interval, plain_lasting, plain_times, times
from raybench.report.sections.training import trained_words
from raybench.report.table import Column, Table, known, make_table


@dataclass(frozen=True)
class _Row:
    """One piece of work in one trial."""

    point: CostPoint
    cost: Cost

    @property
    def cost_ratio(self) -> Estimate | None:
        """Device time over one device's: of epochs trained, or of steps."""
        return self.cost.trained_ratio if self.cost.is_trained else self.point.cost_ratio


def cost_table(results: StudyResults) -> Table:
    """Device time, money and energy of one device and of several, and what some runs save."""
    asked = results.study.cost
    prices = prices_words(asked.price_per_device_hour, asked.price_per_node_hour)
    caption = f"{prices}{_trained_words(results)}{_missing_words(results)}".strip()
    return make_table("Cost", caption, _columns(results), _rows(results))


def prices_words(per_device_hour: float | None, per_node_hour: float | None) -> str:
    """At which prices; which fields of a study hold them where there are none."""
    told = [
        f"{price:g} a {what}-hour (cost.price_per_{what}_hour)"
        for what, price in (("device", per_device_hour), ("node", per_node_hour))
        if price is not None
    ]
    if not told:
        return "No price is set (`--price-per-device-hour`). "
    return f"At {' and '.join(told)}. "


def _columns(results: StudyResults) -> list[Column[_Row]]:
    """Money stands there where the study has a price, energy where it was measured."""
    runs, priced = results.study.cost.runs, any(point.costs[0].money for point in results.costs)
    metered = any(cost.energy_joules for point in results.costs for cost in point.costs)
    money = Column[_Row]("cost", lambda row: known(row.cost.money, plain_interval), right=True)
    energy = Column[_Row](
        "energy, kJ", lambda row: known(row.cost.energy_joules, lambda j: figures(j / 1e3)), right=True
    )
    saved_money = Column[_Row](
        f"money saved in {runs} runs", lambda row: known(row.point.saved_money, plain_interval), right=True
    )
    return [
        Column("for", lambda row: row.cost.work.name),
        Column("devices", lambda row: str(row.point.world_size), right=True),
        Column("setting", lambda row: row.point.label),
        Column("time", lambda row: plain_lasting(row.cost.time_s), right=True),
        Column("device-time", lambda row: plain_lasting(row.cost.device_s), right=True),
        *([money] if priced else ()),
        *([energy] if metered else ()),
        Column("device-time over one's", lambda row: known(row.cost_ratio, plain_times), right=True),
        Column(f"saved in {runs} runs", lambda row: known(row.point.saved_s, plain_lasting), right=True),
        *([saved_money] if priced else ()),
    ]


def _rows(results: StudyResults) -> list[_Row]:
    """What a run takes; none where no trial is on several devices: there is no choice."""
    if not any(point.speedup for point in results.costs):
        return []
    # of all trials the table would be long
    shown = {point.trial_id for curve in _shown_curves(results) for point in curve.points}
    place = next(place for place, work in enumerate(results.work) if work.is_run)
    return [_Row(point, point.costs[place]) for point in results.costs if point.record.trial_id in shown]


def _shown_curves(results: StudyResults) -> list[Curve]:
    """The default's, and that of the best suggestion; without one on a curve, of the fastest setting."""
    if not results.curves:
        return []
    best = results.reference(results.best.record).trial_id if results.best else None
    of_best = (curve for curve in results.curves if any(point.trial_id == best for point in curve.points))
    fastest = max(results.curves, key=lambda curve: curve.points[-1].throughput_samples_per_s.value)
    return [results.curves[0], next(of_best, fastest)]


def _missing_words(results: StudyResults) -> str:
    """Which of them has nothing to be compared with."""
    alone = {point.label for point in results.costs if not point.cost_ratio and point.world_size > 1}
    names = [each.label for each in _shown_curves(results) if each.label in alone]
    return f" One device of {' and of '.join(dict.fromkeys(names))} was not measured." if names else ""


def _trained_words(results: StudyResults) -> str:
    """What the figures are made of, and by how much trained epochs differ from steps."""
    if not any(row.cost.is_trained for row in _rows(results)):
        return "By the mean step, without start-up and evaluation."
    differ = [trained_words(results, each) for each in results.trained_times if each.differs]
    apart = f" Trained and by steps is not the same: {'; '.join(differ)}." if differ else ""
    return f"By the epochs trained, without evaluation; fewer than three seeds have no interval.{apart}"


def when_to_use(results: StudyResults) -> str:
    """Which number of devices to use, as a sentence with the numbers that say so; empty without a choice.

    It is of the recommended setting; where one device was not measured with that, of the headline's.
    """
    advice = results.device_advice
    speedup = results.scaling(advice.record).speedup if advice else None
    if advice is None or speedup is None:
        return ""
    record, unit = advice.record, "device time"
    if results.study.cost.price_per_node_hour is not None:
        unit = "money"
    many, here = devices_words(record.config.world_size), f"({results.label(record)})"
    fast, extra = f"{times(speedup)} as fast", f"at {percent(advice.extra, sign=True)} {unit} a sample"
    if (trained := opposite(results, record)) is not None:
        return (
            f"Whether to use {many} or one {here} is not known: {plain_times(trained)} as fast in "
            f"the epochs trained, {times(speedup)} by steps."
        )
    if speedup.low <= 1:
        slower = "slower" if speedup.high < 1 else "not measurably faster"
        return f"Use one device: {many} {here} are {slower}, {fast}, {extra}."
    cheap = ""
    if advice.cheapest is None and advice.extra.low > 0:
        cheap = " Use one where cost counts."
    elif advice.cheapest is not None and advice.cheapest[0] is not record:
        few, least = devices_words(advice.cheapest[0].config.world_size), advice.cheapest[1]
        cheap = f" Use {few} where cost counts, at {percent(least, sign=True)}."
    where = " where time counts" if cheap else ""
    return f"Use {many} {here}{where}: {fast}, {extra}.{cheap}{_no_faster_words(results, advice)}"


def _no_faster_words(results: StudyResults, advice: DeviceAdvice) -> str:
    """The most devices, where fewer are as fast."""
    speedup = results.scaling(advice.asked).speedup
    if advice.asked is advice.record or speedup is None:
        return ""
    return f" {devices_words(advice.asked.config.world_size)} are no faster: {times(speedup)}."


def opposite(results: StudyResults, record: TrialRecord) -> Estimate | None:
    """The speed-up of epochs trained, where it says the opposite of that of steps; else None."""
    by_steps = results.scaling(record).speedup
    for each in results.trained_times:
        if each.record is record and each.differs and each.speedup is not None and by_steps is not None:
            return each.speedup if (each.speedup.value < 1) != (by_steps.value < 1) else None
    return None

"""Tables of what the published experiments ask for: phases, communication, hiding, cost, attribution."""

from __future__ import annotations

from raybench.analysis.attribution import Effect
from raybench.analysis.cost import CostPoint
from raybench.analysis.estimates.phases import PhaseRow, PhaseTable
from raybench.analysis.estimates.statistics import Estimate
from raybench.analysis.hiding import HIDDEN, Hiding
from raybench.analysis.labels import devices_words
from raybench.analysis.results import StudyResults
from raybench.report.tables.tables import Column, Table, in_order, milliseconds
from raybench.report.when_to_use import when_to_use
from raybench.report.wording import duration_words, figures, interval, percent, times

NONE = "–"


def phases_table(results: StudyResults) -> Table:
    """Phases of the headline trial beside one device's; per epoch too where its samples are known."""
    found = results.phases
    if found is None:
        return Table("Phases", "", (), ())
    samples = results.epoch_samples
    lines = [*found.rows, found.total, found.backward_with_synchronization]
    rows = tuple(_phase_cells(row, found, samples) for row in lines)
    many = devices_words(found.world_size)
    epoch = (Column("one device, s an epoch", True), Column(f"{many}, s an epoch", True)) if samples else ()
    columns = (
        Column("phase"),
        Column("one device, ms", True),
        Column(f"{many}, ms", True),
        Column("speed-up", True),
        Column("share of the loss" if found.is_gain is False else "share of the gain", True),
        *epoch,
    )
    caption = (
        f"For the {found.samples:,.0f} samples of one step on {many} ({results.headline_label}), one device "
        "alone beside all of them. Phases are timed in blocks of their own: their shares are taken, the "
        "levels are those of the rounds. Backward is without transfers; gradient synchronization is what "
        "nothing hides of them. The shares add up to 100%; a negative one takes time back."
    )
    if found.is_gain is None:
        caption += " The interval of the speed-up has 1 in it: there is no gain to share."
    if samples:
        caption += f" An epoch has {samples:,.0f} samples."
    return Table("Phases", caption, columns, rows)


def _phase_cells(row: PhaseRow, table: PhaseTable, samples: float | None) -> tuple[str, ...]:
    def seconds(part: Estimate | None) -> str:
        return interval(part.scaled(samples / table.samples)) if part and samples else NONE

    return (
        row.name,
        milliseconds(row.one_s) if row.one_s else NONE,
        milliseconds(row.many_s) if row.many_s else NONE,
        times(row.speedup) if row.speedup else NONE,
        percent(row.share_of_gain) if row.share_of_gain else NONE,
        *((seconds(row.one_s), seconds(row.many_s)) if samples else ()),
    )


def overheads_table(results: StudyResults) -> Table:
    """T_comm beside the exposed part, and Amdahl's serial fraction, of every trial on several devices."""
    rows = []
    for record in in_order(results, "scaling") or in_order(results, "search"):
        found = results.waterfalls[record.trial_id]
        if found is None or found.world_size == 1:
            continue
        exposed = found.parts.exposed_communication
        rows.append(
            (
                str(found.world_size),
                results.label(record),
                milliseconds(found.t_comm_s) if found.t_comm_s else NONE,
                percent(found.t_comm_fraction) if found.t_comm_fraction else NONE,
                milliseconds(exposed) if exposed else NONE,
                percent(found.communication_fraction) if found.communication_fraction else NONE,
                percent(found.serial_fraction) if found.serial_fraction else NONE,
                str(found.step_time_s.n),
            )
        )
    columns = (
        Column("devices", True),
        Column("setting"),
        Column("T_comm = T(n) - T(1), ms", True),
        Column("T_comm / T(n)", True),
        Column("exposed communication, ms", True),
        Column("exposed / T(n)", True),
        Column("Amdahl's f", True),
        Column("n", True),
    )
    caption = (
        "T_comm holds all that more devices add to a step, contention, wrapper and skew too; the exposed "
        "part is the transfers alone. f is the serial fraction that Amdahl's law needs for the measured "
        "speed-up (Karp and Flatt 1990): where it grows with the devices, it is overhead and not serial "
        "work. Mean with 95% interval over n rounds."
    )
    return Table("Overhead by world size", caption, columns, tuple(rows))


def hiding_table(results: StudyResults) -> Table:
    """The compute in a step above which communication is hidden."""
    found = results.hiding
    rows = tuple(
        (
            each.label,
            f"{point.batch_size:,}",
            milliseconds(point.compute_s),
            percent(point.fraction),
            each.measure,
            str(point.fraction.n),
        )
        for each in found
        for point in each.points
    )
    columns = (
        Column("setting"),
        Column("batch per device", True),
        Column("compute in a step, ms", True),
        Column("share of T(n)", True),
        Column("which is"),
        Column("n", True),
    )
    words = " ".join(hiding_words(each) for each in found)
    caption = (
        f"Compute is the step of one device alone, T(n) the step on {devices_words(found[0].world_size)}. "
        f"Hidden: at most {HIDDEN:.0%} of T(n). {words}"
        if found
        else ""
    )
    return Table("How much compute hides communication", caption, columns, rows)


def hiding_words(found: Hiding) -> str:
    """Where it falls below the limit, in a sentence."""
    setting = f"{found.label}: " if found.label != "default" else ""
    if found.compute_s is not None and found.below and found.above:
        low = "below what was measured" if found.low_s is None else duration_words(found.low_s)
        high = "above what was measured" if found.high_s is None else duration_words(found.high_s)
        bracket = " and ".join(duration_words(p.compute_s.value) for p in (found.below, found.above))
        return (
            f"{setting}hidden from about {duration_words(found.compute_s)} of compute in a step on "
            f"[{low}, {high}], interpolated between {bracket} (batch {found.below.batch_size:,} and "
            f"{found.above.batch_size:,})."
        )
    if found.is_hidden_everywhere:
        return f"{setting}hidden at every batch measured, from {duration_words(_least(found))} of compute on."
    return f"{setting}not reached up to {duration_words(_most(found))} of compute in a step."


def _least(found: Hiding) -> float:
    return found.points[0].compute_s.value


def _most(found: Hiding) -> float:
    return found.points[-1].compute_s.value


def cost_table(results: StudyResults) -> Table:
    """Device time, money and energy of one device and of several, and what some runs save."""
    pieces, points = results.work, results.costs
    priced, runs = results.study.cost.price_per_device_hour is not None, results.study.cost.runs
    metered = any(cost.energy_joules for point in points for cost in point.costs)
    shown = [point for point in points if point.record.trial_id in _told(results)]
    rows = tuple(
        _cost_cells(point, place, priced, metered) for place in range(len(pieces)) for point in shown
    )
    columns = [Column("for"), Column("devices", True), Column("setting"), Column("time, min", True)]
    columns.append(Column("device-minutes", True))
    columns += [Column("cost", True)] * priced + [Column("energy, kJ", True)] * metered
    columns += [Column("device time / one device's", True), Column(f"{runs} runs save, h", True)]
    columns += [Column(f"{runs} runs save", True)] * priced
    price = (
        f"At {results.study.cost.price_per_device_hour:g} a device-hour (cost.price_per_device_hour). "
        if priced
        else "No price is set (cost.price_per_device_hour). "
    )
    caption = (
        f"{when_to_use(results)} {price}Steps alone, without start-up and evaluation; a run is "
        f"{pieces[-1].name} (cost.runs = {runs}). The default and the fastest setting; mean with 95% "
        "interval, the ratio and the savings by blocks of the same rounds."
    ).strip()
    return Table("Cost", caption, tuple(columns), rows if any(point.speedup for point in points) else ())


def _told(results: StudyResults) -> set[str]:
    """The trials of the default's curve and of the fastest one: of all, the table would be long."""
    if not results.curves:
        return set()
    last = max(results.curves, key=lambda curve: curve.points[-1].throughput_samples_per_s.value)
    return {point.trial_id for curve in (results.curves[0], last) for point in curve.points}


def _cost_cells(point: CostPoint, place: int, priced: bool, metered: bool) -> tuple[str, ...]:
    cost = point.costs[place]
    is_run = place == len(point.costs) - 1
    cells = [
        cost.work.name,
        str(point.record.config.world_size),
        point.label,
        interval(cost.time_s.scaled(1 / 60)),
        interval(cost.device_s.scaled(1 / 60)),
    ]
    if priced:
        cells.append(interval(cost.money) if cost.money else NONE)
    if metered:
        cells.append(figures(cost.energy_joules / 1e3) if cost.energy_joules else NONE)
    cells.append(times(point.cost_ratio) if point.cost_ratio else NONE)
    cells.append(interval(point.saved_s.scaled(1 / 3600)) if point.saved_s and is_run else NONE)
    if priced:
        cells.append(interval(point.saved_money) if point.saved_money and is_run else NONE)
    return tuple(cells)


def attribution_table(results: StudyResults) -> Table:
    """What each knob changes against the default, one at a time and together."""
    found = results.attribution
    if found is None:
        return Table("What each knob changes", "", (), ())
    rows = [_effect_cells(effect, "one knob") for effect in found.singles]
    rows += [_effect_cells(effect, f"{len(effect.changes)} knobs together") for effect in found.together]
    columns = (
        Column("change"),
        Column("of"),
        Column("efficiency", True),
        Column("efficiency / default's", True),
        Column("samples/s / default's", True),
        Column("interaction", True),
        Column("n", True),
    )
    caption = (
        f"Against the default ({results.label(found.default)}) at {percent(found.default_efficiency)} on "
        f"{devices_words(found.world_size)}. The trials are minutes apart, so the intervals hold the "
        "uncertainty of both. Interaction: what the knobs do together over the product of what each does "
        "alone, where each was measured alone. Accumulation alone leaves the batch of a pass as it is. "
        "The workload is one within a study: how much a larger model "
        "does, two results directories tell (raybench.analysis.attribution.between)."
    )
    return Table("What each knob changes", caption, columns, tuple(rows))


def _effect_cells(effect: Effect, of: str) -> tuple[str, ...]:
    return (
        effect.label,
        of,
        percent(effect.efficiency),
        times(effect.efficiency_ratio),
        times(effect.throughput_ratio),
        times(effect.interaction) if effect.interaction else NONE,
        str(effect.efficiency_ratio.n),
    )

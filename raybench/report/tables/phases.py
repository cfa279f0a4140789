"""Phases of the headline's step beside one device's."""

from __future__ import annotations

from raybench.analysis.labels import devices_words
from raybench.analysis.results import StudyResults
from raybench.analysis.stats.phases import PhaseRow
from raybench.analysis.stats.statistics import Estimate
from raybench.report.format import interval, lost_milliseconds, plain_percent, restart_words, times
from raybench.report.tables.base import Column, Table, empty_table, known, make_table


def phases_table(results: StudyResults) -> Table:
    """Phases of the headline trial beside one device's; per epoch too where its samples are known."""
    phases, epoch_samples = results.phases, results.epoch_samples
    if phases is None:
        return empty_table("Phases")
    many = devices_words(phases.world_size)
    gain = "share of the loss" if phases.is_gain is False else "share of the gain"
    columns: list[Column[PhaseRow]] = [
        Column("phase", lambda row: row.name),
        Column("one device, ms", lambda row: known(row.one_s, lost_milliseconds), right=True),
        Column(f"{many}, ms", lambda row: known(row.many_s, lost_milliseconds), right=True),
        Column("speed-up", lambda row: known(row.speedup, times), right=True),
        Column(gain, lambda row: known(row.share_of_gain, plain_percent), right=True),
    ]
    if epoch_samples:
        steps = epoch_samples / phases.samples

        def an_epoch(step_s: Estimate) -> str:
            return interval(step_s.scaled(steps).not_negative)

        columns += [
            Column("one device, s an epoch", lambda row: known(row.one_s, an_epoch), right=True),
            Column(f"{many}, s an epoch", lambda row: known(row.many_s, an_epoch), right=True),
        ]
    caption = (
        f"For the {phases.samples:,.0f} samples of one step on {many} ({results.headline_label}), one device "
        "alone beside all of them. Phases are timed in blocks of their own: their shares are taken, the "
        "levels are those of the rounds. Backward is without transfers; gradient synchronization is what "
        "nothing hides of them. "
    )
    if phases.is_gain is None:
        caption += "The speed-up is too near to 1, or not surely another: there is no gain to share."
    else:
        caption += "The shares add up to 100%; a negative one takes time back."
    if epoch_samples:
        caption += f" An epoch has {epoch_samples:,.0f} samples."
        if results.restart_s is not None:
            caption += f" It also has a restart of the loader, {restart_words(results.restart_s)} on {many}."
    rows = [*phases.rows, phases.total, phases.backward_with_synchronization]
    return make_table("Phases", caption, columns, rows)

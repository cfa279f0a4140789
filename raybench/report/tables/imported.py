"""Measurements made elsewhere: how each batch scales, as far as step times alone say it."""

from __future__ import annotations

from raybench.analysis.simulate.steps import MeasuredGroup, MeasuredScaling
from raybench.report.format import figures, plain_interval, plain_percent
from raybench.report.prediction import place_words
from raybench.report.tables.base import Column, Table, known, make_table
from raybench.spec.knobs import KnobValue


def imported_table(group: MeasuredGroup, scalings: tuple[MeasuredScaling, ...]) -> Table:
    """One model's measured steps, the smallest batch first."""
    batch = "global batch" if group.scaling == "strong" else "batch"
    columns: list[Column[MeasuredScaling]] = [
        Column("devices/ nodes", lambda row: place_words(row.shape), right=True),
        Column(batch, lambda row: f"{row.batch_size:,}", right=True),
        Column("step time, ms", lambda row: plain_interval(row.step_time_s.scaled(1e3)), right=True),
        Column("samples/s", lambda row: figures(row.throughput_samples_per_s.value), right=True),
        Column("speed-up", lambda row: known(row.speedup, lambda each: f"{each.value:.2f}x"), right=True),
        Column("efficiency", lambda row: known(row.efficiency, plain_percent), right=True),
        Column("status", lambda row: str(row.status) if row.status else ""),
    ]
    setting = f", {group.setting}" if group.setting else ""
    of = "step time" if group.scaling == "strong" else "throughput"
    caption = (
        f"Over the smallest world size that was measured with the same batch; the speed-up is that of the "
        f"{of}, efficiency is over the ratio of world sizes. Intervals stand where the file has those of the "
        "step times."
    )
    return make_table(f"{group.model}{setting}: {group.scaling} scaling", caption, columns, scalings)


def imported_row(group: MeasuredGroup, each: MeasuredScaling) -> dict[str, KnobValue]:
    """A row of the summary: the columns of ``summary.csv`` that step times alone have."""
    size, of_all = each.shape.world_size, group.scaling == "strong"
    efficiency = each.efficiency
    is_sure = each.step_time_s.low < each.step_time_s.high
    return {
        "model": group.model,
        "scaling": group.scaling,
        "world_size": size,
        "nodes": each.shape.nodes,
        "placement": "".join(map(str, each.shape.workers)) if max(each.shape.workers) < 10 else "",
        "batch_size": each.batch_size,
        "global_batch_size": each.batch_size if of_all else each.batch_size * group.passes * size,
        "gradient_accumulation": group.passes,
        "step_time_s": each.step_time_s.value,
        "step_time_low_s": each.step_time_s.low if is_sure else None,
        "step_time_high_s": each.step_time_s.high if is_sure else None,
        "throughput_samples_per_s": each.throughput_samples_per_s.value,
        "baseline_world_size": each.baseline_world_size,
        "speedup": each.speedup.value if each.speedup else None,
        "efficiency": efficiency.value if efficiency else None,
        "efficiency_low": efficiency.low if efficiency and efficiency.low < efficiency.high else None,
        "efficiency_high": efficiency.high if efficiency and efficiency.low < efficiency.high else None,
        "status": str(each.status) if each.status else None,
    }

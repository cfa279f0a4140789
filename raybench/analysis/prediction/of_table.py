"""Groups of measured steps from a file: which rows are fitted together, which setting is a model's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from raybench.analysis.estimates.statistics import Estimate
from raybench.analysis.labels import knob_words
from raybench.analysis.prediction.measured_groups import (
    MeasuredGroup,
    Measurement,
    ScalingMode,
    log_error,
    micro_batch,
    without_interval,
)
from raybench.analysis.prediction.points import MeasuredPoint, Shape
from raybench.errors import RequestError
from raybench.records.measured_csv import MeasuredRow, MeasuredTable
from raybench.spec.counted import counted
from raybench.spec.knobs import KnobValue, Setting
from raybench.spec.toml import received

SettingKey = tuple[tuple[str, str], ...]  # knobs and variables with their values, as the file has them


def groups_of_table(
    table: MeasuredTable, asked: ScalingMode | None = None, chosen: Mapping[str, str] | None = None
) -> list[MeasuredGroup]:
    """A group for each model, device, input and study, in the file's order, of one setting.

    ``asked`` is the scaling of a file that does not say it, else weak; ``chosen`` has values of knobs. Of
    several settings that fit, the one of the most world sizes is taken, of these the one of the most rows,
    then the first.

    Raises:
        RequestError: no row has the chosen setting, or the file says that its batches are the others.
    """
    scaling = asked or "weak"
    said = sorted({row.scaling for row in table.rows if row.scaling and not table.is_summary} - {scaling})
    if asked is not None and said:
        raise RequestError(
            f"--scaling: {said[0]}, as the column scaling of {table.path} says (received {asked})"
        )
    families: dict[tuple[object, ...], list[MeasuredRow]] = {}
    for row in table.rows:
        key: tuple[object, ...] = (
            row.model,
            row.context,
            row.scaling or scaling,
            row.gradient_accumulation,
        )
        families.setdefault(key, []).append(row)
    named: dict[tuple[object, ...], list[list[MeasuredRow]]] = {}
    for key, rows in families.items():  # accumulation is a knob as well
        named.setdefault(key[:3], []).extend(_by_setting(rows))
    groups = [_group(table, settings, scaling, chosen or {}, len(named)) for settings in named.values()]
    return [group for group in groups if group is not None] or _refuse(table, chosen or {})


def _by_setting(rows: Sequence[MeasuredRow]) -> list[list[MeasuredRow]]:
    """Rows of one setting each; on one device those that cannot matter there are not compared."""
    several: dict[SettingKey, list[MeasuredRow]] = {}
    for row in rows:
        if row.world_size > 1:
            several.setdefault(row.setting, []).append(row)
    alone = [row for row in rows if row.world_size == 1]
    found = [
        [*(row for row in alone if _alone(row.setting) == _alone(setting)), *group]
        for setting, group in several.items()
    ]
    if found:
        return found
    by_setting: dict[SettingKey, list[MeasuredRow]] = {}
    for row in alone:
        by_setting.setdefault(_alone(row.setting), []).append(row)
    return list(by_setting.values())


def _alone(setting: SettingKey) -> SettingKey:
    return tuple((name, value) for name, value in setting if name not in Setting.ONE_DEVICE_INDIFFERENT)


def _group(
    table: MeasuredTable,
    settings: Sequence[Sequence[MeasuredRow]],
    scaling: ScalingMode,
    chosen: Mapping[str, str],
    num_models: int,
) -> MeasuredGroup | None:
    fitting = [rows for rows in settings if _has(rows, chosen)]
    if not fitting:
        return None
    rows = max(fitting, key=lambda each: (len({row.world_size for row in each}), len(each)))
    mode, passes = rows[0].scaling or scaling, rows[0].gradient_accumulation
    per_node = max(-(-row.world_size // row.nodes) for row in rows)
    words = _words(settings, rows)
    notes = [*table.notes]
    if len(settings) > 1:
        others = counted(len(settings) - 1, "other setting")
        notes.append(f"fitted: {words}; {others} left out (--setting KNOB=VALUE chooses)")
    return MeasuredGroup(
        model=_name(table, rows[0], num_models),
        setting=words if len(settings) > 1 else "",
        scaling=mode,
        passes=passes,
        measurements=tuple(_measurement(row, mode, passes, per_node) for row in _first_roles(rows)),
        notes=tuple(notes),
    )


def _has(rows: Sequence[MeasuredRow], chosen: Mapping[str, str]) -> bool:
    of_several = max(rows, key=lambda row: row.world_size)
    setting = dict(of_several.setting) | {"gradient_accumulation": str(of_several.gradient_accumulation)}
    return all(setting.get(name) == value for name, value in chosen.items())


def _refuse(table: MeasuredTable, chosen: Mapping[str, str]) -> list[MeasuredGroup]:
    words = ", ".join(f"{name}={value}" for name, value in chosen.items())
    values: dict[str, set[str]] = {}
    for row in table.rows:
        for name, value in (*row.setting, ("gradient_accumulation", str(row.gradient_accumulation))):
            if row.world_size > 1:
                values.setdefault(name, set()).add(value)
    there = [f"{name}={each}" for name, known in values.items() if len(known) > 1 for each in sorted(known)]
    told = ", ".join(there) or "one setting alone"
    raise RequestError(f"--setting: one that {table.path} has: {told} (received {received(words)})")


def _words(settings: Sequence[Sequence[MeasuredRow]], rows: Sequence[MeasuredRow]) -> str:
    """The knobs by which the settings differ, as this one has them."""
    largest = [max(each, key=lambda row: row.world_size) for each in settings]
    mine = max(rows, key=lambda row: row.world_size)
    words = []
    for name, value in mine.setting:
        if len({dict(row.setting).get(name) for row in largest}) > 1:
            words.append(
                knob_words(name, _typed(value)) if name in Setting.model_fields else f"{name}={value}"
            )
    if len({row.gradient_accumulation for row in largest}) > 1:
        words.append(knob_words("gradient_accumulation", mine.gradient_accumulation))
    return ", ".join(words) or "the one setting"


def _typed(value: str) -> KnobValue:
    """A knob's value from its cell."""
    if value in ("true", "false"):
        return value == "true"
    try:
        return float(value)
    except ValueError:
        return value


def _name(table: MeasuredTable, row: MeasuredRow, num_models: int) -> str:
    """The model, and of what its name does not tell apart what does."""
    models = {each.context for each in table.rows if each.model == row.model}
    if num_models == 1 or len(models) == 1:
        return row.model
    differing = [
        value
        for place, (_, value) in enumerate(row.context)
        if value and len({context[place] for context in models}) > 1
    ]
    return f"{row.model} ({', '.join(differing)})"


def _first_roles(rows: Sequence[MeasuredRow]) -> list[MeasuredRow]:
    """Of a summary.csv the trial of the curve before the same one of the search; the file's order else."""
    curve = {_place(row) for row in rows if row.role == "scaling"}
    return [row for row in rows if row.role != "search" or _place(row) not in curve]


def _place(row: MeasuredRow) -> tuple[object, ...]:
    return row.world_size, row.nodes, row.placement, row.batch_size


def _measurement(row: MeasuredRow, scaling: ScalingMode, passes: int, per_node: int) -> Measurement:
    shape = _shape(row, per_node)
    asked, micro = row.batch_size, micro_batch(row.batch_size, row.world_size, scaling, passes)
    step_s = without_interval(row.step_time_s)
    if row.step_time_low_s is not None and row.step_time_high_s is not None:
        step_s = Estimate(row.step_time_s, row.step_time_low_s, row.step_time_high_s, row.rounds or 1)
    compute_s = row.compute_s
    if row.communication_s is not None:
        compute_s = row.step_time_s - row.communication_s
    samples = row.global_batch_size or micro * passes * row.world_size
    of_all = asked if scaling == "strong" else None
    return Measurement(
        point=MeasuredPoint(shape, micro, row.step_time_s, compute_s, log_error(step_s), of_all),
        batch_size=asked,
        step_time_s=step_s,
        joules_per_sample=row.energy_joules / samples if row.energy_joules else None,
    )


def _shape(row: MeasuredRow, per_node: int) -> Shape:
    """As the placement says; packed where that fills the nodes that there are; else evenly."""
    if row.workers:
        return Shape(row.workers)
    full, rest = divmod(row.world_size, per_node)
    if row.placement == "pack" and full + (rest > 0) == row.nodes:
        return Shape((per_node,) * full + ((rest,) if rest else ()))
    return Shape.even(row.world_size, row.nodes)

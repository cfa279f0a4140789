"""The steps that are fitted together, of a study or of a CSV file."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from raybench.analysis import choice
from raybench.analysis.cost import Work
from raybench.analysis.labels import knob_words, label_wherever
from raybench.analysis.objectives import prices_of
from raybench.analysis.reference import one_of_each, same_devices, without_batch
from raybench.analysis.resolve import Facts
from raybench.analysis.scaling import one_device
from raybench.analysis.simulate.outlook import (
    FEWEST_WORLD_SIZES,
    Outlook,
    doublings,
    forecast,
    outlook,
    shapes_of,
)
from raybench.analysis.simulate.steps import (
    MeasuredGroup,
    MeasuredPoint,
    Measurement,
    ScalingMode,
    Shape,
    log_error,
    micro_batch,
    without_interval,
)
from raybench.analysis.stats.statistics import Estimate
from raybench.analysis.summary import model_name
from raybench.errors import RequestError
from raybench.machine.environment import Environment
from raybench.records.measured_csv import MeasuredRow, MeasuredTable
from raybench.records.record import TrialRecord
from raybench.records.requests import Configuration
from raybench.spec.knobs import KnobValue, Setting
from raybench.spec.plural import plural
from raybench.spec.study import Study
from raybench.spec.user_input import received

_KNOBS = tuple(name for name in Setting.model_fields if name != "batch_size")


def group_of_study(results: Facts, chosen: Mapping[str, str] | None = None) -> MeasuredGroup | None:
    """The headline's setting, or that of ``chosen`` knobs, whatever the batch, placement and world size.

    Devices of another kind than the headline's are left out, where it is known, and so are oversubscribed
    trials. None where nothing that may be fitted was measured.
    """
    usable = [record for record in results.references if not record.config.oversubscribed]
    headline = results.headline
    if chosen or headline is None or headline.config.oversubscribed:
        matching = [record for record in usable if _record_has(record.config, chosen or {})]
        headline = choice.headline(results.study, matching, results.target_world_size)
    if headline is None:
        return None
    alike = [record for record in usable if _same_but_batch(record.config, headline.config)]
    fitted = [record for record in alike if same_devices(record, headline)]
    trials = one_of_each(fitted, lambda each: (each.setting.batch_size, each.world_size, each.placement))
    others = len(usable) - len(alike)
    measurements = [_record_measurement(results, record) for record in trials]
    return MeasuredGroup(
        model=model_name(headline),
        setting=label_wherever(results.study, headline.config) if others else "",
        scaling=headline.config.scaling,
        passes=headline.config.setting.gradient_accumulation,
        measurements=(*_one_device(results, trials), *measurements),
        notes=tuple(_notes(results, usable, alike, headline)),
    )


def outlook_of_study(results: Facts, work: Sequence[Work], devices_per_node: int) -> Outlook | None:
    """The next doublings and their costs at the study's prices; None with too few world sizes."""
    group = group_of_study(results)
    if group is None or len(group.world_sizes) < FEWEST_WORLD_SIZES:
        return None
    shapes = shapes_of(doublings(group), max(devices_per_node, group.devices_per_node))
    return outlook(forecast(group, shapes), work, prices_of(results.study))


def devices_of_node(environment: Environment, study: Study) -> int:
    """How many workers of a resolved study a node of this kind has room for."""
    if study.resources.device == "cpu":
        return environment.usable_cores // study.resources.cpus_per_worker
    return len(environment.gpus)


def settings_of(results: Facts) -> tuple[str, ...]:
    """The values of knobs that were tried, as ``--setting`` takes them."""
    explored = [name for name in results.study.knobs.explored() if name != "batch_size"]
    found = {
        f"{name}={_text(getattr(record.config.setting, name))}"
        for record in results.references
        for name in explored
        if name not in record.config.setting.indifferent(record.config.world_size)
    }
    return tuple(sorted(found))


def _same_but_batch(config: Configuration, headline: Configuration) -> bool:
    """Of very many trials most differ in a knob, which is seen at once."""
    indifferent = headline.setting.indifferent(config.world_size)
    mine, theirs = config.setting, headline.setting
    if any(getattr(mine, name) != getattr(theirs, name) for name in _KNOBS if name not in indifferent):
        return False
    return without_batch(config).same_question(without_batch(headline))


def _record_has(config: Configuration, chosen: Mapping[str, str]) -> bool:
    """On one device what has no effect there is whatever is chosen."""
    indifferent = config.setting.indifferent(config.world_size)
    return all(
        name in indifferent
        or (
            _text(getattr(config.setting, name)) == value
            if name in Setting.model_fields
            else config.environment.get(name) == value
        )
        for name, value in chosen.items()
    )


def _text(value: object) -> str:
    """A knob's value as summary.csv has it."""
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:g}" if isinstance(value, float) else str(value)


def _record_measurement(results: Facts, record: TrialRecord) -> Measurement:
    found, config = results.scalings[record.trial_id], record.config
    over_one = found.baseline is not None and found.baseline.world_size == 1
    compute_s = found.step_time_s.value if config.world_size == 1 else _concurrent_s(results, record)
    assert record.steps is not None
    joules = record.steps.energy_joules
    return Measurement(
        point=MeasuredPoint(
            shape_of(record),
            config.batch_size,
            found.step_time_s.value,
            compute_s,
            log_error(found.step_time_s),
            config.setting.batch_size if config.scaling == "strong" else None,
        ),
        batch_size=config.setting.batch_size,
        step_time_s=found.step_time_s,
        efficiency=found.efficiency if over_one else None,
        joules_per_sample=joules / record.steps.samples_per_step if joules else None,
        is_reference=config.placement == choice.default_placement(results.study, config.world_size),
        mean_step_s=found.mean_step_s,
    )


def _concurrent_s(results: Facts, record: TrialRecord) -> float | None:
    """The bare step on all devices at once, in s; None where that variant was not measured."""
    divided = results.waterfalls.get(record.trial_id)
    if divided is None or divided.parts.contention is None or divided.parts.ideal is None:
        return None
    small = divided.parts.small_batch.value if divided.parts.small_batch else 0.0
    return divided.parts.ideal.value + small + divided.parts.contention.value


def shape_of(record: TrialRecord) -> Shape:
    """How many of the trial's workers stood on each node; evenly where only the number of nodes is known."""
    size, nodes = record.config.world_size, record.nodes or 1
    by_host = Counter(record.hostnames)
    if len(record.hostnames) == size and len(by_host) == nodes:
        return Shape(tuple(sorted(by_host.values(), reverse=True)))
    return Shape.even(size, nodes)


def _one_device(results: Facts, trials: Sequence[TrialRecord]) -> list[Measurement]:
    """One device where it has no trial of its own: in the rounds of the most devices, as costs have it."""
    known = {record.config.setting.batch_size for record in trials if record.config.world_size == 1}
    found = list[Measurement]()
    for record in sorted(trials, key=lambda each: -each.config.world_size):
        batch, config = record.config.setting.batch_size, record.config
        one = one_device(record, results.scaling(record))
        if batch in known or one is None or one.baseline is None or not one.baseline.paired:
            continue
        known.add(batch)
        micro = batch if config.scaling == "weak" else batch // config.setting.gradient_accumulation
        of_all = batch if config.scaling == "strong" else None
        found.append(_of_one(one.step_time_s, one.mean_step_s, batch, micro, of_all))
    return found


def _of_one(
    step_s: Estimate, mean_step_s: Estimate | None, batch: int, micro: int, of_all: int | None
) -> Measurement:
    point = MeasuredPoint(Shape((1,)), micro, step_s.value, step_s.value, log_error(step_s), of_all)
    return Measurement(point, batch, step_s, mean_step_s=mean_step_s)


def _notes(
    results: Facts,
    usable: Sequence[TrialRecord],
    alike: Sequence[TrialRecord],
    headline: TrialRecord,
) -> list[str]:
    notes = []
    oversubscribed = len(results.references) - len(usable)
    if oversubscribed:
        trials = plural(oversubscribed, "oversubscribed trial")
        notes.append(f"{trials} left out: more workers than cores")
    foreign = [record for record in alike if not same_devices(record, headline)]
    if foreign:
        names = ", ".join(sorted({record.device_name for record in foreign if record.device_name}))
        trials = plural(len(foreign), "trial")
        notes.append(f"fitted: {headline.device_name}; {trials} on other devices left out: {names}")
    others = len(usable) - len(alike)
    if others:
        words = label_wherever(results.study, headline.config)
        trials = plural(others, "trial")
        notes.append(f"fitted: {words}; {trials} of other settings left out (--setting KNOB=VALUE chooses)")
    return notes


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
    fitting = [rows for rows in settings if _rows_have(rows, chosen)]
    if not fitting:
        return None
    rows = max(fitting, key=lambda each: (len({row.world_size for row in each}), len(each)))
    mode, passes = rows[0].scaling or scaling, rows[0].gradient_accumulation
    per_node = max(-(-row.world_size // row.nodes) for row in rows)
    words = _words(settings, rows)
    notes = [*table.notes]
    if len(settings) > 1:
        others = plural(len(settings) - 1, "other setting")
        notes.append(f"fitted: {words}; {others} left out (--setting KNOB=VALUE chooses)")
    return MeasuredGroup(
        model=_name(table, rows[0], num_models),
        setting=words if len(settings) > 1 else "",
        scaling=mode,
        passes=passes,
        measurements=tuple(_row_measurement(row, mode, passes, per_node) for row in _first_roles(rows)),
        notes=tuple(notes),
    )


def _rows_have(rows: Sequence[MeasuredRow], chosen: Mapping[str, str]) -> bool:
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
    known = ", ".join(there) or "one setting alone"
    raise RequestError(f"--setting: one that {table.path} has: {known} (received {received(words)})")


def _words(settings: Sequence[Sequence[MeasuredRow]], rows: Sequence[MeasuredRow]) -> str:
    """The knobs by which the settings differ, as this one has them."""
    largest = [max(each, key=lambda row: row.world_size) for each in settings]
    mine = max(rows, key=lambda row: row.world_size)
    words = []
    for name, value in mine.setting:
        if len({dict(row.setting).get(name) for row in largest}) > 1:
            words.append(
                knob_words(name, _knob_value(value)) if name in Setting.model_fields else f"{name}={value}"
            )
    if len({row.gradient_accumulation for row in largest}) > 1:
        words.append(knob_words("gradient_accumulation", mine.gradient_accumulation))
    return ", ".join(words) or "the one setting"


def _knob_value(value: str) -> KnobValue:
    """A knob's value from its cell."""
    if value in ("true", "false"):
        return value == "true"
    try:
        return float(value)
    except ValueError:
        return value


def _name(table: MeasuredTable, row: MeasuredRow, num_models: int) -> str:
    """The model, and what distinguishes it from others of its name."""
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


def _row_measurement(row: MeasuredRow, scaling: ScalingMode, passes: int, per_node: int) -> Measurement:
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
        mean_step_s=step_s.scaled(row.mean_step_time_s / row.step_time_s) if row.mean_step_time_s else None,
    )


def _shape(row: MeasuredRow, per_node: int) -> Shape:
    """As the placement says; packed where that fills the nodes that there are; else evenly."""
    if row.workers:
        return Shape(row.workers)
    full, rest = divmod(row.world_size, per_node)
    if row.placement == "pack" and full + (rest > 0) == row.nodes:
        return Shape((per_node,) * full + ((rest,) if rest else ()))
    return Shape.even(row.world_size, row.nodes)

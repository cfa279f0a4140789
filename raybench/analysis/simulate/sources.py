"""The steps that are fitted together, of a study or of a CSV file."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from statistics import mean

from raybench.analysis import choice
from raybench.analysis.cost import Work
from raybench.analysis.labels import label
from raybench.analysis.objectives import price_of
from raybench.analysis.reference import grouped, same_devices, scaling_first, without_batch
from raybench.analysis.resolve import ALIKE, Facts
from raybench.analysis.simulate.outlook import Outlook, doublings, outlook, shapes_of
from raybench.analysis.simulate.steps import MeasuredGroup, Measurement, Question, ScalingMode, Shape
from raybench.analysis.stats.statistics import Estimate
from raybench.analysis.summary import model_name
from raybench.analysis.units import level_unit
from raybench.machine.environment import Environment
from raybench.records.measured_elsewhere import MeasuredRow, MeasuredTable
from raybench.records.record import TrialRecord
from raybench.spec.knobs import Setting
from raybench.spec.plural import plural
from raybench.spec.study import Study
from raybench.spec.workloads import ScriptSpec


def group_of_study(results: Facts) -> MeasuredGroup | None:
    """The headline's setting, whatever the batch, placement and world size.

    Devices of another kind than the headline's are left out, where it is known, and so are oversubscribed
    trials. None where nothing that may be fitted was measured.
    """
    usable = [record for record in results.references if not record.config.oversubscribed]
    headline = choice.headline(results.study, usable, results.target_world_size)
    if headline is None:
        return None
    asked = without_batch(headline.config)
    alike = [record for record in usable if without_batch(record.config).same_question(asked)]
    fitted = [record for record in alike if same_devices(record, headline)]
    trials = scaling_first(fitted)
    mode, ratio, questions = _counted(headline.config.scaling, [_asked(record) for record in trials])
    group = MeasuredGroup(
        model=model_name(headline.config.workload),
        setting=_setting_words(results, headline) if len(usable) > len(alike) else "",
        scaling=mode,
        passes=headline.config.setting.gradient_accumulation,
        measurements=tuple(map(partial(_record_measurement, results), trials, questions)),
        counted=ratio or 1.0,
        notes=tuple(_notes(results, usable, alike, headline)),
        refused=None if ratio else "samples do not scale",
    )
    return replace(group, measurements=(*_one_device(results, trials, group), *group.measurements))


# where, the batch, passes, and the samples as they were counted; None: those of the batch
_Step = tuple[Shape, int, int, float | None]


def _asked(record: TrialRecord) -> _Step:
    setting, is_script = record.config.setting, isinstance(record.config.workload, ScriptSpec)
    samples = record.steps.samples_per_step if record.steps and is_script else None
    return shape_of(record), setting.batch_size, setting.gradient_accumulation, samples


def _counted(said: ScalingMode, steps: Sequence[_Step]) -> tuple[ScalingMode, float | None, list[Question]]:
    """As which scaling steps are fitted, how many samples each has for each of a batch, and their questions.

    As it is said; of a script, which decides itself, by the samples that its steps had: None where these are
    neither as many for each device nor in all.
    """
    modes: tuple[ScalingMode, ...] = (said, "weak", "strong", said)
    for mode in modes:
        asked = [Question.of(shape, batch, mode, passes) for shape, batch, passes, _ in steps]
        ratios = [(each[-1] or x.samples) / x.samples for each, x in zip(steps, asked, strict=True)]
        if max(ratios) - min(ratios) <= ALIKE * max(ratios):
            return mode, mean(ratios), [replace(each, counted=mean(ratios)) for each in asked]
    return said, None, [replace(each, counted=ratio) for each, ratio in zip(asked, ratios, strict=True)]


def outlook_of_study(results: Facts, run: Work, devices_per_node: int) -> Outlook | None:
    """The next doublings and their costs at the study's price; None where nothing was measured."""
    group = group_of_study(results)
    if group is None:
        return None
    shapes = shapes_of(doublings(group), max(devices_per_node, group.devices_per_node))
    return outlook(group, shapes, run, price_of(results.study))


def devices_of_node(environment: Environment, study: Study) -> int:
    """How many workers of a resolved study a node of this kind has room for."""
    if study.resources.device == "cuda":
        return len(environment.gpus)
    return environment.usable_cores // study.resources.cpus_per_worker


def _record_measurement(results: Facts, record: TrialRecord, question: Question) -> Measurement:
    found, config = results.scalings[record.trial_id], record.config
    together, compute_s = level_unit(config, results.fit.buckets, "concurrent"), None
    if config.world_size == 1:
        compute_s = found.step_time_s.value
    elif results.fit.pool.has(together):
        compute_s = results.fit.pool.time(together).value
    return Measurement(
        question=question,
        step_time_s=found.step_time_s,
        compute_s=compute_s,
        efficiency=found.efficiency if found.over_one else None,
        is_reference=config.placement == choice.default_placement(results.study, config.world_size),
        mean_step_s=found.mean_step_s,
    )


def shape_of(record: TrialRecord) -> Shape:
    """How many of the trial's workers stood on each node; evenly where only the number of nodes is known."""
    size, nodes = record.config.world_size, record.nodes or 1
    by_host = Counter(record.hostnames)
    if len(record.hostnames) == size and len(by_host) == nodes:
        return Shape(tuple(sorted(by_host.values(), reverse=True)))
    return Shape.even(size, nodes)


def _one_device(results: Facts, trials: Sequence[TrialRecord], group: MeasuredGroup) -> list[Measurement]:
    """One device where it has no trial of its own: in the rounds of the most devices, as costs have it."""
    known = {record.config.setting.batch_size for record in trials if record.config.world_size == 1}
    found = list[Measurement]()
    for record in sorted(trials, key=lambda each: -each.config.world_size):
        batch, one = record.config.setting.batch_size, results.scaling(record).one_device
        if batch in known or one is None:
            continue
        known.add(batch)
        found.append(
            Measurement(
                question=group.question(Shape((1,)), batch, group.scaling),
                step_time_s=one.step_time_s,
                compute_s=one.step_time_s.value,
                mean_step_s=one.mean_step_s,
            )
        )
    return found


def _notes(
    results: Facts, usable: Sequence[TrialRecord], alike: Sequence[TrialRecord], headline: TrialRecord
) -> Iterator[str]:
    """What is left out, and of what: of all trials the ``usable`` ones, of these those ``alike``."""
    if oversubscribed := len(results.references) - len(usable):
        yield f"{plural(oversubscribed, 'oversubscribed trial')} left out: more workers than cores"
    if foreign := [record for record in alike if not same_devices(record, headline)]:
        names = ", ".join(sorted({record.device_name for record in foreign if record.device_name}))
        trials = plural(len(foreign), "trial")
        yield f"fitted: {headline.device_name}; {trials} on other devices left out: {names}"
    if others := len(usable) - len(alike):
        words, trials = _setting_words(results, headline), plural(others, "trial")
        yield f"fitted: {words}; {trials} of other settings left out"


def _setting_words(results: Facts, headline: TrialRecord) -> str:
    return label(results.study, headline.config, ["batch_size", "placement"])


def groups_of_table(table: MeasuredTable, asked: ScalingMode | None = None) -> list[MeasuredGroup]:
    """A group for each model and context, in the file's order, of one setting.

    ``asked`` is the scaling of a file that does not say it, else weak. Of several settings the one of the
    most world sizes is taken, of these the one of the most rows, then the first.
    """
    scaling = asked or "weak"
    families = grouped(table.rows, lambda row: (row.model, row.context, row.scaling or scaling))
    return [_group(table, rows, scaling) for rows in families.values()]


def _knobs(row: MeasuredRow, but: Sequence[str]) -> tuple[tuple[str, str], ...]:
    """Knobs and variables but the batch and ``but`` with their values, as the file has them."""
    every = *row.setting, ("gradient_accumulation", str(row.gradient_accumulation))
    return tuple(each for each in every if each[0] not in but)


def _by_setting(rows: Sequence[MeasuredRow], but: Sequence[str]) -> list[list[MeasuredRow]]:
    """Rows of one setting each, one device first: knobs that do not matter there are not compared."""
    of_one = [*but, *Setting.ONE_DEVICE_INDIFFERENT]
    several = grouped((row for row in rows if row.world_size > 1), lambda row: _knobs(row, but))
    alone = grouped((row for row in rows if row.world_size == 1), lambda row: _knobs(row, of_one))
    found = [[*alone.get(_knobs(group[0], of_one), ()), *group] for group in several.values()]
    return found or list(alone.values())


def _group(table: MeasuredTable, family: Sequence[MeasuredRow], scaling: ScalingMode) -> MeasuredGroup:
    said = family[0].scaling or scaling
    # a global batch in other passes on other devices is one setting, in several passes on as many are several
    divided = {(row.world_size, row.batch_size, row.gradient_accumulation) for row in family}
    is_knob = said == "weak" or len(divided) > len({each[:2] for each in divided})
    but = () if is_knob else ("gradient_accumulation",)
    settings = _by_setting(family, but)
    every = [dict(_knobs(rows[-1], but)) for rows in settings]
    rows = max(settings, key=lambda rows: (len({row.world_size for row in rows}), len(rows)))
    per_node = max(-(-row.world_size // row.nodes) for row in rows)
    steps = [
        (_shape(row, per_node), row.batch_size, row.gradient_accumulation, row.global_batch_size)
        for row in rows
    ]
    mode, ratio, questions = _counted(said, steps)
    mine, notes = _knobs(rows[-1], but), [*table.notes]
    words = ", ".join(f"{name}={value}" for name, value in mine if len({each[name] for each in every}) > 1)
    if len(settings) > 1:
        others = plural(len(settings) - 1, "other setting")
        notes.append(f"fitted: {words}; {others} left out")
    return MeasuredGroup(
        model=_name(table, rows[0]),
        setting=words,
        scaling=mode,
        passes=max(rows, key=lambda row: row.world_size).gradient_accumulation,
        measurements=tuple(map(_row_measurement, rows, questions)),
        counted=ratio or 1.0,
        notes=tuple(notes),
        refused=None if ratio else "samples do not scale",
    )


def _name(table: MeasuredTable, row: MeasuredRow) -> str:
    """The model, and what distinguishes it from others of its name."""
    models = {each.context for each in table.rows if each.model == row.model}
    differing = [
        value
        for place, (_, value) in enumerate(row.context)
        if value and len({context[place] for context in models}) > 1
    ]
    return f"{row.model} ({', '.join(differing)})" if differing else row.model


def _row_measurement(row: MeasuredRow, question: Question) -> Measurement:
    step_s = Estimate(row.step_time_s, row.step_time_s, row.step_time_s, 1)
    if row.step_time_low_s is not None and row.step_time_high_s is not None:
        step_s = Estimate(row.step_time_s, row.step_time_low_s, row.step_time_high_s, row.rounds or 1)
    compute_s = row.compute_s
    if row.communication_s is not None:
        compute_s = row.step_time_s - row.communication_s
    return Measurement(
        question=question,
        step_time_s=step_s,
        compute_s=compute_s,
        mean_step_s=step_s.scaled(row.mean_step_time_s / row.step_time_s) if row.mean_step_time_s else None,
    )


def _shape(row: MeasuredRow, per_node: int) -> Shape:
    """As the placement says; packed where that fills the nodes that there are; else evenly."""
    if row.workers:
        return Shape(row.workers)
    packed = Shape.packed(row.world_size, per_node)
    if row.placement == "pack" and packed.nodes == row.nodes:
        return packed
    return Shape.even(row.world_size, row.nodes)

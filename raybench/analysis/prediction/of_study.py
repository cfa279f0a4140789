"""The steps of a study that are fitted together: the headline's setting, every batch and world size."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Mapping, Sequence

from raybench.analysis import choice
from raybench.analysis.cost import Work
from raybench.analysis.estimates.efficiency import one_device
from raybench.analysis.estimates.statistics import Estimate
from raybench.analysis.labels import label_wherever
from raybench.analysis.measured import MeasuredStudy
from raybench.analysis.prediction.forecast import FEWEST_WORLD_SIZES, doublings, forecast, shapes_of
from raybench.analysis.prediction.measured_groups import MeasuredGroup, Measurement, log_error
from raybench.analysis.prediction.points import MeasuredPoint, Shape
from raybench.analysis.prediction.tradeoff import Outlook, outlook
from raybench.analysis.prices import prices_of
from raybench.analysis.same_setting import one_of_each, same_devices, same_question, without_batch
from raybench.analysis.summary import model_name
from raybench.machine.environment import Environment
from raybench.records.record import TrialRecord
from raybench.records.requests import Configuration
from raybench.spec.counted import counted
from raybench.spec.knobs import Setting
from raybench.spec.study import Study

_KNOBS = tuple(name for name in Setting.model_fields if name != "batch_size")


def group_of_study(results: MeasuredStudy, chosen: Mapping[str, str] | None = None) -> MeasuredGroup | None:
    """The headline's setting, or that of ``chosen`` knobs, whatever the batch, placement and world size.

    Devices of another kind than the headline's are left out, where it is known, and so are oversubscribed
    trials. None where nothing that may be fitted was measured.
    """
    usable = [record for record in results.tried if not record.config.oversubscribed]
    headline = results.headline
    if chosen or headline is None or headline.config.oversubscribed:
        matching = [record for record in usable if _has(record.config, chosen or {})]
        headline = choice.headline(results.study, matching, results.target_world_size)
    if headline is None:
        return None
    alike = [record for record in usable if _same_but_batch(record.config, headline.config)]
    fitted = [record for record in alike if same_devices(record, headline)]
    trials = one_of_each(fitted, _trial_key)
    others = len(usable) - len(alike)
    measurements = [_measurement(results, record) for record in trials]
    return MeasuredGroup(
        model=model_name(headline),
        setting=label_wherever(results.study, headline.config) if others else "",
        scaling=headline.config.scaling,
        passes=headline.config.setting.gradient_accumulation,
        measurements=(*_one_device(results, trials), *measurements),
        notes=tuple(_notes(results, usable, alike, headline)),
    )


def outlook_of_study(results: MeasuredStudy, work: Sequence[Work], devices_per_node: int) -> Outlook | None:
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


def settings_of(results: MeasuredStudy) -> tuple[str, ...]:
    """The values of knobs that were tried, as ``--setting`` takes them."""
    explored = [name for name in results.study.knobs.explored() if name != "batch_size"]
    found = {
        f"{name}={_text(getattr(record.config.setting, name))}"
        for record in results.tried
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
    return same_question(without_batch(config), without_batch(headline))


def _has(config: Configuration, chosen: Mapping[str, str]) -> bool:
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


def _trial_key(config: Configuration) -> Hashable:
    return config.setting.batch_size, config.world_size, config.placement


def _measurement(results: MeasuredStudy, record: TrialRecord) -> Measurement:
    found, config = results.told[record.trial_id], record.config
    over_one = found.baseline is not None and found.baseline.world_size == 1
    compute_s = found.step_time_s.value if config.world_size == 1 else _crowd_s(results, record)
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
        speaks=config.placement == choice.default_placement(results.study, config.world_size),
    )


def _crowd_s(results: MeasuredStudy, record: TrialRecord) -> float | None:
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


def _one_device(results: MeasuredStudy, trials: Sequence[TrialRecord]) -> list[Measurement]:
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
        found.append(_of_one(one.step_time_s, batch, micro, of_all))
    return found


def _of_one(step_s: Estimate, batch: int, micro: int, of_all: int | None) -> Measurement:
    point = MeasuredPoint(Shape((1,)), micro, step_s.value, step_s.value, log_error(step_s), of_all)
    return Measurement(point, batch, step_s)


def _notes(
    results: MeasuredStudy,
    usable: Sequence[TrialRecord],
    alike: Sequence[TrialRecord],
    headline: TrialRecord,
) -> list[str]:
    notes = []
    oversubscribed = len(results.tried) - len(usable)
    if oversubscribed:
        trials = counted(oversubscribed, "oversubscribed trial")
        notes.append(f"{trials} left out: more workers than cores")
    foreign = [record for record in alike if not same_devices(record, headline)]
    if foreign:
        names = ", ".join(sorted({record.device_name for record in foreign if record.device_name}))
        trials = counted(len(foreign), "trial")
        notes.append(f"fitted: {headline.device_name}; {trials} on other devices left out: {names}")
    others = len(usable) - len(alike)
    if others:
        words = label_wherever(results.study, headline.config)
        trials = counted(others, "trial")
        notes.append(f"fitted: {words}; {trials} of other settings left out (--setting KNOB=VALUE chooses)")
    return notes

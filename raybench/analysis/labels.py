"""What a trial is called: its setting, by what the study explores."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from raybench.analysis.choice import default_environment, default_setting, is_default
from raybench.records.requests import Configuration, Place, StudyRequest, TrialRequest
from raybench.spec.knobs import KnobValue, Setting
from raybench.spec.placement import placement_words
from raybench.spec.plural import plural
from raybench.spec.study import Study
from raybench.spec.workloads import ScriptSpec, TextSpec


def label(study: Study, config: Configuration, ignore: Collection[str] = ()) -> str:
    """The knobs and variables that the study explores, and the placement where it has several.

    ``ignore``: knobs and variables that are not named, and "placement".
    """
    explored = study.knobs.explored() or _always_shown(study, "batch_size", "precision")
    knobs = [name for name in shown_knobs(config.setting, explored, config.world_size) if name not in ignore]
    if not knobs and "batch_size" not in ignore:
        knobs = ["batch_size"]
    variables = {
        name: value for name, value in _explored_variables(study, config).items() if name not in ignore
    }
    several = len(study.scaling.placement) > 1 and config.world_size > 1 and "placement" not in ignore
    place = [placement_words(config.placement)] if several else []
    return setting_words(config.setting, knobs, variables, place)


def short_labels(study: Study, configs: Sequence[Configuration]) -> list[str]:
    """What tells ``configs`` from one another: the explored knobs, variables and places that differ."""
    values = [config.setting.model_dump() | config.environment for config in configs]
    names = {"batch_size", *study.knobs.explored(), *study.environment}
    same = {name for name in names if len({each.get(name) for each in values}) < 2}
    differ = same != names or len(study.scaling.placement) > 1
    return [label(study, config, same if differ else ()) for config in configs]


def difference_words(study: Study, config: Configuration) -> str:
    """In what a configuration differs from the study's default; "the default" where in nothing."""
    if is_default(study, config):
        return "the default"
    size, default = config.world_size, default_setting(study)
    different = shown_knobs(config.setting, config.setting.at(size).differences(default.at(size)), size)
    variables = {
        name: config.environment.get(name)
        for name, value in default_environment(study).items()
        if config.environment.get(name) != value
    }
    return setting_words(config.setting, different, variables)


def trial_words(study: Study, request: StudyRequest) -> str:
    """A trial while the study runs: its devices and the knobs that the study explores."""
    config = request.config
    knobs = [*study.knobs.explored()] or _always_shown(study, "batch_size")
    if request.kind == "probe":
        knobs = ["batch_size", *_explored_memory_knobs(study)]
    knobs = shown_knobs(config.setting, dict.fromkeys(knobs), config.world_size)
    words = setting_words(config.setting, knobs, _explored_variables(study, config))
    return _named(study, request, words)


def short_trial_words(study: Study, request: StudyRequest) -> str:
    """The same in fewer words where there are: the knobs alone in which it is not the default."""
    if request.kind != "steps" or study.knobs.has_max:  # until "max" is known there is no default
        return trial_words(study, request)
    words = difference_words(study, request.config).replace(" MiB buckets", " MiB")
    return _named(study, request, words)


def task_words(request: TrialRequest) -> str:
    """A trial where its study is not known, as in Ray's dashboard: what it is for, on what, and its id."""
    return f"{request.role} on {devices_of(request.config)} ({request.trial_id})"


def _named(study: Study, request: StudyRequest, words: str) -> str:
    config = request.config
    place = "" if len(study.scaling.placement) == 1 else f" {placement_words(config.placement)}"
    seeds = study.training.seeds if study.training else ()
    seed = f", seed {config.seed}" if request.kind == "training" and len(seeds) > 1 else ""
    start = ""
    if request.kind == "steps" and request.role == "scaling" and study.measure.starts > 1:
        start = f", start {request.start + 1}"
    if request.kind == "steps" and request.visit:
        start += f", visit {request.visit + 1}"
    return f"{devices_of(config)}{place}, {words}{seed}{start}"


def combination_words(study: Study, combination: Setting) -> str:
    """A combination whose largest batch is looked for: strategy, precision, explored knobs of memory."""
    knobs = ["strategy", "precision", *_explored_memory_knobs(study)]
    return setting_words(combination, dict.fromkeys(knobs))


def knob_words(name: str, value: KnobValue) -> str:
    """One knob's value as a person says it."""
    if name == "batch_size":
        return f"batch {value:,}"
    if name == "bucket_cap_mb":
        size = f"{value:g}" if isinstance(value, float) else value  # several are "1/5/25"
        return "default buckets" if value == "default" else f"{size} MiB buckets"
    if name == "precision" and value == "default":
        return "torch's own precision"
    if name in ("precision", "strategy"):
        return str(value)
    if name == "gradient_accumulation":
        return f"accumulation {value}"
    if name == "gradient_compression":
        return "no compression" if value == "none" else f"{value} compression"
    if isinstance(value, bool):
        return name if value else f"no {name}"
    return f"{name} {value}"


def shown_knobs(setting: Setting, knobs: Iterable[str], world_size: int) -> list[str]:
    """Those of ``knobs`` that have an effect there; the strategy always, on one device it is "single"."""
    without = setting.indifferent(world_size)
    return [name for name in knobs if name == "strategy" or name not in without]


def setting_words(
    setting: Setting,
    knobs: Iterable[str],
    environment: Mapping[str, str | None] | None = None,
    place: Sequence[str] = (),
) -> str:
    """The named knobs of a setting, variables and place, separated by commas; "default" without any."""
    words = [knob_words(name, getattr(setting, name)) for name in knobs]
    words += [f"{name}={value}" for name, value in (environment or {}).items()]
    return ", ".join([*words, *place]) or "default"


def weights_words(study: Study) -> str:
    """That a model is trained from random weights which others fine-tune, and what to set; else empty."""
    workload = study.workload
    if study.training is None or not isinstance(workload, TextSpec) or not workload.lacks_checkpoint:
        return ""
    return (
        f"{workload.model} is trained from random weights: it is fine-tuned with "
        "--set workload.checkpoint=NAME_OR_DIRECTORY"
    )


def devices_words(number: int, device: str = "cpu") -> str:
    """1 device, 2 devices; of GPUs, where the ``device`` is said, 1 GPU, 2 GPUs."""
    return plural(number, device_word(device))


def devices_of(config: Place) -> str:
    """The same of as many as a trial has."""
    return devices_words(config.world_size, config.device)


def place_words(place: Place) -> str:
    """Where a trial of a sweep runs: "2 devices, spread"."""
    return f"{devices_of(place)}, {placement_words(place.placement)}"


def device_word(device: str) -> str:
    """What one of them is called in a report."""
    return "GPU" if device == "cuda" else "device"


def _always_shown(study: Study, *knobs: str) -> list[str]:
    """Of ``knobs`` those that the study decides: all, of a script those that its arguments take."""
    script = study.workload
    return [name for name in knobs if not isinstance(script, ScriptSpec) or name in script.placeholders]


def _explored_memory_knobs(study: Study) -> list[str]:
    return [name for name in study.knobs.explored() if name in Setting.MEMORY_KNOBS]


def _explored_variables(study: Study, config: Configuration) -> dict[str, str | None]:
    return {
        name: config.environment.get(name) for name, values in study.environment.items() if len(values) > 1
    }

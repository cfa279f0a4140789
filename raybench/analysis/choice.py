"""The default, the best, and what counts as the same setting, for plan, run and report.

Every question that two stages ask of the same records is answered here, once.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from raybench.analysis.objectives import MAXIMIZED, Candidate, objective_value, pareto_front, price_of
from raybench.analysis.scaling import Fit, Scaling
from raybench.analysis.stats.statistics import Estimate
from raybench.records.record import TrialRecord
from raybench.records.requests import COMPARED_ROLES, Configuration
from raybench.spec.knobs import LargestBatch, Setting
from raybench.spec.placement import Placement
from raybench.spec.study import Study


def default_setting(study: Study, largest: LargestBatch | None = None) -> Setting:
    """The first value of every list (of the strategies: ``Knobs.default``).

    ``largest`` says what "max" stands for; it must be given where that is the first batch. A study that is
    not resolved yet (``resources.device = "auto"``) is taken to run on GPUs.
    """
    device = "cpu" if study.resources.device == "cpu" else "cuda"
    setting: Setting = study.knobs.default(device, largest)
    return setting


def default_environment(study: Study) -> dict[str, str]:
    """The first value of every process knob."""
    return {name: values[0] for name, values in study.environment.items()}


def default_placement(study: Study, world_size: int) -> Placement:
    """The placement of suggestions and of training: the first that is asked for."""
    return placements(study, world_size)[0]


def placements(study: Study, world_size: int) -> list[Placement]:
    """The placements asked for at this size; a list of ranks stands for its own length only."""
    asked = study.scaling.placement
    fitting = [p for p in asked if isinstance(p, str) or len(p) == world_size]
    if world_size == 1:  # one device of one kind: where it stands is no question, unless it is named
        fitting = [p for p in fitting if not isinstance(p, str)] or ["pack"]
    return fitting or ["pack"]


def is_default(study: Study, config: Configuration) -> bool:
    """Whether ``config`` is the default, as far as it can matter on its world size."""
    size, variables = config.world_size, default_environment(study)
    same_variables = all(config.environment.get(name) == value for name, value in variables.items())
    return same_variables and config.setting.at(size) == default_setting(study).at(size)


def target_world_size(study: Study, world_sizes: Iterable[int]) -> int:
    """Where suggestions are measured: the largest of the study's world sizes.

    ``world_sizes``: what "all" stands for.
    """
    listed = study.scaling.world_sizes
    return max(world_sizes if listed == "all" else listed, default=1)


def objective_values(
    study: Study, record: TrialRecord, scaled: Scaling, baseline_size: int = 1
) -> tuple[Estimate, ...] | None:
    """The record's value for each objective of the study, or None where it lacks one.

    ``baseline_size``: devices of the baseline that efficiencies must have to be compared.
    """
    price = price_of(study)
    if scaled.baseline and scaled.baseline.world_size != baseline_size:
        scaled = replace(scaled, efficiency=None)
    values = [objective_value(record, name, scaled, price) for name in study.search.objectives]
    known = tuple(value for value in values if value is not None)
    return known if len(known) == len(values) else None


def winners(study: Study, candidates: Sequence[Candidate], fit: Fit) -> list[Candidate]:
    """The best candidate; for several objectives the Pareto front. Empty without candidates."""
    objectives = study.search.objectives
    if len(objectives) > 1:
        return pareto_front(candidates, objectives, fit, study.search.minimum_gain)
    return [first] if (first := first_by(candidates, objectives)) else []


def first_by(candidates: Sequence[Candidate], objectives: Sequence[str]) -> Candidate | None:
    """The candidate with the best expected value of the first objective; of equal ones, of the next."""
    signs = [1 if each in MAXIMIZED else -1 for each in objectives]
    return max(
        candidates,
        key=lambda each: [sign * one.value for sign, one in zip(signs, each.values, strict=True)],
        default=None,
    )


def headline(study: Study, records: Sequence[TrialRecord], target: int) -> TrialRecord | None:
    """The trial that the report speaks of first: the default's scaling trial at the target.

    Where it is not there: the largest complete world size, the default before others, scaling trials, which
    have all variants, before others.
    """
    usable = [record for record in records if record.steps and record.request.role in COMPARED_ROLES]
    return max(
        usable,
        key=lambda record: (
            record.config.world_size == target,
            record.config.world_size,
            is_default(study, record.config),
            record.request.role == "scaling",
            record.config.placement == default_placement(study, record.config.world_size),
        ),
        default=None,
    )

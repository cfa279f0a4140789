"""What is trained: which settings, with which seeds, on how many devices."""

from __future__ import annotations

import itertools
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import replace

from raybench.analysis.reference import grouped
from raybench.analysis.resolve import resolve
from raybench.plan.trials import Plan, Suggestion
from raybench.records.record import TrialRecord
from raybench.records.requests import Configuration, TrainingRequest
from raybench.records.results import learning_curve
from raybench.spec.study import TrainingSpec


def training_requests(plan: Plan, records: Sequence[TrialRecord] = ()) -> list[TrainingRequest]:
    """What is trained, with each seed on one device and on several: see ``_trained``.

    Seed by seed, so that a study that ends early has whole comparisons. Empty without ``[training]``.
    With ``settings = "measured"`` what ``records`` say was measured too, at the target world size.
    """
    spec = plan.study.training
    if spec is None:
        return []
    sizes = (1, *(size for size in plan.world_sizes if size > 1))
    trained = list(_trained(plan))
    measured = _measured(plan, trained, records) if spec.settings == "measured" else []
    requests = [
        _request(plan, spec, suggestion, size, seed)
        for seed, size in itertools.product(spec.seeds, sizes)
        for suggestion in (*trained, *(measured if size == plan.target else ()))
        if size == 1 or suggestion.setting.strategy != "single"
    ]
    return list({request.trial_id: request for request in requests}.values())


def _measured(plan: Plan, trained: Sequence[Suggestion], records: Sequence[TrialRecord]) -> list[Suggestion]:
    """The fastest of the settings measured at the target that learn equally, by all visits.

    Not one that learns as one of ``trained``, nor one that was stopped: it gets no further seed.
    """

    def learned(of: Suggestion | Configuration) -> Hashable:
        return of.setting.key(plan.target, ignore=of.setting.SPEED_ALONE)

    facts = resolve(plan.study_in_numbers, records)

    def rate(record: TrialRecord) -> float:
        return facts.scaling(record).throughput_samples_per_s.value

    stopped = (each.config for each in records if each.training and each.training.stopped_by)
    known = {learned(each) for each in trained} | {learned(each) for each in stopped}
    there = (each for each in facts.rivals if each.config.world_size == plan.target)
    usable = (each for each in there if not each.config.oversubscribed and learned(each.config) not in known)
    groups = grouped(usable, lambda each: learned(each.config))
    return [plan.suggestion_of(max(group, key=rate)) for group in groups.values()]


def _trained(plan: Plan) -> Iterator[Suggestion]:
    """The default under each strategy; of an ablation that changes anything all changes together too."""
    default = plan.default()
    for strategy in plan.study.knobs.values("strategy"):
        setting = default.setting.model_copy(update={"strategy": strategy})
        yield Suggestion(setting, default.environment)
    together = plan.all_changes() if plan.study.search.method == "ablation" else None
    if together is not None and together != default:
        yield together  # does the cure learn?


def _request(
    plan: Plan, spec: TrainingSpec, suggestion: Suggestion, world_size: int, seed: int
) -> TrainingRequest:
    reference, default = spec.reference_batch, plan.default()
    strategy = {"strategy": default.setting.strategy}
    is_default = replace(suggestion, setting=suggestion.setting.model_copy(update=strategy)) == default
    if reference is None and not is_default:
        # the study's learning rate belongs to the default's step, not to that of a changed batch
        reference = _request(plan, spec, default, 1, seed).reference_batch
    config = plan.config(suggestion, world_size, plan.placement(world_size))
    return TrainingRequest(
        config=config.model_copy(update={"seed": seed}),
        training=spec.model_copy(update={"seeds": (seed,), "reference_batch": reference}),
    )


# --- what a training is compared with, where it may be stopped early


def with_peers(plan: Plan, request: TrainingRequest, records: Sequence[TrialRecord]) -> TrainingRequest:
    """Return ``request`` with what the pruner compares it with; as it is where it is never stopped.

    Never stopped is whatever is trained without having been measured: the default, and an ablation's changes.
    """
    always, pruner = {each.trial_id for each in training_requests(plan)}, plan.study.search.pruner
    if pruner == "none" or request.trial_id in always:
        return request
    config = request.config
    peers = tuple(
        learning_curve(each.training.epochs)
        for each in records
        if each.training is not None
        and each.trial_id != request.trial_id
        and (each.config.world_size, each.config.seed) == (config.world_size, config.seed)
    )
    return request.model_copy(update={"pruner": pruner, "peers": peers})

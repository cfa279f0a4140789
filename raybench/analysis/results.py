"""Everything that a report draws, from a study and its records."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from raybench.analysis.crossover import Crossover, crossover
from raybench.analysis.diagnosis.findings import Finding
from raybench.analysis.diagnosis.stability import findings
from raybench.analysis.estimates.efficiency import Gain, Scaling, gain, same_question, scaling
from raybench.analysis.estimates.statistics import Estimate
from raybench.analysis.estimates.waterfall import Waterfall, waterfall
from raybench.analysis.largest_batch import Found, found_of, in_numbers, stands_for
from raybench.analysis.objectives import MAXIMIZED, Candidate, objective_value, pareto_front
from raybench.analysis.strategies import StrategyRow, compare_strategies
from raybench.analysis.summary import TrialSummary, summarize
from raybench.analysis.training import TrainingResults, analyse_training
from raybench.analysis.words import setting_words, shown_knobs
from raybench.records.record import TrialRecord, TrialRequest
from raybench.spec.knobs import Setting
from raybench.spec.study import MeasureSpec, Study


@dataclass(frozen=True)
class CurvePoint:
    """One world size of a scaling curve."""

    world_size: int
    throughput_samples_per_s: Estimate
    speedup: Estimate | None
    efficiency: Estimate | None
    trial_id: str


@dataclass(frozen=True)
class Curve:
    """One setting over the world sizes, the smallest first."""

    label: str
    points: tuple[CurvePoint, ...]
    is_default: bool


@dataclass(frozen=True)
class BatchPoint:
    """One batch of a batch curve."""

    batch_size: int
    speedup: Estimate
    efficiency: Estimate
    trial_id: str


@dataclass(frozen=True)
class BatchCurve:
    """Efficiency over the batch at one world size, the smallest batch first."""

    label: str
    world_size: int
    points: tuple[BatchPoint, ...]
    crossover: Crossover | None
    is_headline: bool  # the headline's setting, but for the batch


@dataclass(frozen=True)
class Confirmation:
    """A winner, measured again against the default in the same rounds."""

    record: TrialRecord
    label: str
    gain: Gain


@dataclass(frozen=True)
class Best:
    """The best suggestion at the target world size, by the first objective."""

    record: TrialRecord
    label: str
    is_default: bool
    num_suggestions: int
    num_failed: int


@dataclass(frozen=True)
class StudyResults:
    """What a study has found. Records with one id count once, the last of them.

    ``study`` has numbers in the place of ``batch_size = "max"``. The probes that found them are in
    ``summaries`` only, not among ``records``.
    """

    study: Study
    records: tuple[TrialRecord, ...]
    summaries: tuple[TrialSummary, ...]
    target_world_size: int
    curves: tuple[Curve, ...]
    batch_curves: tuple[BatchCurve, ...]  # the first is the one to speak of
    headline: TrialRecord | None  # the default at the target, or the nearest to it that is complete
    headline_scaling: Scaling | None
    headline_label: str
    waterfall: Waterfall | None  # of the headline
    best: Best | None
    pareto: tuple[Candidate, ...]  # several objectives only
    confirmations: tuple[Confirmation, ...]
    findings: tuple[Finding, ...]
    largest: tuple[Found, ...] = ()  # batches that fit, for ``batch_size = "max"``
    strategies: tuple[StrategyRow, ...] = ()  # side by side, where the study has several
    training: TrainingResults | None = None

    @property
    def complete(self) -> tuple[TrialRecord, ...]:
        """The records with numbers."""
        return tuple(record for record in self.records if record.state == "complete")

    @property
    def measured(self) -> tuple[TrialRecord, ...]:
        """The records with step times: what is complete and no training."""
        return tuple(record for record in self.records if record.measurement is not None)

    @property
    def failed(self) -> tuple[TrialRecord, ...]:
        """The records without."""
        return tuple(record for record in self.records if record.state != "complete")

    def label(self, record: TrialRecord) -> str:
        """The record's setting by the knobs and variables that the study explores."""
        return _label(self.study, record.request)

    def answer(self) -> str:
        """The study's answer in plain words."""
        from raybench.analysis.answer import answer

        return answer(self)


def analyse(study: Study, records: Sequence[TrialRecord]) -> StudyResults:
    """All that follows from ``records``, whatever their states and however many there are."""
    everything = tuple({record.trial_id: record for record in records}.values())
    kept = tuple(record for record in everything if not record.request.fit)
    study, largest = _in_numbers(study, everything)
    stepped = [record for record in kept if record.request.training is None]
    target = _target(study, stepped)
    headline = _headline(study, stepped, target)
    best, pareto = _best(study, stepped, target)
    return StudyResults(
        study=study,
        records=kept,
        summaries=tuple(summarize(everything)),
        target_world_size=target,
        curves=tuple(_curves(study, stepped)),
        batch_curves=tuple(_batch_curves(study, stepped, headline)),
        headline=headline,
        headline_scaling=scaling(headline, stepped) if headline else None,
        headline_label=_label(study, headline.request) if headline else "",
        waterfall=waterfall(headline) if headline else None,
        best=best,
        pareto=tuple(pareto),
        confirmations=tuple(_confirmations(study, stepped)),
        findings=tuple(finding for record in kept for finding in findings(record)),
        largest=largest,
        strategies=compare_strategies(study, stepped, _default(study)),
        training=analyse_training(kept),
    )


def _in_numbers(study: Study, records: Sequence[TrialRecord]) -> tuple[Study, tuple[Found, ...]]:
    """The study with the batches that its probes found in the place of "max", and what they say."""
    if not study.knobs.has_max:
        return study, ()
    asked, device = study.scaling.world_sizes, study.resources.device
    sizes = [record.request.world_size for record in records] if asked == "all" else list(asked)
    found = tuple(found_of(study, records, sizes))
    largest = stands_for(found, study, sizes or [1], _target(study, records), device)
    knobs = in_numbers(study.knobs, largest, found)
    return study.model_copy(update={"knobs": knobs}), found


def _target(study: Study, records: Sequence[TrialRecord]) -> int:
    """Where suggestions are measured: as the study says, else the largest world size."""
    if study.scaling.target_world_size is not None:
        return study.scaling.target_world_size
    sizes = study.scaling.world_sizes
    asked = [record.request.world_size for record in records]
    return max(sizes if sizes != "all" else asked, default=1)


def _label(study: Study, request: TrialRequest) -> str:
    knobs = list(study.knobs.explored()) or ["batch_size", "precision"]
    knobs = shown_knobs(request.setting, knobs, request.world_size) or ["batch_size"]
    environment = {name: request.environment.get(name) for name in _explored_variables(study)}
    words = setting_words(request.setting, knobs, environment)
    if len(study.scaling.placement) > 1 and request.world_size > 1:
        place = request.placement
        words += f", {place if isinstance(place, str) else 'ranks ' + ' '.join(map(str, place))}"
    return words


def _explored_variables(study: Study) -> list[str]:
    return [name for name, values in study.environment.items() if len(values) > 1]


def _is_default(study: Study, request: TrialRequest) -> bool:
    default = _default(study).at(request.world_size)
    variables = {name: values[0] for name, values in study.environment.items()}
    same_variables = all(request.environment.get(name) == value for name, value in variables.items())
    return request.setting.at(request.world_size) == default and same_variables


def _default(study: Study) -> Setting:
    default: Setting = study.knobs.default("cpu" if study.resources.device == "cpu" else "cuda")
    return default


def _headline(study: Study, records: Sequence[TrialRecord], target: int) -> TrialRecord | None:
    """The trial that the report speaks of first: the default's scaling trial at the target.

    Where it is not there: the largest complete world size, the default before others, scaling trials, which
    have all variants, before others.
    """
    usable = [
        record for record in records if record.state == "complete" and record.request.role != "confirmation"
    ]
    return max(
        usable,
        key=lambda record: (
            record.request.world_size == target,
            record.request.world_size,
            _is_default(study, record.request),
            record.request.role == "scaling",
            record.request.placement == study.scaling.placement[0],
        ),
        default=None,
    )


def _curves(study: Study, records: Sequence[TrialRecord]) -> list[Curve]:
    """One curve for each setting, variables and kind of placement, the default's first."""
    complete = [record for record in records if record.state == "complete"]
    measured = [record for record in complete if record.request.role == "scaling"]
    measured = measured or [record for record in complete if record.request.role == "search"]
    groups: list[list[TrialRecord]] = []
    for record in sorted(measured, key=lambda each: -each.request.world_size):
        request = record.request
        # A trial on one device belongs to every setting that is the same there.
        joined = [group for group in groups if _on_one_curve(group[0].request, request)]
        for group in joined:
            group.append(record)
        if not joined:
            groups.append([record])
    curves = []
    for group in groups:
        points = sorted((_point(record, complete) for record in group), key=lambda point: point.world_size)
        first = group[0].request
        curves.append(Curve(_label(study, first), tuple(points), _is_default(study, first)))
    return sorted(curves, key=lambda curve: not curve.is_default)


def _on_one_curve(largest: TrialRequest, request: TrialRequest) -> bool:
    if not same_question(largest, request) or largest.world_size == request.world_size:
        return False
    return request.world_size == 1 or largest.placement == request.placement


def _point(record: TrialRecord, others: Sequence[TrialRecord]) -> CurvePoint:
    found = scaling(record, others)
    return CurvePoint(
        record.request.world_size,
        found.throughput_samples_per_s,
        found.speedup,
        found.efficiency,
        record.trial_id,
    )


def _batch_curves(
    study: Study, records: Sequence[TrialRecord], headline: TrialRecord | None
) -> list[BatchCurve]:
    """Efficiency over the batch at the headline's world size.

    A curve for each setting that was measured at two batches or more. Those that pass a speed-up of 1 come
    first, the nearest neighbours before all, else the headline's setting. Where the search left no such
    setting, or none that passes 1, one curve more takes each batch at its most efficient setting.
    """
    if headline is None or headline.request.world_size == 1:
        return []
    size, here = headline.request.world_size, _without_batch(headline.request)
    points: list[tuple[TrialRequest, dict[int, BatchPoint]]] = []  # a request is not hashable
    for record in records:
        request = record.request
        if record.state != "complete" or request.role == "confirmation" or request.world_size != size:
            continue
        found = scaling(record, records)
        if found.efficiency is None or found.speedup is None:
            continue
        point = BatchPoint(request.setting.batch_size, found.speedup, found.efficiency, record.trial_id)
        key = _without_batch(request)
        group = next((group for known, group in points if known == key), None)
        if group is None:
            points.append((key, group := {}))
        group[point.batch_size] = point
    curves = [
        _batch_curve(rest_label(study, key), size, list(group.values()), key == here)
        for key, group in sorted(points, key=lambda item: item[0] != here)
        if len(group) > 1
    ]
    if not any(curve.crossover for curve in curves):
        best: dict[int, BatchPoint] = {}
        for point in (each for _, group in points for each in group.values()):
            known = best.get(point.batch_size)
            if known is None or point.efficiency.value > known.efficiency.value:
                best[point.batch_size] = point
        envelope = _batch_curve("the best setting at each batch", size, list(best.values()))
        if len(best) > 1 and all(curve.points != envelope.points for curve in curves):
            curves.append(envelope)
    return sorted(curves, key=_by_bracket)


def _without_batch(request: TrialRequest) -> TrialRequest:
    """The request with everything reset that two points of one batch curve may differ in."""
    return request.model_copy(
        update={
            "setting": request.setting.model_copy(update={"batch_size": 1}),
            "role": "scaling",
            "variants": (),
            "measure": MeasureSpec(),
        }
    )


def rest_label(study: Study, request: TrialRequest) -> str:
    """A request's setting by what the study explores, but for the batch."""
    knobs = [name for name in study.knobs.explored() if name != "batch_size"]
    knobs = shown_knobs(request.setting, knobs, request.world_size)
    environment = {name: request.environment.get(name) for name in _explored_variables(study)}
    return setting_words(request.setting, knobs, environment)


def _batch_curve(label: str, size: int, points: list[BatchPoint], is_headline: bool = False) -> BatchCurve:
    ordered = sorted(points, key=lambda point: point.batch_size)
    passage = crossover([(point.batch_size, point.speedup) for point in ordered])
    return BatchCurve(label, size, tuple(ordered), passage, is_headline)


def _by_bracket(curve: BatchCurve) -> float:
    """Curves that pass a speed-up of 1 first, of these the one with the nearest neighbours."""
    return curve.crossover.above / curve.crossover.below if curve.crossover else float("inf")


def _best(study: Study, records: Sequence[TrialRecord], target: int) -> tuple[Best | None, list[Candidate]]:
    """The best suggestion and the front of several objectives; oversubscribed trials recommend nothing."""
    at_target = [
        record
        for record in records
        if record.request.world_size == target and record.request.role in ("search", "scaling")
    ]
    searched = [record for record in at_target if record.request.role == "search"]
    suggestions = searched or at_target
    candidates = []
    for record in suggestions:
        values = [
            objective_value(record, objective, study.cost.price_per_device_hour, records)
            for objective in study.search.objectives
            if record.state == "complete"
        ]
        known = [value for value in values if value is not None]
        if len(known) == len(study.search.objectives) and not record.request.oversubscribed:
            candidates.append(Candidate(record, tuple(known)))
    if not candidates or len(suggestions) < 2:
        return None, []
    sign = 1 if study.search.objectives[0] in MAXIMIZED else -1
    winner = max(candidates, key=lambda candidate: sign * candidate.values[0]).record
    failed = sum(record.state != "complete" for record in suggestions)
    is_default = _is_default(study, winner.request)
    best = Best(winner, difference_words(study, winner.request), is_default, len(suggestions), failed)
    several = len(study.search.objectives) > 1
    return best, pareto_front(candidates, study.search.objectives) if several else []


def difference_words(study: Study, request: TrialRequest) -> str:
    """In what a request differs from the study's default, in words; "the default" where in nothing."""
    if _is_default(study, request):
        return "the default"
    size = request.world_size
    different = shown_knobs(
        request.setting, request.setting.at(size).differences(_default(study).at(size)), size
    )
    variables = {
        name: request.environment.get(name)
        for name, values in study.environment.items()
        if request.environment.get(name) != values[0]
    }
    return setting_words(request.setting, different, variables)


def _confirmations(study: Study, records: Sequence[TrialRecord]) -> list[Confirmation]:
    found = []
    for record in records:
        if record.request.role == "confirmation" and record.state == "complete":
            verdict = gain(record, study.search.minimum_gain)
            found.append(Confirmation(record, difference_words(study, record.request), verdict))
    return found

"""What a plan has not measured yet, and what a run reports: values, of which ``commands`` makes sentences."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import Enum, auto

from raybench.analysis.largest_batch import largest_fits_of
from raybench.analysis.reference import known_buckets
from raybench.machine.host import DeviceKind, Resources
from raybench.plan.make_plan import make_plan
from raybench.plan.space import num_open
from raybench.plan.training import training_requests
from raybench.plan.trials import Plan, further_visits, searched
from raybench.records.record import TrialRecord
from raybench.records.requests import StepsRequest, StudyRequest
from raybench.spec.study import Study


class Stage(Enum):
    """The stages of a study, in the order in which what they left out is reported."""

    LARGEST_BATCH = auto()
    CURVES = auto()  # of the default; without a search every first visit
    SEARCH = auto()
    VISITS = auto()  # of default and winner
    TRAINING = auto()
    VERIFICATION = auto()


class NoteKind(Enum):
    """What there is to say."""

    NOT_REACHED = auto()  # for want of time: ``number``, or ``requests``, of ``total``
    NO_ROOM = auto()  # nodes are gone (``reason``): something of the stage was not measured
    ALL_FAIL = auto()  # the default has crashed wherever it was tried (``reason``), and nothing has completed
    NO_BATCH_FITS = auto()
    SPACE_EXHAUSTED = auto()  # ``number`` of ``total`` suggestions made: there are no others
    NOTHING_PROPOSED = auto()  # nothing to verify


@dataclass(frozen=True)
class Note:
    """One thing to say; which fields it has depends on its kind."""

    kind: NoteKind
    stage: Stage
    number: int = 0
    total: int = 0
    requests: tuple[StudyRequest, ...] = ()
    reason: str = ""


# --- what a study asks for and has no record of


def num_suggestions(plan: Plan, records: Sequence[TrialRecord]) -> int:
    """How many suggestions a search still makes after the default's trial, where its space has so many."""
    if not plan.is_search:
        return 0
    return max(min(plan.study.search.trials, _num_points(plan)) - max(len(searched(plan, records)), 1), 0)


def open_visits(plan: Plan, records: Sequence[TrialRecord]) -> list[StepsRequest]:
    """The further visits that ``records`` do not have: of the default, and as many of another winner."""
    is_open = open_trials(plan, records)
    visits = list(filter(is_open, _asked_visits(plan, records)))
    return visits + (plan.visits_of_winner(plan.default()) if _num_points(plan) > 1 else [])


def _asked_visits(
    plan: Plan, records: Sequence[TrialRecord], winners: Sequence[TrialRecord] = ()
) -> list[StepsRequest]:
    """Those of ``further_visits`` that somebody asked for."""
    return [each for each in further_visits(plan, records, winners) if not plan.is_extra(each)]


def _num_points(plan: Plan) -> int:
    number: int = plan.study.knobs.num_combinations()
    return number * len(plan.environments())


def open_trials(plan: Plan, records: Sequence[TrialRecord]) -> Callable[[StudyRequest], bool]:
    """Whether a trial is still to be measured: ``records`` have neither it nor one with its buckets."""
    ids, buckets = {record.trial_id for record in records}, known_buckets(plan.study, records)
    return lambda request: request.trial_id not in ids and buckets.stand_in(request) is None


def left_out(
    study: Study, records: Sequence[TrialRecord], num_nodes: int = 1, winners: Sequence[TrialRecord] = ()
) -> list[Note]:
    """What there is no record of: trials of curves, suggestions, visits, trainings.

    ``study`` is resolved, as a results directory has it; ``num_nodes`` of the machine that measured it;
    ``winners`` what it found best, whose visits belong to it. Trials that were asked and failed are not left
    out, nor are suggestions beyond the points that fit. Raises ``RequestError`` for a study that was changed
    into one that cannot be run.
    """
    if not records:
        return []
    wanted = max(study.least_workers, *(record.config.world_size for record in records))
    devices = wanted - any(record.config.oversubscribed for record in records)  # fewer than were wanted
    device: DeviceKind = "cuda" if study.resources.device == "cuda" else "cpu"
    name = records[0].device_name or device
    plan = make_plan(study, Resources(device, devices, name, num_nodes))
    fits = tuple(largest_fits_of(study, records, plan.world_sizes))
    found = replace(plan, fits=fits) if any(each.batch_size for each in fits) else plan
    return not_reached(found, records, winners)


def not_reached(
    plan: Plan, records: Sequence[TrialRecord], winners: Sequence[TrialRecord] = ()
) -> list[Note]:
    """The same of a plan."""
    notes = list[Note]()
    if plan.is_search:
        num_tried = len(searched(plan, records))
        missing = num_open(plan, records, plan.study.search.trials - num_tried)
        if missing:
            total = num_tried + missing
            notes.append(Note(NoteKind.NOT_REACHED, Stage.SEARCH, number=missing, total=total))
    if plan.study.knobs.has_max:  # what "max" stands for may not be known
        return notes
    is_open = open_trials(plan, records)
    asked: dict[Stage, Sequence[StudyRequest]] = {
        Stage.CURVES: plan.first_visits(),
        Stage.VISITS: _asked_visits(plan, records, winners),
        Stage.TRAINING: training_requests(plan, records),
    }
    for stage, requests in asked.items():
        late = tuple(filter(is_open, requests))
        if late:
            notes.append(Note(NoteKind.NOT_REACHED, stage, requests=late, total=len(requests)))
    return notes

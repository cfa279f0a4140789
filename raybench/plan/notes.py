"""What a run reports in addition to its records: values, of which ``commands.notes`` makes sentences."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum, auto
from typing import Any

from raybench.analysis.largest_batch import largest_fits_of
from raybench.analysis.reference import known_buckets
from raybench.errors import RequestError
from raybench.machine.host import DeviceKind, Resources
from raybench.plan.resolve import make_plan
from raybench.plan.space import SearchSpace
from raybench.plan.training import training_requests
from raybench.plan.trials import Plan, failing, searched
from raybench.records.record import TrialRecord
from raybench.records.requests import StudyRequest
from raybench.spec.knobs import KnobValue, Setting
from raybench.spec.study import Study


class Stage(Enum):
    """The stages of a study, in the order in which what they left out is reported."""

    LARGEST_BATCH = auto()
    CURVES = auto()  # of the default; without a search every first visit
    RETRY = auto()  # of the suggestions that --retry names
    SEARCH = auto()
    VISITS = auto()  # of default and winner
    TRAINING = auto()
    VERIFICATION = auto()


class NoteKind(Enum):
    """What there is to say."""

    NOT_REACHED = auto()  # for want of time: ``number`` of ``total``, ``requests``, ``combinations``
    NOT_PLANNED = auto()  # what was left out is not known: the study cannot be planned again (``reason``)
    NO_ROOM = auto()  # nodes are gone (``reason``): ``requests`` or ``changes``, else the rest of the stage
    SAME_BUCKETS = auto()  # ``number`` trials with the bucket size values[0] not measured: they are values[1]
    NO_PROFILE = auto()  # ``requests`` were measured before a profile was requested
    ALL_FAIL = auto()  # the first ``number`` trials failed, and so would all others
    NO_BATCH_FITS = auto()
    SPACE_EXHAUSTED = auto()  # ``number`` of ``total`` suggestions made: there are no others
    NO_DIAGNOSIS = auto()  # nothing to verify
    OVERSUBSCRIBED = auto()  # not verified
    NOTHING_PROPOSED = auto()  # nothing to verify
    SIDE_BY_SIDE = auto()  # trainings ran ``number`` at once


@dataclass(frozen=True)
class Note:
    """One thing to say; which fields it has depends on its kind."""

    kind: NoteKind
    stage: Stage
    number: int = 0
    total: int = 0
    requests: tuple[StudyRequest, ...] = ()
    changes: tuple[Mapping[str, KnobValue], ...] = ()
    combinations: tuple[Setting, ...] = ()  # of knobs that change memory
    values: tuple[KnobValue, ...] = ()
    reason: str = ""


LEFT_OUT = frozenset({NoteKind.NOT_REACHED, NoteKind.NOT_PLANNED})


# --- what a study asks for and has no record of: its time did not reach so far, or it was interrupted


def left_out(
    study: Study, records: Sequence[TrialRecord], num_nodes: int = 1, winners: Sequence[TrialRecord] = ()
) -> list[Note]:
    """What there is no record of: trials of curves, suggestions, visits, trainings.

    ``study`` is resolved, as a results directory has it; ``num_nodes`` of the machine that measured it;
    ``winners`` what it found best, whose visits belong to it. Trials that were asked and failed are not left
    out, nor are suggestions beyond the points that fit.
    """
    if not records:
        return []
    listed = () if study.scaling.world_sizes == "all" else study.scaling.world_sizes
    wanted = max(*(record.config.world_size for record in records), *listed, 1)
    devices = wanted - any(record.config.oversubscribed for record in records)  # fewer than were wanted
    device: DeviceKind = "cuda" if study.resources.device == "cuda" else "cpu"
    name = records[0].device_name or device
    try:
        plan = make_plan(study, Resources(device, devices, name, num_nodes))
    except RequestError as error:
        return [Note(NoteKind.NOT_PLANNED, Stage.SEARCH, reason=str(error))]
    known, notes = {record.trial_id for record in records}, list[Note]()
    buckets = known_buckets(plan.study, records)
    is_search = study.search.method == "optuna"
    if is_search:
        num_tried = len(searched(plan, records))
        missing = _num_open(plan, records, study.search.trials - num_tried)
        if missing > 0:
            notes.append(_not_reached(Stage.SEARCH, number=missing, total=num_tried + missing))
    if study.knobs.has_max:  # what "max" stands for may not be known
        return notes
    trials, failed = plan.default_curve() if is_search else plan.trials(), failing(records)
    visits = [trial.request for trial in plan.visits(winners)]
    asked: dict[Stage, Sequence[StudyRequest]] = {
        Stage.CURVES: [trial.request for trial in trials],
        Stage.VISITS: [each for each in visits if each.config not in failed],
        Stage.TRAINING: training_requests(plan, records),
    }
    for stage, requests in asked.items():
        late = [each for each in requests if each.trial_id not in known and buckets.stand_in(each) is None]
        if late:
            notes.append(_not_reached(stage, requests=tuple(late), total=len(requests)))
    return notes


def _not_reached(stage: Stage, **fields: Any) -> Note:
    return Note(NoteKind.NOT_REACHED, stage, **fields)


def _num_open(plan: Plan, records: Sequence[TrialRecord], most: int) -> int:
    """Points of the search's space that fit and were not tried; counted up to ``most``."""
    if most <= 0:
        return 0
    fits = largest_fits_of(plan.study, records, plan.world_sizes)
    if plan.study.knobs.has_max and any(each.batch_size for each in fits):
        plan = replace(plan, fits=tuple(fits))
    space, tried = SearchSpace(plan, records), searched(plan, records)
    known = {space.key(space.parameters(plan.suggestion_of(each))) for each in tried}
    found: set[object] = set()
    for point in space.points_that_fit(tried):
        if len(found) >= most:
            break
        key = space.key(point)
        if key not in known:
            found.add(key)
    return len(found)

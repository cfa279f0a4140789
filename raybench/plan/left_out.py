"""What a study asks for and has no record of: its time did not reach so far, or it was interrupted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from raybench.analysis import choice
from raybench.analysis.labels import late_words
from raybench.analysis.largest_batch import largest_fits_of
from raybench.analysis.same_buckets import known_buckets
from raybench.errors import RequestError
from raybench.machine.host import DeviceKind, Resources
from raybench.plan.curves import CONFIRMATION, confirmations, curve_trials
from raybench.plan.resolve import make_plan
from raybench.plan.space import SearchSpace
from raybench.plan.training import training_requests
from raybench.plan.trials import Plan
from raybench.records.record import TrialRecord
from raybench.records.requests import StudyRequest
from raybench.spec.counted import counted
from raybench.spec.study import Study


def left_out_words(
    study: Study, records: Sequence[TrialRecord], num_nodes: int = 1, winners: Sequence[TrialRecord] = ()
) -> list[str]:
    """Counted and named in short: "5 of 18 trials of the curves (2 devices: 2, 4 devices: 3)".

    ``study`` is resolved, as a results directory has it; ``num_nodes`` of the machine that measured it;
    ``winners`` what it found best, whose curves and confirmation belong to it. Trials that were asked and
    failed are not left out, nor are suggestions beyond the points that fit.
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
        return [f"not known: from its records the study cannot be planned again ({error})"]
    known, words = {record.trial_id for record in records}, []
    buckets = known_buckets(plan.study, records)
    is_search, has_max = study.search.method == "optuna", study.knobs.has_max
    if is_search:
        tried = {record.suggestion for record in records if record.request.role == "search"}
        num_tried = len(tried - {None})
        missing = _num_open(plan, records, study.search.trials - num_tried)
        words += [f"{missing} of {counted(num_tried + missing, 'suggestion')}"] if missing > 0 else []
    if has_max:  # what "max" stands for may not be known
        return words
    trials = curve_trials(plan, winners) if is_search else plan.trials()
    kinds: list[tuple[str, str, Sequence[StudyRequest]]] = [
        ("trial", " of the curves", [trial.request for trial in trials]),
        ("training", "", training_requests(plan, records)),
    ]
    for noun, of, requests in kinds:
        late = [each for each in requests if each.trial_id not in known and buckets.stand_in(each) is None]
        words += [late_words(late, len(requests), noun, of)] if late else []
    failed = choice.default_failure(plan.study_in_numbers, records, plan.target)
    if failed is None and any(each.trial_id not in known for each in confirmations(plan, winners)):
        words.append(CONFIRMATION)
    return words


def _num_open(plan: Plan, records: Sequence[TrialRecord], most: int) -> int:
    """Points of the search's space that fit and were not tried; counted up to ``most``."""
    if most <= 0:
        return 0
    fits = largest_fits_of(plan.study, records, plan.world_sizes)
    if plan.study.knobs.has_max and any(each.batch_size for each in fits):
        plan = replace(plan, fits=tuple(fits))
    space, searched = SearchSpace(plan, records), [each for each in records if each.request.role == "search"]
    known = {space.key(space.parameters(plan.suggestion_of(each))) for each in searched}
    found: set[object] = set()
    for point in space.points_that_fit(searched):
        if len(found) >= most:
            break
        key = space.key(point)
        if key not in known:
            found.add(key)
    return len(found)

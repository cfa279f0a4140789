"""What a study asks for and has no record of: its time did not reach so far, or it was interrupted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from raybench.errors import RequestError
from raybench.machine.resources import DeviceKind, Resources
from raybench.plan.resolve import make_plan
from raybench.records.record import TrialRecord
from raybench.records.requests import StudyRequest
from raybench.spec.study import Study


def left_out_words(study: Study, records: Sequence[TrialRecord]) -> list[str]:
    """Counted and named in short: "5 of 18 trials of the curves (4 devices: 3, 2 devices: 2)".

    ``study`` is resolved, as a results directory has it. Trials that were asked and failed are not left out.
    """
    if not records:
        return []
    sizes = [record.config.world_size for record in records]
    device: DeviceKind = "cuda" if study.resources.device == "cuda" else "cpu"
    try:
        plan = make_plan(study, Resources(device, max(sizes), records[0].device_name or device))
    except RequestError:
        return []  # a study of another machine's devices: what it left out cannot be told from here
    known, words = {record.trial_id for record in records}, []
    kinds: dict[str, Sequence[StudyRequest]] = {
        "trials of the curves": [] if study.knobs.has_max else [trial.request for trial in plan.trials()],
        "trainings": [] if study.knobs.has_max else plan.training(),
    }
    if study.search.method == "optuna":
        tried = {record.suggestion for record in records if record.request.role == "search"}
        missing = study.search.trials - len(tried - {None})
        words += [f"{missing} of {study.search.trials} suggestions"] if missing > 0 else []
        del kinds["trials of the curves"]  # of the default and of a winner that is not known before
    for name, requests in kinds.items():
        late = [each for each in requests if each.trial_id not in known]
        if late:
            where = Counter(each.config.world_size for each in late)
            named = ", ".join(
                f"{size} device{'s' if size > 1 else ''}: {n}" for size, n in sorted(where.items())
            )
            words.append(f"{len(late)} of {len(requests)} {name} ({named})")
    return words

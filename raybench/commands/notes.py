"""What a run says beside its results, in sentences: its stages, its notes, what it left out."""

from __future__ import annotations

from collections import Counter

from raybench.analysis import choice
from raybench.analysis.labels import changes_words, combination_words, devices_words, trial_words
from raybench.plan.notes import Note, NoteKind, Stage
from raybench.spec.plural import plural
from raybench.spec.study import Study

BEGINS = {
    Stage.LARGEST_BATCH: "Finding the largest batch that fits on {target}{combinations}",
    Stage.CURVES: "Measuring {trials} at world sizes {sizes}",
    Stage.SEARCH: "Searching for the best of {suggestions} at {target}",
    Stage.VISITS: "Visiting the default and the best again: {trials}{starts}",
    Stage.TRAINING: "Training {trials} to the last epoch",
    Stage.VERIFICATION: "Verifying {changes} that the diagnosis proposes, interleaved",
}
# of what a stage measures: one, and several
NOUNS = {
    Stage.CURVES: ("trial of the curves", "trials of the curves"),
    Stage.VISITS: ("further visit",),
    Stage.TRAINING: ("training",),
}


def stage_words(study: Study, stage: Stage, number: int) -> str:
    """What begins; ``number`` of what the stage measures. ``study`` has its world sizes resolved."""
    sizes, starts = study.scaling.world_sizes, study.measure.starts
    target = choice.target_world_size(study, () if sizes == "all" else sizes)
    return BEGINS[stage].format(
        target=devices_words(target),
        sizes=", ".join(map(str, sizes)),
        trials=plural(number, "trial"),
        suggestions=plural(number, "suggestion"),
        changes=plural(number, "change"),
        combinations=f", for each of {number} combinations" if number > 1 else "",
        starts=f", in {starts} starts of the workers" if starts > 1 else "",
    )


PLAIN = {
    NoteKind.ALL_FAIL: "no more was measured: the default crashed wherever it was tried ({note.reason})",
    NoteKind.NO_BATCH_FITS: "no batch fits, in no combination of the knobs: nothing else was measured",
    NoteKind.SPACE_EXHAUSTED: "{note.number} of {note.total} suggestions were made: no others differ from "
    "them and may fit",
    NoteKind.NO_DIAGNOSIS: "nothing to verify: no trial on which a diagnosis could stand",
    NoteKind.OVERSUBSCRIBED: "not verified: with more workers than cores nothing is recommended",
    NoteKind.NOTHING_PROPOSED: "nothing to verify: no finding proposes a change that was not tested yet",
}


def note_words(study: Study, note: Note) -> str:
    """The sentence of a note; ``study`` has numbers in the place of "max"."""
    match note.kind:
        case NoteKind.NOT_REACHED | NoteKind.NOT_PLANNED:
            return f"not reached: {left_out_words(study, note)}"
        case NoteKind.NO_ROOM:
            return f"not measured, since nodes are gone: {_lost_words(study, note)} ({note.reason})"
    return PLAIN[note.kind].format(note=note)


def left_out_words(study: Study, note: Note) -> str:
    """What was not measured, counted: "5 of 18 trials of the curves (2 devices: 2, 4 devices: 3)"."""
    if note.kind is NoteKind.NOT_PLANNED:
        return f"not known: from its records the study cannot be planned again ({note.reason})"
    match note.stage:
        case Stage.LARGEST_BATCH:
            named = "; ".join(combination_words(study, each) for each in note.combinations)
            return f"the largest batch, exactly ({named})"
        case Stage.SEARCH:
            return f"{note.number} of {plural(note.total, 'suggestion')}"
        case Stage.VERIFICATION:
            named = "; ".join(map(changes_words, note.changes))
            return f"the verification of {plural(len(note.changes), 'change')}: {named}"
    return _late_words(note)


def _lost_words(study: Study, note: Note) -> str:
    if note.changes:
        return f"the verification of {changes_words(note.changes[0])}"
    if note.requests:
        return trial_words(study, note.requests[0])
    return f"the rest of the {note.stage.name.lower().replace('_', ' ')}"


def _late_words(note: Note) -> str:
    """What was not reached, counted: "5 of 18 trials of the curves (1 device: 2, 2 devices: 3)".

    By world size, or where settings are visited repeatedly by visit.
    """
    late = note.requests
    if any(each.kind == "steps" and each.visit for each in late):
        visits = Counter(each.visit + 1 if each.kind == "steps" else 1 for each in late)
        named = [f"visit {visit}: {number}" for visit, number in sorted(visits.items())]
    else:
        sizes = Counter(each.config.world_size for each in late)
        named = [f"{devices_words(size)}: {number}" for size, number in sorted(sizes.items())]
    return f"{len(late)} of {plural(note.total, *NOUNS[note.stage])} ({', '.join(named)})"

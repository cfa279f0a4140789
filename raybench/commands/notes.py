"""What a run says beside its results, in sentences: its stages, its notes, what it left out."""

from __future__ import annotations

from raybench.analysis import choice
from raybench.analysis.labels import devices_words
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
    Stage.LARGEST_BATCH: ("search for the largest batch", "searches for the largest batch"),
    Stage.CURVES: ("trial of the curves", "trials of the curves"),
    Stage.SEARCH: ("suggestion",),
    Stage.VISITS: ("further visit",),
    Stage.TRAINING: ("training",),
    Stage.VERIFICATION: ("verification",),
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


WORDS = {
    NoteKind.NO_ROOM: "not measured, since nodes are gone: a part of the {stage} ({note.reason})",
    NoteKind.ALL_FAIL: "no more was measured: the default crashed wherever it was tried ({note.reason})",
    NoteKind.NO_BATCH_FITS: "no batch fits, in no combination of the knobs: nothing else was measured",
    NoteKind.SPACE_EXHAUSTED: "{note.number} of {note.total} suggestions were made: no others differ from "
    "them and may fit",
    NoteKind.NOTHING_PROPOSED: "nothing to verify: no finding proposes a change that was not tested yet",
}


def note_words(note: Note) -> str:
    """The sentence of a note."""
    if note.kind is NoteKind.NOT_REACHED:
        return f"not reached: {left_out_words(note)}"
    return WORDS[note.kind].format(note=note, stage=note.stage.name.lower().replace("_", " "))


def left_out_words(note: Note) -> str:
    """What was not measured, counted: "5 of 18 trials of the curves"."""
    return f"{note.number or len(note.requests)} of {plural(note.total, *NOUNS[note.stage])}"

"""The sentences of a run's notes."""

import pytest

from raybench.commands.notes import left_out_words, note_words, stage_words
from raybench.machine.host import Resources
from raybench.plan.make_plan import make_plan
from raybench.plan.notes import Note, NoteKind, Stage
from tests.unit.studies import study

PLAN = make_plan(
    study(knobs={"batch_size": [32]}, search={"method": "grid"}, measure={"starts": 2}),
    Resources("cpu", 2, "a CPU"),
)
TRIALS = tuple(PLAN.trials())


@pytest.mark.parametrize(
    ("note", "words"),
    [
        (Note(NoteKind.NOT_REACHED, Stage.SEARCH, 2, 6), "not reached: 2 of 6 suggestions"),
        (
            Note(NoteKind.NOT_REACHED, Stage.CURVES, total=4, requests=TRIALS[:2]),
            "not reached: 2 of 4 trials of the curves",
        ),
        (Note(NoteKind.NOT_REACHED, Stage.VERIFICATION, 1, 1), "not reached: 1 of 1 verification"),
        (
            Note(NoteKind.NO_ROOM, Stage.SEARCH, reason="at most 2 workers fit"),
            "not measured, since nodes are gone: a part of the search (at most 2 workers fit)",
        ),
        (
            Note(NoteKind.ALL_FAIL, Stage.CURVES, reason="rank 0: KeyError: 1"),
            "no more was measured: the default crashed wherever it was tried (rank 0: KeyError: 1)",
        ),
    ],
    ids=str,
)
def test_notes_in_words(note, words):
    assert note_words(note) == words


def test_every_kind_and_every_stage_has_words():
    for kind in NoteKind:
        assert note_words(Note(kind, Stage.CURVES, 1, 2, reason="why"))
    for stage in Stage:
        assert left_out_words(Note(NoteKind.NOT_REACHED, stage, 1, 2))


@pytest.mark.parametrize(
    ("stage", "number", "words"),
    [
        (Stage.LARGEST_BATCH, 1, "Finding the largest batch that fits on 2 devices"),
        (
            Stage.LARGEST_BATCH,
            2,
            "Finding the largest batch that fits on 2 devices, for each of 2 combinations",
        ),
        (Stage.SEARCH, 6, "Searching for the best of 6 suggestions at 2 devices"),
        (Stage.CURVES, 4, "Measuring 4 trials at world sizes 1, 2"),
        (Stage.VISITS, 4, "Visiting the default and the best again: 4 trials, in 2 starts of the workers"),
        (Stage.TRAINING, 3, "Training 3 trials to the last epoch"),
        (Stage.VERIFICATION, 2, "Verifying 2 changes that the diagnosis proposes, interleaved"),
    ],
)
def test_stages_in_words(stage, number, words):
    assert stage_words(PLAN.study, stage, number) == words

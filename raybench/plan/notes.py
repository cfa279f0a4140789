"""What a run reports in addition to its records: values, of which ``commands.notes`` makes sentences."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, auto

from raybench.records.requests import StudyRequest
from raybench.spec.knobs import KnobValue, Setting


class Stage(Enum):
    """The stages of a study, in the order in which what they left out is reported."""

    LARGEST_BATCH = auto()
    RETRY = auto()  # of the suggestions that --retry names
    SEARCH = auto()
    CURVES = auto()
    CONFIRMATION = auto()
    WORST = auto()
    REPEAT = auto()
    TRAINING = auto()
    VERIFICATION = auto()


class RepeatReason(Enum):
    """Why trials of the curve are measured again."""

    UNDER_LOAD = auto()  # other programs took cores from them alone
    DISAGREE = auto()  # measurements of the same setting do


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
    OTHER_PROCESSES = auto()  # the best cannot be confirmed: it differs in process knobs
    DEFAULT_FAILED = auto()  # the best cannot be confirmed: the default has no numbers (``reason``)
    NO_DIAGNOSIS = auto()  # nothing to verify
    OVERSUBSCRIBED = auto()  # not verified
    NOTHING_PROPOSED = auto()  # nothing to verify
    SIDE_BY_SIDE = auto()  # trainings ran ``number`` at once
    FROM_TRIAL = auto()  # ``reason`` is what the ranks of a trial said


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

"""What a study has no numbers of: failed trials by cause, and what was not reached."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Self

from raybench.analysis.diagnosis.findings import Evidence, FindingName, NextStep, Severity
from raybench.analysis.diagnosis.whole import OfStudy, WholeStudy
from raybench.analysis.failures import alike
from raybench.analysis.labels import trial_words
from raybench.records.record import State, TrialRecord

MOST_NAMED = 1  # trials of one cause
GOES_ON = "--resume --output DIR"
MORE_TIME = 2.0  # times the time-out that was not enough


def command_to_go_on(whole: WholeStudy, *also: State) -> str:
    """One command for all that failed or is missing: what may end otherwise is tried again, and the rest.

    Memory that was not enough is not enough again, so it is in it where nothing is complete, or asked
    for (``also``).
    """
    failed, tries = whole.results.failed, list[State](("crashed", "timeout", *also))
    if not whole.results.complete:
        tries.append("oom")
    states = [each for each in dict.fromkeys(tries) if any(record.state == each for record in failed)]
    words = [whole.around.goes_on or GOES_ON]
    words += [f"--retry {','.join(states)}"] if states else []
    longest_s = dict[str, float]()  # by the field that says how long
    for record in failed:
        if record.state == "timeout":
            request = record.study_request
            field = f"{'training' if request.kind == 'training' else 'measure'}.timeout_seconds"
            longest_s[field] = max(longest_s.get(field, 0.0), request.timeout_s)
    words += [f"--set {field}={MORE_TIME * longest:g}" for field, longest in longest_s.items()]
    return " ".join(words)


@dataclass(frozen=True)
class Failed(OfStudy):
    """Trials that failed for one cause."""

    state: ClassVar[State]
    step: ClassVar[str]
    may_end_otherwise: ClassVar[bool] = True  # tried again
    group: tuple[TrialRecord, ...]

    @classmethod
    def condition(cls, whole: WholeStudy) -> list[Self]:
        """A finding for each cause of failures that ended so."""
        ended_so = [record for record in whole.results.failed if record.state == cls.state]
        return [cls(whole, tuple(group)) for group in alike(ended_so)]

    @property
    def trial_id(self) -> str:
        """The first of them."""
        return self.group[0].trial_id

    @property
    def severity(self) -> Severity:
        """A problem where nothing else is there; that a batch is too large is an answer, and a note."""
        if not self.whole.results.complete:
            return Severity.PROBLEM
        return Severity.NOTE if self.state == "oom" else Severity.WARNING

    @property
    def frames(self) -> tuple[str, ...]:
        """Where in the code it arose."""
        return self.group[0].frames

    def evidence(self) -> Evidence:
        """How many of how many, which, and the reason."""
        group, results = self.group, self.whole.results
        total = len(results.records)
        named = [trial_words(results.study, each.study_request) for each in group[:MOST_NAMED]]
        more = f"; and {len(group) - MOST_NAMED} more" if len(group) > MOST_NAMED else ""
        asked = "the only trial that was asked" if total == 1 else f"{len(group)} of {total} trials"
        whose = f" ({'; '.join(named)}{more})" if len(group) < total or total == 1 else ""
        reason = " ".join((group[0].reason or "").split())
        return Evidence(f"{asked}{whose}: {reason}", {"num_trials": float(len(group))})

    def next_step(self) -> NextStep:
        """What to change, and the command that tries them again."""
        command = command_to_go_on(self.whole, self.state) if self.may_end_otherwise else ""
        return NextStep(self.step, command=command)


class Crashed(Failed):
    """An error in a worker, or a worker that died."""

    name, state = FindingName.CRASHED, "crashed"
    step = "mend it, then try what crashed again, and the rest"


class TimedOut(Failed):
    """Longer than a trial may take."""

    name, state = FindingName.TIMED_OUT, "timeout"
    step = "if it does not hang, try again with more time"


class OutOfMemory(Failed):
    """Too large for a device, or for a host."""

    name, state = FindingName.OUT_OF_MEMORY, "oom"
    step = "a smaller batch, accumulation or activation_checkpointing; if others had the memory, try again"


class Refused(Failed):
    """What cannot be measured as asked."""

    name, state = FindingName.REFUSED, "invalid"
    step = "another value of what the reason names"
    may_end_otherwise = False


FAILED: tuple[type[Failed], ...] = (Crashed, TimedOut, OutOfMemory, Refused)


@dataclass(frozen=True)
class NotReached(OfStudy):
    """What was asked and not measured."""

    name = FindingName.NOT_REACHED

    @classmethod
    def condition(cls, whole: WholeStudy) -> list[Self]:
        """Something was left out."""
        return [cls(whole)] if whole.left_out else []

    @property
    def trial_id(self) -> str:
        """None."""
        return ""

    @property
    def severity(self) -> Severity:
        """The answer may be among it."""
        return Severity.WARNING

    def evidence(self) -> Evidence:
        """What, counted."""
        return Evidence("; ".join(self.whole.left_out), {})

    def next_step(self) -> NextStep:
        """The command that measures it."""
        has_budget = self.whole.results.study.time_budget_seconds is not None
        budget = ", within a time budget that begins anew" if has_budget else ""
        return NextStep(f"measure the rest{budget}", command=command_to_go_on(self.whole))

"""Findings on a study: failures, and what was not reached."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from raybench.analysis.findings.finding import Finding, FindingName, Reason, Severity
from raybench.analysis.labels import trial_words
from raybench.analysis.reference import grouped
from raybench.analysis.resolve import Facts
from raybench.records.record import State, TrialRecord
from raybench.spec.study import COMPILING

GOES_ON = "--resume --output DIR"
MORE_TIME = 2.0  # times the time-out that was not enough


def command_to_go_on(results: Facts, goes_on: str, *also: State) -> str:
    """One command for all that failed or is missing: what may end otherwise is tried again, and the rest.

    Memory that was not enough is not enough again, so it is in it where nothing is complete, or requested
    (``also``).
    """
    failed, tries = results.failed, list[State](("crashed", "timeout", *also))
    if not results.complete:
        tries.append("oom")
    states = [each for each in dict.fromkeys(tries) if any(record.state == each for record in failed)]
    words = [goes_on or GOES_ON]
    words += [f"--retry {','.join(states)}"] if states else []
    longest_s = dict[str, float]()  # by the field that says how long
    for record in failed:
        if record.state == "timeout":
            request = record.study_request
            field = f"{'training' if request.kind == 'training' else 'measure'}.timeout_seconds"
            is_longer = request.kind != "training" and request.config.setting.compile
            field_s = request.timeout_s / (COMPILING if is_longer else 1)
            longest_s[field] = max(longest_s.get(field, 0.0), field_s)
    words += [f"--set {field}={MORE_TIME * longest:g}" for field, longest in longest_s.items()]
    return " ".join(words)


_VARYING = re.compile(r"0x[0-9a-fA-F]+|[\d,]*\d")  # addresses, shapes, ranks, bytes


def alike(failed: Iterable[TrialRecord]) -> list[list[TrialRecord]]:
    """The failed records of each cause together, in the order in which the causes came.

    One cause: what was raised, and where; numbers in the words may differ.
    """
    groups = grouped(failed, lambda each: (each.state, _VARYING.sub("#", each.reason or ""), each.frame))
    return list(groups.values())


# each way to end without figures, named as its reason
FAILED: tuple[State, ...] = ("crashed", "timeout", "oom", "invalid")


def failed(results: Facts, goes_on: str = "") -> list[Finding]:
    """A finding for each cause, by how the trials ended; the first of them represents them."""
    return [
        _failed(results, goes_on, state, group)
        for state in FAILED
        for group in alike([record for record in results.failed if record.state == state])
    ]


def _failed(results: Facts, goes_on: str, state: State, group: Sequence[TrialRecord]) -> Finding:
    """A problem where nothing else is there; that a batch is too large is an answer, and a note."""
    severity = Severity.NOTE if state == "oom" else Severity.WARNING
    first = group[0]
    named = {
        "first": trial_words(results.study, first.study_request),
        "error": " ".join((first.reason or "").split()),
    }
    return Finding(
        FindingName.FAILED,
        severity if results.complete else Severity.PROBLEM,
        first.trial_id,
        {"num_trials": float(len(group))},
        reason=Reason(state),
        named=named,
        command="" if state == "invalid" else command_to_go_on(results, goes_on, state),
        frame=first.frame,
    )


def not_reached(results: Facts, left_out: Sequence[str], goes_on: str) -> Finding:
    """What was requested and not measured: the answer may be among it."""
    named, command = {"left_out": ", ".join(left_out)}, command_to_go_on(results, goes_on)
    return Finding(FindingName.NOT_REACHED, Severity.WARNING, "", {}, named=named, command=command)

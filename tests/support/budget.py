"""What a whole run of the tests may start, counted where it is started: one in, one out.

Starting is what an hour of tests was spent on. Whoever needs one more start finds one that shows nothing
which another does not show, or says here why the budget grows.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

CLUSTERS, GROUPS, PROCESSES = "Ray clusters", "worker groups of Ray", "processes"
RANKS, STUDIES, NODES = "groups of ranks", "studies over ranks", "clusters of local nodes"
# Second tries of what failed are not counted. Sessions at once have ranks each. Scripts, Trainers,
# LightningModules, Python and trackers are doors of their own, each with its studies.
AT_MOST = {CLUSTERS: 5, GROUPS: 15, NODES: 5, RANKS: 14, STUDIES: 34, PROCESSES: 88}
EXCEEDED = 10  # the exit code of a session that started more
TAKEN: dict[str, Counter[str]] = {kind: Counter() for kind in AT_MOST}
FILE = "RAYBENCH_STARTS"  # a variable: where the sessions of one run keep what they have started together


def took(kind: str, number: int = 1) -> None:
    """Count ``number`` starts of a kind for the test that runs now."""
    test = os.environ.get("PYTEST_CURRENT_TEST", "between tests").split(" ")[0]
    TAKEN[kind][test.split("::")[0].split("[")[0]] += number


def load() -> None:
    """What earlier sessions of the run have started."""
    if (name := os.environ.get(FILE)) and (file := Path(name)).exists():
        add(json.loads(file.read_text()))


def save() -> None:
    """For the sessions that follow."""
    if name := os.environ.get(FILE):
        Path(name).write_text(json.dumps(TAKEN))


def add(starts: Mapping[str, Mapping[str, int]]) -> None:
    """Those of another session."""
    for kind, by in starts.items():
        TAKEN[kind].update(by)


def counted() -> list[str]:
    """A line for each kind: how many were started, and by whom most."""
    return [f"{kind}: {sum(by.values())} of {AT_MOST[kind]} ({_who(by)})" for kind, by in TAKEN.items() if by]


def exceeded() -> list[str]:
    """The kinds of which more were started than the budget has; the long run may start what it likes."""
    if FILE not in os.environ:
        return []
    return [kind for kind, by in TAKEN.items() if sum(by.values()) > AT_MOST[kind]]


def _who(by: Counter[str]) -> str:
    return ", ".join(f"{number} {test}" for test, number in by.most_common())

"""Everything that raybench raises on purpose, as one tree."""

from __future__ import annotations


class RaybenchError(Exception):
    """The root: catch this to catch whatever raybench itself reports."""


class RequestError(RaybenchError):
    """The request is wrong: a study, an option, a directory. The command ends with exit code 2.

    ``problems`` holds one line for each fault: the field, the rule and the value received.
    """

    def __init__(self, *problems: str) -> None:
        self.problems = problems
        super().__init__("\n".join(problems))


class NoRoomError(RequestError):
    """Workers do not fit on the nodes that there are: before a study, or since nodes were lost."""

    def __init__(self, problem: str, places: int) -> None:
        self.places = places  # for workers, in all
        super().__init__(problem)

    def __reduce__(self) -> tuple[type[NoRoomError], tuple[str, int]]:
        return NoRoomError, (self.problems[0], self.places)


class StoreError(RequestError):
    """A results directory that cannot be used: not ours, newer, in use, or not writable."""


class GroupLostError(RaybenchError):
    """The worker group died before the trial began: a new group can be started, and asked again."""


class InvalidTrialError(RaybenchError):
    """A trial cannot be measured as asked, whatever the hardware: it ends ``invalid`` with this reason."""


class Interrupted(RaybenchError):
    """SIGINT or SIGTERM: keep what was measured, write the report, leave with exit code 130."""

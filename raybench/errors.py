"""Everything that raybench raises on purpose, as one tree."""

from __future__ import annotations

import re

LONGEST_LINE = 2000  # characters of what is told, or recorded, of one failure

_UNPRINTABLE = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")


def printable(text: str, longest: int = LONGEST_LINE) -> str:
    """``text`` as one line that every terminal shows and every file takes, cut to ``longest`` characters.

    Errors bring what others put into them: half characters of file names, commands to the terminal, megabytes.
    """
    cut = text if len(text) <= longest else f"{text[: longest - 3]}..."
    return _UNPRINTABLE.sub(_escaped, cut)


def _escaped(found: re.Match[str]) -> str:
    number = ord(found[0])
    if found[0] in "\t\n\r\u2028\u2029":
        return " "
    return f"\\x{number:02x}" if number < 0x100 else f"\\u{number:04x}"


class RaybenchError(Exception):
    """The root: catch this to catch whatever raybench itself reports."""


class RequestError(RaybenchError):
    """The request is wrong: a study, an option, a directory. The command ends with exit code 2.

    ``problems`` holds one printable line for each fault: the field, the rule and the value received.
    """

    def __init__(self, *problems: str) -> None:
        self.problems = tuple(map(printable, problems))
        super().__init__("\n".join(self.problems))


class NoRoomError(RequestError):
    """Workers do not fit on the nodes that there are: before a study, or since nodes were lost."""

    def __init__(self, problem: str, places: int) -> None:
        self.places = places  # for workers, in all
        super().__init__(problem)

    def __reduce__(self) -> tuple[type[NoRoomError], tuple[str, int]]:
        return NoRoomError, (self.problems[0], self.places)


class NotYetError(RequestError):
    """docs/contract.md names it, this version does not have it: refused with that word, never ignored."""

    def __init__(self, what: str) -> None:
        super().__init__(f"{what}: not there yet in this version")


class StoreError(RequestError):
    """A results directory that cannot be used: not ours, newer, in use, or not writable."""


class GroupLostError(RaybenchError):
    """The worker group died before the trial began: a new group can be started, and asked again."""


class InvalidTrialError(RaybenchError):
    """A trial cannot be measured as asked, whatever the hardware: it ends ``invalid`` with this reason."""


class Interrupted(RaybenchError):
    """SIGINT or SIGTERM: keep what was measured, write the report, leave with exit code 130."""

"""Everything that raybench raises on purpose, as one tree."""

from __future__ import annotations

LONGEST_LINE = 2000  # characters of what is told, or recorded, of one failure

# What code of others may raise: sys.exit is a failure of it, not the end of raybench; nor is an error of
# its own that is no ``Exception``.
CODE_FAILS = BaseException


def printable(text: str, longest: int = LONGEST_LINE) -> str:
    """``text`` as one line that every terminal shows and every file takes, cut to ``longest`` characters.

    Errors bring what others put into them: half characters of file names, commands to terminals, megabytes.
    """
    cut = text if len(text) <= longest else f"{text[: longest - 3]}..."
    shown = (each if each.isprintable() else " " if each.isspace() else repr(each)[1:-1] for each in cut)
    return "".join(shown)


def text_of(error: BaseException) -> str:
    """What an error says; nothing where its own code for that fails."""
    try:
        return str(error)
    except Exception:
        return ""


def first_line(error: BaseException) -> str:
    """What an error says, without the paragraphs that follow; its type's name where it says nothing."""
    lines = [line.strip() for line in text_of(error).splitlines() if line.strip()]
    return lines[0] if lines else type(error).__name__


def system_words(error: OSError) -> str:
    """What the system refused, as it is: "x/y.csv: Permission denied", "Too many open files"."""
    if error.errno is None:  # raised by a program, not by the system
        return f"{type(error).__name__}: {text_of(error)}"
    reason = error.strerror or text_of(error)
    return reason if error.filename is None else f"{error.filename}: {reason}"


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


class StoreError(RequestError):
    """A results directory that cannot be used: not ours, newer, in use, or not writable."""


class GroupLostError(RaybenchError):
    """The worker group died before the trial began: a new group can be started, and asked again."""


class AllFailError(RaybenchError):
    """A study's default has crashed wherever it was tried, and nothing has completed: no more is measured."""


class ClusterBusyError(GroupLostError):
    """Others use the places of a cluster that was joined, and did not give them back in time."""


class InvalidTrialError(RaybenchError):
    """A trial cannot be measured as asked, whatever the hardware: it ends ``invalid`` with this reason.

    Raised where every rank finds it at once, or where the ranks agree on what one of them finds.
    """


class InvalidBatchError(RaybenchError):
    """The same, found by a batch of one rank: others may wait for it in a collective."""


class Interrupted(RaybenchError):
    """SIGINT, SIGTERM or SIGHUP: keep what was measured, write the report, leave with exit code 130."""


class RayDiedError(Interrupted):
    """A process of Ray's without which nothing goes on: the same, before Ray's core ends this one too."""

"""The command ``doctor``: what there is, what is missing, and the command that mends it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import typer
from rich.console import Console
from rich.text import Text

from raybench.commands.console import make_console

if TYPE_CHECKING:
    from raybench.machine.checks.check import Check, Status

_COLORS: dict[Status, str] = {"ok": "green", "warning": "yellow", "missing": "red"}


def doctor() -> None:
    """What this machine has, what is missing, and the command that mends it."""
    found = examine()
    render(found, make_console())
    raise typer.Exit(int(any(check.status == "missing" for check in found)))


def examine(all_reduce: bool = True) -> list[Check]:
    """Every check, in the order of ``render``. With ``all_reduce`` two workers start, for some 5 s."""
    from raybench.machine.checks import (
        capacity,
        collectives,
        devices,
        load,
        network,
        ray_cluster,
        software,
    )
    from raybench.machine.checks.check import Check

    looks: list[tuple[str, Callable[[], Iterator[Check]]]] = [
        ("Python", software.python),
        ("packages", software.packages),
        ("devices", devices.devices),
        ("peer-to-peer", devices.topology),
        ("busy", load.busy),
        ("network", network.network),
        ("memory", capacity.memory),
        ("shared memory", capacity.shared_memory),
        ("disk", capacity.disks),
        ("open files", capacity.open_files),
        ("Ray", ray_cluster.ray),
    ]
    if all_reduce:
        looks.append(("all-reduce", collectives.all_reduce))
    found: list[Check] = []
    for name, look in looks:
        try:
            found += look()
        except Exception as error:  # one unreadable file must not hide the other answers
            found.append(Check(name, "warning", f"could not be examined: {type(error).__name__}: {error}"))
    return found


def render(found: list[Check], console: Console) -> None:
    """Print the checks, what is missing with the command that mends it, and the sum in the last line."""
    width = max((len(check.name) for check in found), default=0)
    indent = len("warning") + width + 4
    for check in found:
        head = Text()
        head.append(f"{check.status:<7}", style=_COLORS[check.status])
        head.append(f"  {check.name:<{width}}  ", style="bold")
        lines = Text(check.found).wrap(console, max(20, console.width - indent))
        for line in lines:
            line.rstrip()
        console.print(head + (lines[0] if lines else Text()), soft_wrap=True, highlight=False)
        for line in lines[1:]:
            console.print(Text(" " * indent) + line, soft_wrap=True, highlight=False)
        if check.mend and check.status != "ok":
            # Never wrapped: a command is there to be copied.
            mend = Text(" " * indent + "-> ").append(check.mend, style="cyan")
            console.print(mend, soft_wrap=True, highlight=False)
    counts = {status: sum(check.status == status for check in found) for status in _COLORS}
    words = [f"{counts['ok']} ok"]
    words += [f"{counts['warning']} warning{'s' * (counts['warning'] > 1)}"] if counts["warning"] else []
    words += [f"{counts['missing']} missing"] if counts["missing"] else []
    console.print(", ".join(words), highlight=False)

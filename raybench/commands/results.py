"""The results directory of a command that measures: a new one, or the one to go on in."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

from raybench.errors import StoreError
from raybench.machine.environment import Environment
from raybench.records.store import Asked, ResultsDirectory

DEFAULT_FOLDER = Path("results")


def open_results(
    asked: Asked, output: Path | None, now: Environment, *, resume: bool, made_of: Path | None = None
) -> ResultsDirectory:
    """For ``asked`` on the machine as it is ``now``; ``made_of``: the file that was typed.

    Raises ``StoreError`` where it cannot be used.
    """
    if resume:
        assert output is not None
        store = ResultsDirectory.resume(output)
        try:
            store.check_same(asked, now)
            store.write_asked(asked, made_of)
        except StoreError:
            store.close()
            raise
        return store
    output = output or DEFAULT_FOLDER / f"{asked.name}-{datetime.now():%Y%m%d-%H%M%S}"
    return ResultsDirectory.create(output, asked, now, made_of)

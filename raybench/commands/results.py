"""The results directory of a command that measures: a new one, or the one to go on in."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from pathlib import Path

from raybench.commands.scaling_request import places_named
from raybench.errors import StoreError
from raybench.machine.environment import Environment
from raybench.machine.host import Resources
from raybench.records.store import Asked, ResultsDirectory

DEFAULT_FOLDER = Path("results")


def as_it_began(output: Path | None, resources: Resources, tell: Callable[[str], None]) -> Resources:
    """What there was when the study or sweep in ``output`` began, where nodes of it are missing now.

    It is planned as it was: what does not fit on the nodes that are left is named when its turn comes. Of the
    missing nodes it is known that each had a place.
    """
    assert output is not None
    with ResultsDirectory.open_readonly(output) as store:
        num_nodes = len(store.environment().every_node)
        named = places_named(store.sweep() if store.is_sweep else store.study())
    missing = num_nodes - resources.num_nodes
    if missing <= 0 or resources.num_devices < 1:
        return resources
    tell(f"goes on with {resources.num_nodes} of {num_nodes} nodes: what does not fit on them is left out")
    num_devices = max(resources.num_devices + missing, named)
    return replace(resources, num_devices=num_devices, num_nodes=num_nodes)


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

"""A sweep's lines of latency and bandwidth, checked against the devices of the trials."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from raybench.errors import RequestError

if TYPE_CHECKING:
    from raybench.analysis.collectives import Link, LinkKey

BACKENDS = {"cpu": "gloo", "cuda": "NCCL"}


def swept_links(
    directory: Path, devices: Iterable[str] = (), names: Iterable[str | None] = ()
) -> Mapping[LinkKey, Link]:
    """The lines of the sweep in ``directory``.

    ``devices`` (cpu, cuda) and ``names`` of them are those of the trials; what nobody told is not compared.
    Raises ``RequestError`` where there is no sweep, or one over another backend or of other devices.
    """
    from raybench.analysis.collectives import link
    from raybench.records.store import ResultsDirectory

    with ResultsDirectory.open_readonly(directory) as store:
        store.sweep()  # a study is refused
        records = list(store.latest().values())
    _compare("backend", _backends(devices), _backends(each.request.config.device for each in records))
    _compare("devices", _known(names), _known(each.device_name for each in records))
    return link(records)


def _compare(what: str, trials: set[str], swept: set[str]) -> None:
    if trials and swept and not trials & swept:
        asked, received = (", ".join(sorted(each)) for each in (trials, swept))
        raise RequestError(f"--communication: a sweep of the trials' {what}, {asked} (received {received})")


def _backends(devices: Iterable[str]) -> set[str]:
    return {BACKENDS[each] for each in devices}


def _known(names: Iterable[str | None]) -> set[str]:
    return {each for each in names if each}

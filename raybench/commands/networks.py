"""``--network``: by a name, a TOML file, or the directory of a sweep."""

from __future__ import annotations

from pathlib import Path

from raybench.errors import RequestError
from raybench.records.base import checked
from raybench.spec.load import read_toml
from raybench.spec.network import Network, named_network
from raybench.spec.user_input import home_path


def parse_network(text: str, option: str = "--network") -> Network:
    """The network of a name, a file or a directory. Raises ``RequestError`` for none of them."""
    path = home_path(text)
    try:
        return named_network(text)
    except ValueError as error:
        if path.is_dir():
            return _of_sweep(path, option)
        if path.suffix != ".toml":
            raise RequestError(f"{option}: {error}") from None
    return checked(f"{option}: {path}", Network, {"name": path.stem} | read_toml(path))


def _of_sweep(path: Path, option: str) -> Network:
    from raybench.analysis.collectives import links, messages
    from raybench.analysis.simulate.network import network_of
    from raybench.records.store import ResultsDirectory

    with ResultsDirectory.open_readonly(path) as store:
        alone = store.sweep().loopback_nic  # a study is refused
        swept = links(messages(store.latest().values()))
    found = network_of(swept, path.resolve().name, through_adapters=alone)
    if found is None:
        raise RequestError(
            f"{option}: a sweep of all_reduce between nodes, or of one with --loopback-nic, three messages "
            f"or more (received {path})"
        )
    return found

"""``--network``: by a name, a TOML file, or the directory of a sweep."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from raybench.errors import RequestError
from raybench.records.whole_files import cannot
from raybench.spec.network import FORM, Network, named_network
from raybench.spec.user_input import home_path, parse_toml, received


def parse_network(text: str, option: str = "--network") -> Network:
    """The network of a name, a file or a directory. Raises ``RequestError`` for none of them."""
    try:
        found = named_network(text)
    except ValueError as error:
        raise RequestError(f"{option}: {error}") from None
    path = Path(home_path(text, option))
    if found is not None:
        return found
    if path.is_dir():
        return _of_sweep(path, option)
    if path.suffix != ".toml":
        raise RequestError(
            f"{option}: {FORM}: a TOML file, or the directory of a sweep (received {received(text)})"
        )
    return _of_file(path, option)


def network_field(text: str, option: str) -> dict[str, Any]:
    """The same as a study has it."""
    return parse_network(text, option).model_dump(exclude_none=True)


def _of_file(path: Path, option: str) -> Network:
    try:
        tables = parse_toml(path.read_text("utf-8"), f"{option} {path}")
        return Network.model_validate({"name": path.stem} | tables)
    except OSError as error:
        raise RequestError(f"{option}: {cannot(path, 'be read', error)}") from None
    except UnicodeDecodeError:
        raise RequestError(f"{option} {path}: no text in UTF-8") from None
    except tomllib.TOMLDecodeError as error:
        raise RequestError(f"{option} {path}: {error}") from None
    except ValidationError as error:
        faults = [f"{'.'.join(map(str, each['loc']))}: {each['msg']}" for each in error.errors()]
        raise RequestError(*(f"{option} {path}: {fault}" for fault in faults)) from None


def _of_sweep(path: Path, option: str) -> Network:
    from raybench.analysis.collectives import link
    from raybench.analysis.simulate.network import network_of
    from raybench.records.store import ResultsDirectory

    with ResultsDirectory.open_readonly(path) as store:
        store.sweep()  # a study is refused
        found = network_of(link(store.latest().values()), path.resolve().name)
    if found is None:
        raise RequestError(
            f"{option}: a sweep of all_reduce between nodes, three messages or more (received {path})"
        )
    return found

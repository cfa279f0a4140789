"""What may come from huggingface.co: a local directory first, then the hub's cache, then the network."""

from __future__ import annotations

import logging
import os
import socket
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar
from urllib.parse import urlsplit
from urllib.request import getproxies

T = TypeVar("T")
for _library in ("HF_HUB", "HF_DATASETS"):  # read when it is imported; transformers goes by the hub's
    os.environ.setdefault(f"{_library}_DISABLE_PROGRESS_BARS", "1")

# so that tokenizers, once it has used threads, does not warn whenever the process forks
os.environ.setdefault("TOKENIZERS_PARALLELISM", "true")


def local(name: str, data: Path | None) -> Path | None:
    """The directory or file that ``name`` means, absolute or under ``data``; None where there is none.

    Never one under the current directory: the workers have another.
    """
    place = Path(name).expanduser()
    if not place.is_absolute():
        if data is None:
            return None
        place = data / place
    return place if place.exists() else None


def load_local_first(load: Callable[..., T], name: str, data: Path | None) -> T:
    """What ``load(place, local_files_only=...)`` makes of a local place, of the hub's cache, or of the hub.

    Raises ``OSError`` where ``name`` is none of them, and whatever ``load`` raises.
    """
    with quietly():
        place = local(name, data)
        if place is not None:
            return load(str(place), local_files_only=True)
        if Path(name).expanduser().exists() or name.startswith((".", "~", "/")):
            raise FileNotFoundError("no such file or directory, or neither absolute nor under --data")
        try:
            return load(name, local_files_only=True)
        except (OSError, ValueError):
            if not reachable():
                raise OSError("huggingface.co cannot be reached") from None
            return load(name, local_files_only=False)


def reachable(url: str = "") -> bool:
    """Whether ``url``, or the hub, may answer: the hub's library itself tries for 20 s before it gives up.

    Not where the user allows no downloads (``HF_HUB_OFFLINE``), nor without a network in which the host has
    an address, or a proxy that may know it.
    """
    from huggingface_hub import constants

    if constants.HF_HUB_OFFLINE:
        return False
    try:
        return bool(getproxies() or socket.getaddrinfo(urlsplit(url or constants.ENDPOINT).hostname, None))
    except OSError:
        return False


def requirement(what: str, name: str, data: Path | None, options: str = "") -> str:
    """What is required, and where ``name`` is no directory yet, how ``hf`` with ``options`` gets it there."""
    if local(name, data) is not None or name.startswith((".", "~", "/")):
        return f"{what} in a directory, absolute or under --data"
    place = f"{'DIR' if data is None else data}/{name}"
    return (
        f"{what} in a directory, absolute or under --data, or on huggingface.co: "
        f"hf download {name}{options} --local-dir {place}"
    )


@contextmanager
def quietly() -> Iterator[None]:
    """No log line or warning of the hub's libraries that are imported by now."""
    loggers = [logging.getLogger(name) for name in ("transformers", "datasets", "huggingface_hub")]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.CRITICAL)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)

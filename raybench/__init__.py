"""raybench measures how well training scales over devices, why, and what to change.

``run`` measures a study, ``open`` reads one from disk; both return ``Results``. ``__all__`` is the public
surface: the rest may change. Its names are imported when they are asked for, so ``import raybench`` is light.

The folders are the stages of one pipeline: ``study`` (the command line) hands what was typed to ``commands``,
``spec`` reads the study, ``plan`` says which trials, ``driver`` asks for them stage by stage, ``launch``
starts the processes, ``worker`` measures on every rank, ``records`` stores what came, ``analysis`` turns
records into values and ``report`` draws those. CONTRIBUTING.md says where a change belongs.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from raybench.api import Results, open, run
    from raybench.errors import RaybenchError, RayDiedError, RequestError, StoreError
    from raybench.report.summary_json import FoundCause, Interval

__version__ = "0.1.0"

__all__ = [
    "FoundCause",
    "Interval",
    "RayDiedError",
    "RaybenchError",
    "RequestError",
    "Results",
    "StoreError",
    "__version__",
    "open",
    "run",
]
_HOMES = {
    "raybench.api": ("Results", "open", "run"),
    "raybench.errors": ("RayDiedError", "RaybenchError", "RequestError", "StoreError"),
    "raybench.report.summary_json": ("FoundCause", "Interval"),
}


def __getattr__(name: str) -> Any:
    home = next((module for module, names in _HOMES.items() if name in names), None)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(home), name)


def __dir__() -> list[str]:
    return sorted(__all__)

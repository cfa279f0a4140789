"""From records to conclusions: pure functions, frozen values. Imports neither torch, ray nor pandas.

The public names are imported when they are asked for: a worker needs the stopping rule alone, and the rest
takes most of a second of each one's core to import.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from raybench.analysis.results import StudyResults, analyse

__all__ = ["StudyResults", "analyse"]


def __getattr__(name: str) -> Any:
    if name in ("StudyResults", "analyse"):
        from raybench.analysis import results

        return getattr(results, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

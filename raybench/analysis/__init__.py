"""From records to conclusions: pure functions, frozen values. Imports neither torch, ray nor pandas.

The public names are imported when they are asked for: a worker needs the stopping rule alone, and the rest
takes most of a second of each one's core to import.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from raybench.analysis.results import StudyResults, analyse
    from raybench.analysis.summary import to_pandas

__all__ = ["StudyResults", "analyse", "to_pandas"]


def __getattr__(name: str) -> Any:
    if name in ("StudyResults", "analyse"):
        from raybench.analysis import results

        return getattr(results, name)
    if name == "to_pandas":
        from raybench.analysis.summary import to_pandas

        return to_pandas
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

"""What was computed last of a frozen record is not computed again: several estimates begin with the same."""

from __future__ import annotations

import functools
from collections.abc import Callable, Hashable
from typing import Concatenate, ParamSpec, TypeVar, cast

Subject = TypeVar("Subject")
Result = TypeVar("Result")
Rest = ParamSpec("Rest")
MOST = 64  # results; the subject is kept as long


def remembered(
    function: Callable[Concatenate[Subject, Rest], Result],
) -> Callable[Concatenate[Subject, Rest], Result]:
    """``function`` of a frozen subject, which is told by its identity, and of hashable arguments."""
    results: dict[Hashable, tuple[Subject, Result]] = {}

    @functools.wraps(function)
    def remembering(subject: Subject, *args: Rest.args, **kwargs: Rest.kwargs) -> Result:
        key = (id(subject), args, tuple(kwargs.items()))
        found = results.get(key)
        if found is None or found[0] is not subject:
            if len(results) >= MOST:
                results.clear()
            found = results[key] = subject, function(subject, *args, **kwargs)
        return found[1]

    return cast("Callable[Concatenate[Subject, Rest], Result]", remembering)

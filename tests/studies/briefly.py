"""Options with which a study measures more briefly than a user's: nothing here asks how exact a figure is."""

from __future__ import annotations

BRIEFLY = tuple(
    word
    for field, value in {
        "measure.max_seconds": 1,
        "measure.min_rounds": 3,
        "measure.half_width": 0.9,
        "measure.steps": 1,
        "measure.warmup_steps": 1,
        "search.half_width": 0.9,
        "measure.visits": 1,
    }.items()
    for word in ("--set", f"{field}={value}")
)

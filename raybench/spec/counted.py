"""So many of a thing, in words."""

from __future__ import annotations


def counted(number: int, noun: str, plural: str = "") -> str:
    """1 trial, 2 trials, 1,200 trials; ``plural`` where it is not the noun with an s."""
    return f"{number:,} {noun if number == 1 else plural or f'{noun}s'}"

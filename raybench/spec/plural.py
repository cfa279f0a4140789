"""A number of things, in words."""

from __future__ import annotations


def plural(number: int, noun: str, several: str = "") -> str:
    """Return "1 trial", "2 trials", "1,200 trials"; ``several`` where it is not the noun with an s."""
    return f"{number:,} {noun if number == 1 else several or f'{noun}s'}"

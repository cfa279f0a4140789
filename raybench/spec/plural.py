"""A number of things or bytes, in words."""

from __future__ import annotations


def plural(number: int, noun: str, several: str = "") -> str:
    """Return "1 trial", "2 trials", "1,200 trials"; ``several`` where it is not the noun with an s."""
    return f"{number:,} {noun if number == 1 else several or f'{noun}s'}"


def bytes_words(size: float) -> str:
    """Return "62.5 GiB", "25.0 MiB", "1.5 KiB": what a memory has, or what something takes of one."""
    for unit, name in ((2**30, "GiB"), (2**20, "MiB")):
        if size >= unit:
            return f"{size / unit:,.1f} {name}"
    return f"{size / 2**10:.1f} KiB"

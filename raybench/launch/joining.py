"""Joining a cluster: what Ray's core says meanwhile stays off the terminal; a refusal is told in words."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

TOKEN_FILE = Path("~/.ray/auth_token")
REFUSED = ("InvalidAuthToken", "Unauthenticated")  # what the core says when a head refuses the token


@contextmanager
def core_output() -> Iterator[Callable[[], str]]:
    """Inside, what is written to file descriptor 2 goes to the function that this gives.

    Ray's core writes there from C++, a line for each attempt to connect, and its exceptions do not have it.
    """
    sys.stderr.flush()
    saved = os.dup(2)
    with tempfile.TemporaryFile() as kept:
        os.dup2(kept.fileno(), 2)

        def said() -> str:
            kept.seek(0)
            return kept.read().decode(errors="replace")

        try:
            yield said
        finally:
            sys.stderr.flush()
            os.dup2(saved, 2)
            os.close(saved)


def refusal_words(said: str, error: str) -> str:
    """What the core ``said`` of a token, with what to do; nothing where it was not about one.

    ``error`` is what Ray's exception says: without any token it names the places where it was looked for.
    """
    mode = os.environ.get("RAY_AUTH_MODE", "")
    if any(word in said for word in REFUSED):
        sent = "the token that was sent is another one" if mode == "token" else "no token was sent"
        mended = f"put the head's {TOKEN_FILE} here" + (
            "" if mode == "token" else " and set RAY_AUTH_MODE=token"
        )
        return f"it asks for a token, and {sent}: {mended}"
    if "no authentication token was found" in error:
        return f"RAY_AUTH_MODE=token, and there is no token here: put the head's {TOKEN_FILE} here"
    return ""


def token_hint() -> str:
    """Of an error that has another cause, or does not tell: a client that was told no mode sends no token."""
    if os.environ.get("RAY_AUTH_MODE") or not TOKEN_FILE.expanduser().exists():
        return ""
    return f"; if it asks for the token in {TOKEN_FILE}, set RAY_AUTH_MODE=token"

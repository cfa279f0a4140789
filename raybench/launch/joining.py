"""Joining a cluster: whether there is one; what Ray's core says stays off the terminal, but for refusals."""

from __future__ import annotations

import os
import socket
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from time import monotonic, sleep

from raybench.errors import RequestError
from raybench.launch import signals

TOKEN_FILE = Path("~/.ray/auth_token")
ANSWERS_S = 30.0  # a head that is just being started; Ray itself tries for minutes, without a word
ONE_TRY_S = 3.0
LOOK_AGAIN_S = 0.5
# What every gRPC server answers, before it asks for a token: HTTP/2's preface and an empty frame of settings
# (RFC 9113, 3.4), whose type stands in the fourth byte.
HELLO = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes((0, 0, 0, 4, 0, 0, 0, 0, 0))
SETTINGS, FRAME_BYTES = 4, 9
REFUSED = ("InvalidAuthToken", "Unauthenticated")  # what the core says when a head refuses the token


def await_head(address: str, limit_s: float = ANSWERS_S) -> None:
    """Wait until a head is at ``HOST:PORT``. Raises ``RequestError`` after ``limit_s``.

    Nothing is looked at where it is another address, as ``auto``, or Ray speaks TLS, which a head answers
    with certificates only.
    """
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit() or os.environ.get("RAY_USE_TLS", "0").lower() in ("1", "true"):
        return
    began = monotonic()
    while True:
        missing = _what_is_missing(host.strip("[]"), int(port))
        if not missing:
            return
        if monotonic() - began >= limit_s:
            raise RequestError(
                f"--address: a Ray cluster that answers: {missing}, tried for {limit_s:g} s "
                f"(received {address!r})"
            )
        signals.check()
        sleep(LOOK_AGAIN_S)


def _what_is_missing(host: str, port: int) -> str:
    """Why there is no head yet; empty where one is."""
    try:
        with socket.create_connection((host, port), timeout=ONE_TRY_S) as connection:
            connection.sendall(HELLO)
            answer = connection.recv(FRAME_BYTES, socket.MSG_WAITALL)
    except (OSError, OverflowError) as error:
        if isinstance(error, TimeoutError):
            return "nothing answers there"
        return f"{getattr(error, 'strerror', None) or error}"
    is_head = len(answer) == FRAME_BYTES and answer[3] == SETTINGS
    return "" if is_head else "what answers there is no Ray cluster's head"


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

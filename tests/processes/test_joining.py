"""Does a head answer at an address?"""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from raybench.errors import RequestError
from raybench.launch import cluster
from raybench.launch.cluster import await_head

SETTINGS_OF_GRPC = bytes((0, 0, 6, 4, 0, 0, 0, 0, 0)) + bytes(6)


@contextmanager
def answering(words: bytes | None) -> Iterator[str]:
    """The address of a program that answers so, once; that is silent."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()

        def answer() -> None:
            while words is not None:
                try:
                    connection, _ = listening.accept()
                except OSError:
                    return
                connection.sendall(words)
                connection.close()

        threading.Thread(target=answer, daemon=True).start()
        try:
            yield f"127.0.0.1:{listening.getsockname()[1]}"
        finally:
            listening.shutdown(socket.SHUT_RDWR)


@pytest.fixture(autouse=True)
def no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    """A clock that goes on where it would be waited."""
    now = [1000.0]
    monkeypatch.setattr(cluster, "monotonic", lambda: now[0])
    monkeypatch.setattr(cluster, "sleep", lambda seconds: now.append(now.pop() + seconds))


def refusal(address: str) -> str:
    with pytest.raises(RequestError) as refused:
        await_head(address, limit_s=0.1)
    (line,) = refused.value.problems
    assert repr(address) in line
    return line


def test_a_head_answers() -> None:
    with answering(SETTINGS_OF_GRPC) as address:
        await_head(address, limit_s=5)


@pytest.mark.parametrize("words", [b"HTTP/1.1 400 Bad Request\r\n\r\n", b"", b"no"])
def test_another_program_is_no_head(words: bytes) -> None:
    with answering(words) as address:
        line = refusal(address)
    # a program that leaves at once may reset what was said to it
    assert "what answers there is not a Ray cluster's head" in line or "Connection reset" in line


def test_who_is_silent_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster, "ONE_TRY_S", 0.01)
    with answering(None) as address:
        assert "timed out, tried for 0.1 s" in refusal(address)


def test_nobody_there() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # and does not listen
        assert "Connection refused" in refusal(f"127.0.0.1:{taken.getsockname()[1]}")


@pytest.mark.parametrize("address", ["auto", "a-host", ":6379"])
def test_what_ray_finds_by_itself_is_left_to_it(address: str) -> None:
    await_head(address, limit_s=0)


def test_a_head_with_certificates_is_left_to_ray(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_USE_TLS", "1")
    await_head("127.0.0.1:1", limit_s=0)

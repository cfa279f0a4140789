"""Why a worker group died, out of the long text that Ray gives."""

from __future__ import annotations

import re

import ray

from raybench.worker.failures import is_echo, says_out_of_memory

LONGEST_REASON = 300  # characters
_ERROR_LINE = re.compile(r"(\w+\.)*\w*(Error|Exception)\b")
_EXIT_DETAIL = re.compile(r"Worker exit detail: (.*?)(?:\. |\.$|\n|$)")


def reason(error: BaseException) -> str:
    """One line: the rank that died first and what became of it, rather than who noticed."""
    failures: dict[int, BaseException] = getattr(error, "worker_failures", None) or {}
    lines = {rank: _line(failure) for rank, failure in sorted(failures.items())}
    telling = {rank: line for rank, line in lines.items() if not is_echo(line)} or lines
    if not telling:
        return _line(error)
    rank, line = next(iter(telling.items()))
    return f"rank {rank}: {line}"


def ran_out_of_memory(error: BaseException) -> bool:
    """Whether Ray's memory monitor ended a worker, or one ended with an error that says so.

    Of a worker's error there may be no more than its text: of that the message counts, not the code that a
    traceback quotes.
    """
    return any(
        isinstance(part, ray.exceptions.OutOfMemoryError | MemoryError) or _says_so(str(part))
        for part in _chain(error)
    )


def _says_so(text: str) -> bool:
    """Whether the message at the end of an error's text says that memory ran out."""
    lines = [line.strip() for line in text.splitlines()]
    errors = [place for place, line in enumerate(lines) if _ERROR_LINE.match(line)]
    message = lines[errors[-1] :] if errors else lines[:1]
    return message[0].split(":")[0].endswith("MemoryError") or says_out_of_memory("\n".join(message))


def _chain(error: BaseException) -> list[BaseException]:
    """The error, its causes, and what Ray Train collected from the workers."""
    chain, todo = list[BaseException](), [error]
    while todo:
        part = todo.pop()
        if any(part is known for known in chain):
            continue
        chain.append(part)
        failures = getattr(part, "worker_failures", None) or {}
        inner = [getattr(part, name, None) for name in ("__cause__", "__context__", "health_check_failure")]
        todo += [cause for cause in (*failures.values(), *inner) if isinstance(cause, BaseException)]
    return chain


def _line(error: BaseException) -> str:
    text = str(error)
    died = _EXIT_DETAIL.search(text)
    if died:
        return f"its process died ({died[1]})"
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    telling = [line for line in lines if _ERROR_LINE.match(line)]
    name = type(error).__name__
    line = telling[-1] if telling else f"{name}: {lines[0]}" if lines else name
    return line[:LONGEST_REASON]

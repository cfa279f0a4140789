"""Starts programs in processes of their own; one that is forked from another costs milliseconds."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

from tests.conftest import ROOT

Done = subprocess.CompletedProcess[str]
LIMIT_S = 30.0  # of what may hang; nothing here takes as long
LEFT_OUT = ("RAYBENCH_DATA", "RAY_ADDRESS", "FORCE_COLOR", "COLUMNS", "LINES", "NO_COLOR")

# Reads a program on each line; what it writes is read to the end, so what outlives it is heard too.
READY = """
import json, os, sys, tempfile, traceback
{imports}

def become(asked, out, err):
    for descriptor, to in ((os.open(os.devnull, os.O_RDONLY), 0), (out, 1), (err, 2)):
        os.dup2(descriptor, to)
        os.close(descriptor)
    os.chdir(asked["cwd"])
    os.environ.clear()
    os.environ.update(asked["environment"])
    sys.argv, code = asked["arguments"], 0
    try:
        exec(compile(asked["code"], "program", "exec"), {{"__name__": "__main__"}})
    except SystemExit as end:
        code = end.code or 0
        if not isinstance(code, int):
            print(code, file=sys.stderr)
            code = 1
    except BaseException:
        traceback.print_exc()
        code = 1
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)

for line in sys.stdin:
    (reads, writes), (err, name) = os.pipe(), tempfile.mkstemp()
    if (child := os.fork()) == 0:
        os.close(reads)
        become(json.loads(line), writes, err)
    os.close(writes)
    os.close(err)
    with open(reads, encoding="utf-8", errors="replace") as out:
        output = out.read()
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    with open(name, encoding="utf-8", errors="replace") as file:
        errors = file.read()
    os.unlink(name)
    print(json.dumps([code, output, errors]), flush=True)
"""


class Ready:
    """A process that has imports behind it, and forks one for each program that it is given."""

    def __init__(self, imports: str = "") -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", READY.format(imports=imports)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            start_new_session=True,
        )

    def run(self, code: str, *arguments: str | Path, cwd: Path | None = None, **variables: str) -> Done:
        """As ``python -c CODE ARGUMENTS``."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        kept = {name: value for name, value in os.environ.items() if name not in LEFT_OUT}
        typed = [str(each) for each in arguments]
        asked = {
            "code": code,
            "arguments": ["raybench", *typed],
            "cwd": str(cwd or Path.cwd()),
            "environment": {**kept, **variables},
        }
        self._process.stdin.write(json.dumps(asked) + "\n")
        self._process.stdin.flush()
        return Done(typed, *json.loads(self._process.stdout.readline()))

    def command(self, *arguments: str | Path, cwd: Path | None = None, **variables: str) -> Done:
        """As ``raybench ARGUMENTS``."""
        return self.run("from raybench.study import main; main()", *arguments, cwd=cwd, **variables)

    def end(self) -> None:
        """End it, and what a program has left."""
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.communicate()


def program(code: str, *arguments: str | Path, **options: object) -> subprocess.Popen[str]:
    """``python -c CODE ARGUMENTS`` in a process of its own, its stdout in a pipe."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.Popen(
        [sys.executable, "-c", code, *map(str, arguments)],
        **{"stdout": subprocess.PIPE, "text": True, "env": environment, **options},  # type: ignore[call-overload]
    )

"""In the place of Slurm's srun: starts what it is told for real, on the nodes that FAKE_NODES describes.

FAKE_NODES is a JSON object: the name of each node, and the words before a command that run it there.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys

KNOWN = {"nodes", "ntasks", "nodelist", "exclude", "overlap", "cpus-per-task"}


def main(arguments: list[str]) -> int:
    options = {}
    while arguments and arguments[0].startswith("--"):
        name, _, value = arguments.pop(0)[2:].partition("=")
        options[name] = value
    unknown = set(options) - KNOWN
    assert not unknown, f"srun has no such options: {unknown}"
    nodes = json.loads(os.environ["FAKE_NODES"])
    wanted = (
        [options["nodelist"]] if "nodelist" in options else [n for n in nodes if n != options.get("exclude")]
    )
    assert len(wanted) >= int(options["nodes"]), f"{options['nodes']} of {wanted}"
    assert options["nodes"] == options["ntasks"], "one task a node"
    tasks = [subprocess.Popen([*nodes[node], *arguments]) for node in wanted[: int(options["nodes"])]]
    for number in (signal.SIGTERM, signal.SIGINT):  # as srun does, to every task
        signal.signal(number, lambda number, _: [task.send_signal(number) for task in tasks])
    codes = [task.wait() for task in tasks]
    return max((code if code >= 0 else 128 - code for code in codes), default=0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""``python -m tests.ray.one_group COMMANDS.json``: command lines of raybench, run in one worker group.

Everything is as it is in the shell, but for the start of the group, which takes longer than most smoke
studies do. Each command's exit code is printed.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path

from raybench import study
from raybench.commands import scaling_request, scaling_run
from raybench.commands.scaling_request import Options
from raybench.launch.cluster import Cluster
from raybench.launch.group_runner import WorkerGroupRunner
from raybench.machine.resources import WorkerNeeds
from raybench.plan.trials import Plan


class Kept(Cluster):
    """A cluster that its studies do not leave."""

    def close(self) -> None:
        pass

    def end(self) -> None:
        super().close()


class Shared(WorkerGroupRunner):
    """A runner that its studies do not close."""

    def close(self) -> None:
        pass

    def end(self) -> None:
        super().close()


def main() -> int:
    commands, codes, shared = json.loads(Path(sys.argv[1]).read_text()), list[int](), list[Shared]()
    kept_storage, kept = tempfile.TemporaryDirectory(ignore_cleanup_errors=True), Kept()

    def runner(options: Options, plan: Plan, cluster: Cluster, storage: Path, results: Path) -> Shared:
        if not shared:
            shared.append(Shared(cluster, needs=WorkerNeeds("cpu", 1), storage=Path(kept_storage.name)))
        shared[0].results = results
        return shared[0]

    scaling_run._runner = runner
    scaling_request.Cluster = lambda **_: kept  # type: ignore[attr-defined, assignment, misc]
    for arguments in commands:
        sys.argv[1:] = arguments
        try:
            study.main()
        except SystemExit as ended:
            print(f"exit code {ended.code}: {' '.join(arguments)}", flush=True)
            codes.append(int(ended.code or 0))
    for each in shared:
        each.end()
    kept.end()
    kept_storage.cleanup()
    return max(codes, default=2)


if __name__ == "__main__":
    sys.exit(main())

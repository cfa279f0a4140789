"""Where the module of a workload of one's own is looked for."""

from __future__ import annotations

import sys
from pathlib import Path

from raybench.records.store import made_of


def search_folders(study_file: Path) -> None:
    """Put the folder of the study's file and the current one before all others on the import path.

    ``python -m`` has the current one there by itself, an installed ``raybench`` the folder of programs: so
    both find the same. What is found on this path travels to other nodes, and workers here are told it.
    """
    folders = dict.fromkeys([str(made_of(study_file).parent), str(Path.cwd())])
    sys.path[:] = [*folders, *(path for path in sys.path if path not in folders)]

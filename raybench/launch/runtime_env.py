"""What travels to the nodes of a cluster that was joined, as Ray's runtime environment.

raybench itself, so that every node runs the driver's version; the module with a study's own code; the
directory that ``--working-dir`` names. On a local cluster nothing travels: workers see the driver's files.
"""

from __future__ import annotations

import os
import sys
import sysconfig
from importlib import util
from itertools import takewhile
from pathlib import Path
from typing import Any

import raybench
from raybench.spec.workloads import OwnCodeSpec, WorkloadSpec


def runtime_environment(workload: WorkloadSpec | None, working_dir: Path | None) -> dict[str, Any]:
    """For ``ray.init`` on a cluster that runs already."""
    modules = [Path(raybench.__file__).parent]
    if isinstance(workload, OwnCodeSpec):
        module = _of_function(workload)
        if module is not None and module.parent != working_dir:
            modules.append(module)
    environment: dict[str, Any] = {"py_modules": [str(path) for path in modules]}
    if working_dir is not None:
        environment["working_dir"] = str(working_dir)
    return environment


def _of_function(workload: OwnCodeSpec) -> Path | None:
    """The file or the package that holds it; None where it is installed, or does not import.

    What is installed here is expected to be installed there: its own dependencies would not travel with it.
    """
    from raybench.workloads.user_code import is_own  # its package brings torch

    name = workload.name.partition(":")[0].partition(".")[0]
    try:
        found = util.find_spec(name)
    except (ImportError, ValueError):
        return None  # the check of the workload says it better
    if found is None:
        return None
    places = list(found.submodule_search_locations or [])
    path = Path(places[0] if places else found.origin or "").resolve()
    return path if is_own(str(path)) and path.exists() else None


def import_path() -> list[str]:
    """Where the driver finds modules, for workers."""
    return [os.path.realpath(path) for path in sys.path if path] + [str(Path.cwd())]


def own_code_path() -> list[str]:
    """Of these the folders before the standard library: those of the study's own code, and ``PYTHONPATH``.

    Whatever was installed, for all, for one user or by a link to a checkout, comes after it.
    """
    standard = Path(sysconfig.get_path("stdlib")).resolve()
    before = takewhile(lambda path: Path(path) != standard, import_path())
    return [path for path in before if Path(path).exists()]  # a zip of the library would stand there too

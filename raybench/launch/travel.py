"""What travels to the nodes of a cluster that was joined, as Ray's runtime environment.

raybench itself, so that every node runs the driver's version; the module of a study's factory; the directory
that ``--working-dir`` names. On a local cluster nothing travels: its workers see the driver's files.
"""

from __future__ import annotations

import sys
import sysconfig
from importlib import util
from pathlib import Path
from typing import Any

import raybench
from raybench.spec.workloads import FactorySpec, WorkloadSpec


def runtime_environment(workload: WorkloadSpec | None, working_dir: Path | None) -> dict[str, Any]:
    """For ``ray.init`` on a cluster that runs already."""
    modules = [Path(raybench.__file__).parent]
    if isinstance(workload, FactorySpec):
        factory = _of_factory(workload)
        if factory is not None and factory.parent != working_dir:
            modules.append(factory)
    environment: dict[str, Any] = {"py_modules": [str(path) for path in modules]}
    if working_dir is not None:
        environment["working_dir"] = str(working_dir)
    return environment


def _of_factory(workload: FactorySpec) -> Path | None:
    """The file or the package that holds it; None where it is installed, or does not import.

    What is installed here is expected to be installed there: its own dependencies would not travel with it.
    """
    name = workload.factory.partition(":")[0].partition(".")[0]
    try:
        found = util.find_spec(name)
    except (ImportError, ValueError):
        return None  # the check of the workload says it better
    if found is None:
        return None
    places = list(found.submodule_search_locations or [])
    path = Path(places[0] if places else found.origin or "").resolve()
    return None if _is_installed(path) or not path.exists() else path


def import_path() -> list[str]:
    """Where the driver finds modules, for workers."""
    return [str(Path(path).resolve()) for path in sys.path if path] + [str(Path.cwd())]


def own_code_path() -> list[str]:
    """Of these the folders into which nothing was installed: where the driver looks for a factory first."""
    return [path for path in import_path() if not _is_installed(Path(path))]


def _is_installed(path: Path) -> bool:
    places = [
        Path(sysconfig.get_path(kind)).resolve() for kind in ("purelib", "platlib", "stdlib", "scripts")
    ]
    return any(path.is_relative_to(place) for place in places)

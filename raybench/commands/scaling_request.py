"""What ``scaling`` was asked: the study with its overrides, the cluster, the results directory."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, cast

import psutil

from raybench.errors import RequestError
from raybench.launch.cluster import Cluster
from raybench.machine.gpus import gpu_names
from raybench.records.record import State
from raybench.records.store import ResultsDirectory
from raybench.spec.load import find_study, load_study
from raybench.spec.study import Study


@dataclass(frozen=True)
class Options:
    """What was typed."""

    study: str | None = None
    output: Path | None = None
    resume: bool = False
    retry: tuple[State, ...] = ()
    smoke: bool = False
    device: Literal["auto", "cpu", "cuda"] | None = None
    overrides: tuple[tuple[str, Any], ...] = ()
    address: str | None = None
    working_dir: Path | None = None
    dry_run: bool = False
    quiet: bool = False
    began: float = field(default_factory=lambda: psutil.Process().create_time())


def study_of(options: Options) -> Study:
    """The study with its overrides; with ``--resume`` and no name, the one of the directory."""
    if options.resume:
        if options.output is None:
            raise RequestError("--resume: needs --output DIR, the directory to go on in")
        if options.study is None:
            with ResultsDirectory.open_readonly(options.output) as store:
                path = store.study_file
            return load_study(path, device=_device(options, None), overrides=options.overrides)
    path = find_study(options.study)
    device = _device(options, path)
    return load_study(path, device=device, smoke=options.smoke, overrides=options.overrides)


def _device(options: Options, path: Path | None) -> Literal["cpu", "cuda"]:
    """The kind of device: as typed, as the study says, or what there is."""
    asked = options.device
    if asked in (None, "auto") and path is not None:
        asked = load_study(path, smoke=options.smoke, overrides=options.overrides).resources.device
    if asked in (None, "auto"):
        return device_here()
    return cast(Literal["cpu", "cuda"], asked)


def device_here() -> Literal["cpu", "cuda"]:
    """GPUs where there are any."""
    return "cuda" if gpu_names() else "cpu"


def cluster_of(study: Study, options: Options) -> Cluster:
    """The cluster as the request names it; nothing is started yet."""
    device = study.resources.device
    return Cluster(
        device=device_here() if device == "auto" else device,
        cpus_per_worker=study.resources.cpus_per_worker,
        address=options.address,
        working_dir=str(options.working_dir.resolve()) if options.working_dir else None,
    )

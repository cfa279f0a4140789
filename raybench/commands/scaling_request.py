"""What ``scaling`` was asked: the study with its overrides, the cluster, the results directory."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, Literal, cast

import psutil

from raybench.errors import RequestError, StoreError
from raybench.launch.cluster import Cluster
from raybench.machine.environment import capture
from raybench.machine.gpus import gpu_names
from raybench.records.record import State
from raybench.records.store import STUDY, ResultsDirectory
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
    runner: Literal["group", "tune"] = "group"
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
                path = store.path / STUDY
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
        return _device_here()
    return cast(Literal["cpu", "cuda"], asked)


def _device_here() -> Literal["cpu", "cuda"]:
    """GPUs where there are any."""
    return "cuda" if gpu_names() else "cpu"


def cluster_of(study: Study, options: Options) -> Cluster:
    """The cluster as the request names it; nothing is started yet."""
    device = study.resources.device
    return Cluster(
        device=_device_here() if device == "auto" else device,
        cpus_per_worker=study.resources.cpus_per_worker,
        address=options.address,
        working_dir=str(options.working_dir.resolve()) if options.working_dir else None,
    )


def results_directory(options: Options, study: Study) -> ResultsDirectory:
    """A new directory, or the one to go on in. Raises ``StoreError`` where it cannot be used."""
    now = capture()
    if options.resume:
        assert options.output is not None
        store = ResultsDirectory.resume(options.output)
        try:
            store.check_same(study, now)
            store.write_study(study)
        except StoreError:
            store.close()
            raise
        return store
    output = options.output or Path("results") / f"{study.name}-{datetime.now():%Y%m%d-%H%M%S}"
    return ResultsDirectory.create(output, study, now)

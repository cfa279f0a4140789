"""What was measured, on what and when: the line under a report's title."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from raybench.analysis.summary import model_name
from raybench.spec.counted import counted

if TYPE_CHECKING:
    from raybench.analysis.results import StudyResults
    from raybench.records.record import TrialRecord

NAMED = ("torch", "ray")  # packages, beside raybench
BACKENDS = {"cpu": "gloo", "cuda": "NCCL"}


def measured_words(results: StudyResults, environment: Mapping[str, Any]) -> str:
    """ "mlp on 2 x AMD EPYC, gloo · raybench 0.1.0, torch 2.14.1, ray 2.60.0 · 2026-11-22 20:52 UTC".

    ``environment`` is what environment.json holds, as far as it is known. Empty where nothing was measured.
    """
    record = results.headline or next(iter(results.records), None)
    if record is None:
        return ""
    model = model_name(record)
    if record.steps is not None and record.steps.num_parameters is not None:
        model += f" ({counted(record.steps.num_parameters, 'parameter')})"
    return on_words(model, record, results.records, environment)


def on_words(
    what: str, record: TrialRecord, records: Iterable[TrialRecord], environment: Mapping[str, Any]
) -> str:
    """``what`` on the devices of ``record``, with versions, and when the first of ``records`` began."""
    config = record.request.config
    where = hardware_words(record, str(environment.get("cpu_model") or ""))
    packages = environment.get("packages") or {}
    versions = [f"{name} {packages[name]}" for name in ("raybench", *NAMED) if name in packages]
    parts = [f"{what} on {where}, {BACKENDS[config.device]}", ", ".join(versions), began_words(records)]
    return " · ".join(part for part in parts if part)


def hardware_words(record: TrialRecord, cpu_model: str) -> str:
    """The devices of a trial: "8 x NVIDIA H200 on 2 nodes"."""
    size, nodes = record.request.config.world_size, record.nodes
    name = record.device_name or cpu_model
    devices = f"{size} x {name}" if name else counted(size, "device")
    return f"{devices} on {nodes} nodes" if nodes and nodes > 1 else devices


def began_words(records: Iterable[TrialRecord]) -> str:
    """When the first of ``records`` began, to the minute; empty without one."""
    began = min((record.started_at for record in records), default="")
    return f"{began[:16].replace('T', ' ')} UTC" if began else ""

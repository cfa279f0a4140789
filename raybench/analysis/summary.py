"""One row a record: the columns of ``summary.csv``, as docs/contract.md has them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

from raybench.analysis.estimates.efficiency import Scaling, scaling
from raybench.analysis.estimates.phases import phase_times
from raybench.analysis.estimates.waterfall import Waterfall, waterfall
from raybench.analysis.trained_run import TrainedRun
from raybench.records.measurements import ProbeResult, StepsResult
from raybench.records.record import TrialRecord
from raybench.spec.knobs import KnobValue, Setting
from raybench.spec.study import placement_text

if TYPE_CHECKING:
    import pandas as pd

VARYING_AFTER = "gradient_compression"  # the column after which the varying knobs stand


@dataclass(frozen=True, kw_only=True)
class TrialSummary:
    """One row of ``summary.csv``; None where unknown or inapplicable. Units stand in the names.

    ``varying`` holds the knobs and variables without a column of their own that differ between records.
    Memory is of the rank that takes most, ``flops_per_s`` of one device, energy of all in a step.
    """

    study: str
    model: str
    device_name: str | None
    input: str
    trial_id: str
    role: str
    state: str
    status: str | None = None
    strategy: str
    scaling: str
    world_size: int
    nodes: int | None
    placement: str
    batch_size: int
    global_batch_size: int
    bucket_cap_mb: float | str
    precision: str
    gradient_accumulation: int
    gradient_compression: str
    step_time_s: float | None = None
    step_time_low_s: float | None = None
    step_time_high_s: float | None = None
    throughput_samples_per_s: float | None = None
    throughput_tokens_per_s: float | None = None
    baseline_world_size: int | None = None
    baseline_strategy: str | None = None
    baseline_step_time_s: float | None = None
    speedup: float | None = None
    efficiency: float | None = None
    efficiency_low: float | None = None
    efficiency_high: float | None = None
    ideal_s: float | None = None
    small_batch_s: float | None = None
    contention_s: float | None = None
    wrapper_s: float | None = None
    skew_s: float | None = None
    exposed_communication_s: float | None = None
    hidden_communication_s: float | None = None
    communication_fraction: float | None = None
    gradient_bytes: int | None = None
    bus_bandwidth_bytes_per_s: float | None = None
    data_s: float | None = None
    forward_s: float | None = None
    backward_s: float | None = None
    optimizer_s: float | None = None
    other_s: float | None = None
    flops_per_s: float | None = None
    peak_memory_bytes: int | None = None
    device_memory_bytes: int | None = None
    device_utilization: float | None = None
    energy_joules: float | None = None
    epoch_time_s: float | None = None
    accuracy: float | None = None
    time_to_target_s: float | None = None
    oversubscribed: bool
    rounds: int | None = None
    wall_time_s: float
    varying: dict[str, KnobValue]

    def row(self) -> dict[str, KnobValue]:
        """The values by column, in the order of docs/contract.md."""
        row: dict[str, KnobValue] = {}
        for each in fields(self):
            if each.name == "varying":
                continue
            row[each.name] = getattr(self, each.name)
            if each.name == VARYING_AFTER:
                row |= self.varying
        return row


def summarize(
    records: Sequence[TrialRecord],
    scalings: Mapping[str, Scaling] | None = None,
    waterfalls: Mapping[str, Waterfall | None] | None = None,
) -> list[TrialSummary]:
    """A row for each record, in the order given; ``scalings`` and ``waterfalls`` by trial id if known."""
    names, known, divided = _varying(records), scalings or {}, waterfalls or {}
    rows = []
    for record in records:
        found = parts = None
        if record.steps is not None:
            found = known.get(record.trial_id) or scaling(record, records)
            is_divided = record.trial_id in divided
            parts = divided[record.trial_id] if is_divided else waterfall(record)
        rows.append(_summary(record, names, found, parts))
    return rows


def to_pandas(records: Sequence[TrialRecord]) -> pd.DataFrame:
    """The summary as a DataFrame, one row a record, with the columns of ``summary.csv``."""
    import pandas as pd  # a second of import, for those who ask

    return pd.DataFrame([summary.row() for summary in summarize(records)])


def model_name(record: TrialRecord) -> str:
    """What reports call the model: torchvision's name, the workload's, or the factory's path."""
    workload = record.config.workload
    return str(getattr(workload, "model", None) or workload.name)


def _varying(records: Sequence[TrialRecord]) -> list[str]:
    """Knobs and environment variables without a column of their own, of which there is more than one value.

    Only records on several devices count for the knobs that are reset on one.
    """
    own = {each.name for each in fields(TrialSummary)}
    several = [record for record in records if record.config.world_size > 1] or list(records)
    found = []
    for name in Setting.model_fields:
        counted = several if name in Setting.ONE_DEVICE_INDIFFERENT else records
        if name not in own and len({getattr(record.config.setting, name) for record in counted}) > 1:
            found.append(name)
    variables = {name for record in records for name in record.config.environment}
    for name in sorted(variables):
        if len({record.config.environment.get(name) for record in records}) > 1:
            found.append(name)
    return found


def _summary(
    record: TrialRecord, names: list[str], found: Scaling | None, parts: Waterfall | None
) -> TrialSummary:
    request, setting = record.request, record.config.setting
    asked = {
        "study": record.study,
        "model": model_name(record),
        "device_name": record.device_name,
        "input": request.config.workload.input,
        "trial_id": record.trial_id,
        "role": request.role,
        "state": record.state,
        "strategy": setting.strategy,
        "scaling": request.config.scaling,
        "world_size": request.config.world_size,
        "nodes": record.nodes,
        "placement": placement_text(request.config.placement),
        "batch_size": request.config.batch_size,
        "global_batch_size": request.config.global_batch_size,
        "bucket_cap_mb": setting.bucket_cap_mb,
        "precision": setting.precision,
        "gradient_accumulation": setting.gradient_accumulation,
        "gradient_compression": setting.gradient_compression,
        "oversubscribed": request.config.oversubscribed,
        "wall_time_s": record.wall_time_s,
        "varying": {
            name: getattr(setting, name, None)
            if name in Setting.model_fields
            else request.config.environment.get(name)
            for name in names
        },
    }
    if record.training is not None:
        return TrialSummary(**asked, **_trained(TrainedRun(record)))  # type: ignore[arg-type]
    if record.probe is not None:
        return TrialSummary(**asked, **_memory(record.probe))  # type: ignore[arg-type]
    if record.steps is None or found is None:
        return TrialSummary(**asked)  # type: ignore[arg-type]
    measured = _speed(found) | _parts(parts) | _phases(record, parts) | _rest(record.steps, found)
    return TrialSummary(**asked, **measured)  # type: ignore[arg-type]


def _trained(run: TrainedRun) -> dict[str, float | None]:
    result = run.result
    busy = [share for share in result.device_utilization if share is not None]
    return {
        "epoch_time_s": run.epoch_time_s,
        "accuracy": run.final_accuracy,
        "time_to_target_s": run.time_to_target_s,
        "peak_memory_bytes": max(result.peak_memory_bytes or (), default=None),
        "device_memory_bytes": max(result.device_memory_bytes or (), default=None),
        "device_utilization": sum(busy) / len(busy) if busy else None,
    }


def _speed(found: Scaling) -> dict[str, float | str | None]:
    baseline, tokens = found.baseline, found.throughput_tokens_per_s
    return {
        "status": str(found.status) if found.status else None,
        "step_time_s": found.step_time_s.value,
        "step_time_low_s": found.step_time_s.low,
        "step_time_high_s": found.step_time_s.high,
        "throughput_samples_per_s": found.throughput_samples_per_s.value,
        "throughput_tokens_per_s": tokens.value if tokens else None,
        "baseline_world_size": baseline.world_size if baseline else None,
        "baseline_strategy": baseline.strategy if baseline else None,
        "baseline_step_time_s": baseline.step_time_s.value if baseline else None,
        "speedup": found.speedup.value if found.speedup else None,
        "efficiency": found.efficiency.value if found.efficiency else None,
        "efficiency_low": found.efficiency.low if found.efficiency else None,
        "efficiency_high": found.efficiency.high if found.efficiency else None,
        "rounds": found.step_time_s.n,
    }


def _parts(found: Waterfall | None) -> dict[str, float | None]:
    if found is None:
        return {}
    named = {f"{name}_s": part.value for name, part in found.parts.present().items() if name != "undivided"}
    further = {
        "hidden_communication_s": found.hidden_communication_s,
        "communication_fraction": found.communication_fraction,
        "bus_bandwidth_bytes_per_s": found.bus_bandwidth_bytes_per_s,
    }
    return named | {name: part.value if part else None for name, part in further.items()}


def _phases(record: TrialRecord, found: Waterfall | None) -> dict[str, float]:
    return {f"{name}_s": part.value for name, part in phase_times(record, found).items()}


def _memory(measurement: StepsResult | ProbeResult) -> dict[str, float | None]:
    return {
        "peak_memory_bytes": max(measurement.peak_memory_bytes or (), default=None),
        "device_memory_bytes": max(measurement.device_memory_bytes or (), default=None),
    }


def _rest(measurement: StepsResult, found: Scaling) -> dict[str, float | None]:
    busy = [share for share in measurement.device_utilization or () if share is not None]
    flops = measurement.flops_per_step
    return {
        "gradient_bytes": measurement.gradient_bytes,
        "flops_per_s": flops / found.step_time_s.value if flops else None,
        **_memory(measurement),
        "device_utilization": sum(busy) / len(busy) if busy else None,
        "energy_joules": measurement.energy_joules,
    }

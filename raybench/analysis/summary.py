"""One row a trial: the columns of ``summary.csv``, as docs/contract.md has them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

from raybench.analysis.reference import Related
from raybench.analysis.stats.efficiency import Scaling, one_device, restart_time
from raybench.analysis.stats.phases import phase_times
from raybench.analysis.stats.repeated import (
    one_of_starts,
    scaling_over_starts,
    starts_of,
    waterfall_over_starts,
)
from raybench.analysis.stats.statistics import Estimate
from raybench.analysis.stats.waterfall import Waterfall
from raybench.analysis.training import TrainedRun
from raybench.records.record import TrialRecord
from raybench.records.results import Phase, ProbeResult, StepsResult
from raybench.spec.knobs import KnobValue, Setting
from raybench.spec.placement import placement_text
from raybench.spec.workloads import WorkloadSpec

if TYPE_CHECKING:
    import pandas as pd

Values = dict[str, Any]  # of fields of a ``TrialSummary``
VARYING_AFTER = "gradient_compression"  # the column after which the varying knobs stand


@dataclass(frozen=True, kw_only=True, slots=True)
class TrialSummary:
    """One row of ``summary.csv``; None where unknown or inapplicable. Units stand in the names.

    ``varying`` holds the knobs and variables without a column of their own that differ between records.
    Memory is of the rank that takes most, ``flops_per_s`` of one device, energy of all in a step, plain
    energy of one alone.
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
    restart_s: float | None = None
    flops_per_s: float | None = None
    peak_memory_bytes: int | None = None
    device_memory_bytes: int | None = None
    device_utilization: float | None = None
    energy_joules: float | None = None
    plain_energy_joules: float | None = None
    epoch_time_s: float | None = None
    accuracy: float | None = None
    time_to_target_s: float | None = None
    oversubscribed: bool
    rounds: int | None = None
    starts: int | None = None
    wall_time_s: float
    varying: dict[str, KnobValue]

    def row(self) -> dict[str, KnobValue]:
        """The values by column, in the order of docs/contract.md."""
        row: dict[str, KnobValue] = {}
        for name in _COLUMNS:
            row[name] = getattr(self, name)
            if name == VARYING_AFTER:
                row |= self.varying
        return row


_COLUMNS = tuple(each.name for each in fields(TrialSummary) if each.name != "varying")


def summarize(
    records: Sequence[TrialRecord],
    scalings: Mapping[str, Scaling] | None = None,
    waterfalls: Mapping[str, Waterfall | None] | None = None,
) -> list[TrialSummary]:
    """A row for each trial, in the order given; ``scalings`` and ``waterfalls`` by trial id if known.

    A trial that was repeated in several starts has one row for those that are complete, with estimates over
    them and their times together; what has no interval is the first one's.
    """
    names, known_scalings, known_waterfalls = _varying(records), scalings or {}, waterfalls or {}
    rows, related = [], Related(records)
    trials = {record.trial_id for record in one_of_starts(records)}
    for record in records:
        if record.state == "complete" and record.trial_id not in trials:
            continue
        scaled, divided, wall_time_s = None, None, record.wall_time_s
        if record.steps is not None:
            scaled = known_scalings.get(record.trial_id) or scaling_over_starts(record, related.of(record))
            if record.trial_id in known_waterfalls:
                divided = known_waterfalls[record.trial_id]
            else:
                divided = waterfall_over_starts(record, related.of(record))
            if related.has_starts:
                wall_time_s = sum(each.wall_time_s for each in starts_of(record, related.of(record)))
        values = _asked(record, names) | _answered(record, scaled, divided) | {"wall_time_s": wall_time_s}
        rows.append(TrialSummary(**values))
    return rows


def to_pandas(records: Sequence[TrialRecord]) -> pd.DataFrame:
    """The summary as a DataFrame, one row a trial, with the columns of ``summary.csv``."""
    import pandas as pd  # a second of import, for those who ask

    return pd.DataFrame([summary.row() for summary in summarize(records)])


def model_name(record: TrialRecord) -> str:
    """What reports call the model: torchvision's name, the workload's, or the factory's path."""
    return model_name_of(record.config.workload)


def model_name_of(workload: WorkloadSpec) -> str:
    """The same of a workload."""
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


def _answered(record: TrialRecord, scaled: Scaling | None, divided: Waterfall | None) -> Values:
    """What came of a record."""
    if record.training is not None:
        return _of_training(TrainedRun(record))
    if record.probe is not None:
        return _of_memory(record.probe)
    if record.steps is None or scaled is None:
        return {}
    phases = phase_times(record, divided) if record.steps.phases else {}
    return {
        **_of_speed(record, scaled),
        **_of_memory(record.steps),
        **_of_parts(divided),
        **_of_phases(phases, restart_time(record)),
        **_of_devices(record.steps, scaled),
    }


def _asked(record: TrialRecord, names: list[str]) -> Values:
    """What is known of a record whatever came of it."""
    config, setting = record.config, record.config.setting
    return {
        "study": record.study,
        "model": model_name(record),
        "device_name": record.device_name,
        "input": config.workload.input,
        "trial_id": record.trial_id,
        "role": record.request.role,
        "state": record.state,
        "strategy": setting.strategy,
        "scaling": config.scaling,
        "world_size": config.world_size,
        "nodes": record.nodes,
        "placement": placement_text(config.placement),
        "batch_size": setting.batch_size,
        "global_batch_size": config.global_batch_size,
        "bucket_cap_mb": setting.bucket_cap_mb,
        "precision": setting.precision,
        "gradient_accumulation": setting.gradient_accumulation,
        "gradient_compression": setting.gradient_compression,
        "oversubscribed": config.oversubscribed,
        "wall_time_s": record.wall_time_s,
        "varying": {
            name: getattr(setting, name) if name in Setting.model_fields else config.environment.get(name)
            for name in names
        },
    }


def _of_training(run: TrainedRun) -> Values:
    result = run.result
    return {
        "epoch_time_s": run.epoch_time_s,
        "accuracy": run.final_accuracy,
        "time_to_target_s": run.time_to_target_s,
        "peak_memory_bytes": max(result.peak_memory_bytes or (), default=None),
        "device_memory_bytes": max(result.device_memory_bytes or (), default=None),
        "device_utilization": _mean_known(result.device_utilization),
    }


def _of_memory(result: StepsResult | ProbeResult) -> Values:
    return {
        "peak_memory_bytes": max(result.peak_memory_bytes or (), default=None),
        "device_memory_bytes": max(result.device_memory_bytes or (), default=None),
    }


def _of_speed(record: TrialRecord, scaled: Scaling) -> Values:
    # one device as the speed-up has it: the ratio of the two steps is the speed-up, under weak scaling over n
    baseline, efficiency = (one_device(record, scaled) or scaled).baseline, scaled.efficiency
    return {
        "status": "baseline" if scaled.is_baseline else str(scaled.status) if scaled.status else None,
        "step_time_s": scaled.step_time_s.value,
        "step_time_low_s": scaled.step_time_s.low,
        "step_time_high_s": scaled.step_time_s.high,
        "throughput_samples_per_s": scaled.throughput_samples_per_s.value,
        "throughput_tokens_per_s": _value(scaled.throughput_tokens_per_s),
        "baseline_world_size": baseline.world_size if baseline else None,
        "baseline_strategy": baseline.strategy if baseline else None,
        "baseline_step_time_s": baseline.step_time_s.value if baseline else None,
        "speedup": _value(scaled.speedup),
        "efficiency": _value(efficiency),
        "efficiency_low": efficiency.low if efficiency else None,
        "efficiency_high": efficiency.high if efficiency else None,
        "rounds": scaled.step_time_s.n,
        "starts": scaled.step_time_s.starts,
    }


def _of_parts(divided: Waterfall | None) -> Values:
    if divided is None:
        return {}
    parts = divided.parts
    return {
        "ideal_s": _value(parts.ideal),
        "small_batch_s": _value(parts.small_batch),
        "contention_s": _value(parts.contention),
        "wrapper_s": _value(parts.wrapper),
        "skew_s": _value(parts.skew),
        "exposed_communication_s": _value(parts.exposed_communication),
        "hidden_communication_s": _value(divided.hidden_communication_s),
        "communication_fraction": _value(divided.communication_fraction),
        "bus_bandwidth_bytes_per_s": _value(divided.bus_bandwidth_bytes_per_s),
    }


def _of_phases(phases: Mapping[Phase, Estimate], restart_s: Estimate | None) -> Values:
    return {
        "data_s": _value(phases.get("data")),
        "forward_s": _value(phases.get("forward")),
        "backward_s": _value(phases.get("backward")),
        "optimizer_s": _value(phases.get("optimizer")),
        "other_s": _value(phases.get("other")),
        "restart_s": _value(restart_s),
    }


def _of_devices(result: StepsResult, scaled: Scaling) -> Values:
    """What the devices sent, computed and used."""
    flops = result.flops_per_step
    return {
        "gradient_bytes": result.gradient_bytes,
        "flops_per_s": flops / scaled.step_time_s.value if flops else None,
        "device_utilization": _mean_known(result.device_utilization),
        "energy_joules": result.energy_joules,
        "plain_energy_joules": result.plain_energy_joules,
    }


def _value(estimate: Estimate | None) -> float | None:
    return None if estimate is None else estimate.value


def _mean_known(shares: Sequence[float | None] | None) -> float | None:
    known = [share for share in shares or () if share is not None]
    return sum(known) / len(known) if known else None

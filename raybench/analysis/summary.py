"""The columns of ``summary.csv``, a row a setting, and of ``trials.csv``, a row a trial."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, get_args, get_type_hints

from raybench.analysis.phases import phase_times
from raybench.analysis.reference import grouped
from raybench.analysis.scaling import Fit, Scaling
from raybench.analysis.stats.statistics import Estimate
from raybench.analysis.training import TrainedRun
from raybench.analysis.waterfall import Waterfall
from raybench.records.record import TrialRecord
from raybench.records.results import ProbeResult, StepsResult, TrainingResult
from raybench.spec.knobs import KnobValue, Setting
from raybench.spec.placement import placement_text
from raybench.spec.workloads import ScriptSpec, WorkloadSpec

if TYPE_CHECKING:
    import pandas as pd

Values = dict[str, Any]  # of fields of a ``Summary``


@dataclass(frozen=True, kw_only=True, slots=True)
class Summary:
    """A row of ``summary.csv`` or ``trials.csv``; None where unknown or inapplicable. Units stand in the
    names.

    ``varying`` holds the knobs and variables without a column of their own that differ between records.
    Memory is of the rank that takes most, ``flops_per_s`` of one device, energy of all in a step, plain
    energy of one alone.
    """

    #: name of the study
    study: str
    #: the model's name, the workload's, or the factory's path
    model: str
    #: name of the device
    device_name: str | None
    #: `synthetic` or `real`
    input: str
    #: id of the record; of a setting, that of the trial that stands for it
    trial_id: str
    #: trials of the setting there: its visits
    visits: int
    #: what the trial was for; of a setting, what the trial that stands for it was for
    role: str
    #: how it ended; the reason is in the record
    state: str
    #: the efficiency in one word
    status: str | None = None
    #: how the model is spread
    strategy: str | None
    #: `weak` or `strong`
    scaling: str
    #: number of devices
    world_size: int
    #: number of nodes
    nodes: int | None
    #: `pack`, `spread`, or ranks with spaces between them
    placement: str
    #: samples of one device's micro-batch, under strong scaling of all devices in an optimizer step
    batch_size: int
    #: samples of all devices in an optimizer step
    global_batch_size: int
    #: size of DDP's buckets in MiB, or `default`
    bucket_cap_mb: float | str
    #: as the knob
    precision: str
    #: micro-batches of an optimizer step
    gradient_accumulation: int
    #: as the knob
    gradient_compression: str
    varying: dict[str, KnobValue]  # a column for each
    #: from one optimizer step to the next, on the slowest rank
    step_time_s: float | None = None
    #: lower end of its interval
    step_time_low_s: float | None = None
    #: upper end of its interval
    step_time_high_s: float | None = None
    #: mean over all rounds, of which totals are made; `step_time_s` is the typical step
    mean_step_time_s: float | None = None
    #: samples of all ranks in a step over the step time
    throughput_samples_per_s: float | None = None
    #: the same in tokens, padding left out
    throughput_tokens_per_s: float | None = None
    #: world size that the speed-up is over: one device, or the fewest that were measured
    baseline_world_size: int | None = None
    #: strategy of the baseline
    baseline_strategy: str | None = None
    #: step time of the baseline: over `step_time_s` it is the `speedup` under strong scaling, and the
    #: speed-up over the ratio of world sizes under weak scaling
    baseline_step_time_s: float | None = None
    #: over the baseline: of the throughput (weak scaling) or the step time (strong)
    speedup: float | None = None
    #: speed-up over the ratio of world sizes, 1 is ideal
    efficiency: float | None = None
    #: lower end of its interval
    efficiency_low: float | None = None
    #: upper end of its interval
    efficiency_high: float | None = None
    #: lower end of the interval in which another run would find it
    efficiency_again_low: float | None = None
    #: upper end of that
    efficiency_again_high: float | None = None
    #: the step that perfect scaling would have
    ideal_s: float | None = None
    #: what the smaller batch of each device costs (strong scaling)
    small_batch_s: float | None = None
    #: what computing on all devices at once costs
    contention_s: float | None = None
    #: what DDP's copies and hooks cost
    wrapper_s: float | None = None
    #: waiting for the slowest rank
    skew_s: float | None = None
    #: communication, as the report calls it: transfers that no compute hides
    exposed_communication_s: float | None = None
    #: transfers that compute hides; negative: interference costs more than it hides
    hidden_communication_s: float | None = None
    #: exposed communication over the step time
    communication_fraction: float | None = None
    #: what one rank sends in a step
    gradient_bytes: int | None = None
    #: bus bandwidth of the all-reduces alone, as nccl-tests defines it
    bus_bandwidth_bytes_per_s: float | None = None
    #: phase of the step: getting the batch
    data_s: float | None = None
    #: phase: forward pass and loss
    forward_s: float | None = None
    #: phase: backward pass, without communication where that was measured
    backward_s: float | None = None
    #: phase: optimizer step
    optimizer_s: float | None = None
    #: phase: the rest
    other_s: float | None = None
    #: floating-point operations a second that one device achieves
    flops_per_s: float | None = None
    #: the same as a share of what large matrix products reach on the device in the setting's precision, where
    #: that is not `default`
    mfu: float | None = None
    #: the same as a share of the device's peak by its data sheet, dense; of ten models of GPUs
    mfu_datasheet: float | None = None
    #: memory as torch counts it, of the rank that takes most
    peak_memory_bytes: int | None = None
    #: memory as the device (on CPUs the process) counts it, of the rank that takes most
    device_memory_bytes: int | None = None
    #: busy share of the device, mean over ranks, 0 to 1
    device_utilization: float | None = None
    #: energy of all devices, for one step
    energy_joules: float | None = None
    #: energy of one device alone, for one step of its own
    plain_energy_joules: float | None = None
    #: training: mean time of an epoch without evaluation, the first epoch left out where there are more
    epoch_time_s: float | None = None
    #: training: accuracy on the test samples after the last epoch, 0 to 1
    accuracy: float | None = None
    #: training: time of training and evaluation until the target accuracy; empty: not reached
    time_to_target_s: float | None = None
    #: whether the group had more workers than there are cores
    oversubscribed: bool
    #: rounds of which the estimates are made, of all visits
    rounds: int | None = None
    #: starts of the workers in these rounds
    starts: int | None = None
    #: time that the trials took altogether
    wall_time_s: float
    scaled: Scaling | None = None  # of which the figures are

    def row(self) -> dict[str, KnobValue]:
        """The values by column, in the order of docs/reference.md."""
        row: dict[str, KnobValue] = {}
        for name in _COLUMNS:
            row |= self.varying if name == "varying" else {name: getattr(self, name)}
        return row


_COLUMNS = tuple(each.name for each in fields(Summary) if each.name != "scaled")


def summarize(records: Sequence[TrialRecord], fit: Fit | None = None) -> list[Summary]:
    """A row for each setting at its world size and place, and for each record without step times, in their
    order.

    ``records``: all of them, probes too; ``fit``: what their complete trials of steps say.
    """
    known, names = fit or Fit(records), _varying(records)
    rows = grouped(records, lambda each: known.buckets.key(each.config) if each.steps else each.trial_id)
    firsts = [first for first, *_ in rows.values()]
    return [_row(known, known.reference(each), names, known.visits(each) or (each,)) for each in firsts]


def summarize_trials(records: Sequence[TrialRecord], fit: Fit) -> list[Summary]:
    """A row for each record, a trial of steps by its own rounds and what ``fit`` says of the spreads."""
    names, spreads = _varying(records), fit.pool.spreads
    return [
        _row(Fit([record], fit.buckets, spreads, is_certain=True), record, names, (record,))
        for record in records
    ]


def _row(fit: Fit, record: TrialRecord, names: list[str], visits: Sequence[TrialRecord]) -> Summary:
    scaled, divided = fit.figures(record) if record.steps is not None else (None, None)
    values = _asked(record, names) | _answered(record, scaled, divided)
    values["wall_time_s"] = sum(each.wall_time_s for each in visits)
    return Summary(**values, scaled=scaled, visits=len(visits))


def frame_of(summaries: Sequence[Summary]) -> pd.DataFrame:
    """The rows as a DataFrame: numbers are numbers also where none is known, NaN or NA where it is not."""
    import pandas as pd  # a second of import, for those who ask

    frame = pd.DataFrame([summary.row() for summary in summaries])
    for name, kind in _KINDS.items():
        if kind in _DTYPES and name in frame:
            frame[name] = frame[name].astype(_DTYPES[kind])  # type: ignore[call-overload]
    return frame


_DTYPES: dict[Any, str] = {int: "Int64", float: "float64", bool: "boolean", str: "string"}
# What each column holds where it is not empty; of a value of two kinds, both.
_KINDS: dict[str, Any] = {
    name: get_args(hint)[0] if len(get_args(hint)) == 2 and type(None) in get_args(hint) else hint
    for name, hint in get_type_hints(Summary).items()
}
METRICS = tuple(name for name, kind in _KINDS.items() if kind is float or name.endswith("_bytes"))


def model_name(workload: WorkloadSpec) -> str:
    """What reports call the model: torchvision's name, the workload's, or the factory's path."""
    return str(getattr(workload, "model", None) or workload.name)


def _varying(records: Sequence[TrialRecord]) -> list[str]:
    """Knobs and environment variables without a column of their own, of which there is more than one value.

    Only records on several devices count for the knobs that are reset on one.
    """
    own = {each.name for each in fields(Summary)}
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
    phases = phase_times(record, scaled.step_time_s, divided)
    return {
        **_of_speed(record, scaled),
        **_of_memory(record.steps),
        **_of_parts(divided),
        **{f"{phase}_s": time_s.value for phase, time_s in phases.items()},
        **_of_devices(record, record.steps, scaled),
    }


def own_of_a_script(record: TrialRecord) -> Values:
    """What a script decides itself: as it was counted, or unknown."""
    workload, steps, size = record.config.workload, record.steps, record.config.world_size
    if not isinstance(workload, ScriptSpec):
        return {}
    own = {"bucket_cap_mb", "gradient_compression", "gradient_accumulation"}
    own -= {*(workload.ddp_knobs or ()), *workload.placeholders}
    if size > 1 and (steps is None or steps.gradient_bytes is None):
        own.add("strategy")  # FSDP, or another of its own
    return dict.fromkeys(own) | ({"global_batch_size": steps.global_batch_size} if steps else {})


def _asked(record: TrialRecord, names: list[str]) -> Values:
    """What is known of a record whatever came of it."""
    config, setting = record.config, record.config.setting
    return {
        **_named(record, "study", "device_name", "trial_id", "state", "nodes"),
        **_named(config, "scaling", "world_size", "global_batch_size", "oversubscribed"),
        **_named(setting, *(name for name in Setting.model_fields if name in _COLUMNS)),
        "model": model_name(config.workload),
        "input": config.workload.input,
        "role": record.request.role,
        "placement": placement_text(config.placement),
        "varying": {
            name: getattr(setting, name) if name in Setting.model_fields else config.environment.get(name)
            for name in names
        },
        **own_of_a_script(record),
    }


def _named(source: object, *names: str) -> Values:
    """What columns of these names hold; of an estimate its value."""
    found = {name: getattr(source, name) for name in names}
    return {name: each.value if isinstance(each, Estimate) else each for name, each in found.items()}


def _of_training(run: TrainedRun) -> Values:
    return {
        **_named(run, "epoch_time_s", "time_to_target_s"),
        "accuracy": run.final_accuracy,
        "device_utilization": _mean_known(run.result.device_utilization),
        **_of_memory(run.result),
    }


def _of_memory(result: StepsResult | ProbeResult | TrainingResult) -> Values:
    return {
        "peak_memory_bytes": max(result.peak_memory_bytes or (), default=None),
        "device_memory_bytes": max(result.device_memory_bytes or (), default=None),
    }


def _of_speed(record: TrialRecord, scaled: Scaling) -> Values:
    # one device as the speed-up has it: the ratio of the two steps is the speed-up, under weak scaling over n
    baseline, efficiency = scaled.baseline, scaled.efficiency
    step_s, again = scaled.step_time_s, efficiency.again if efficiency else None
    names = "throughput_samples_per_s", "throughput_tokens_per_s", "speedup", "efficiency"
    found = _named(scaled, "step_time_s", *names) | {
        "status": scaled.status and str(scaled.status),
        "step_time_low_s": step_s.low,
        "step_time_high_s": step_s.high,
        "mean_step_time_s": scaled.mean_step_s.value,
        "rounds": step_s.n,
        "starts": step_s.starts,
    }
    if baseline is not None:
        of_base = _named(baseline, "world_size", "strategy", "step_time_s")
        found |= {f"baseline_{name}": value for name, value in of_base.items()}
    if efficiency is not None:
        found |= {"efficiency_low": efficiency.low, "efficiency_high": efficiency.high}
    if again is not None:
        found |= {"efficiency_again_low": again[0], "efficiency_again_high": again[1]}
    return found


def _of_parts(divided: Waterfall | None) -> Values:
    if divided is None:
        return {}
    parts = divided.parts.present()
    parts.pop("undivided", None)
    names = "hidden_communication_s", "communication_fraction", "bus_bandwidth_bytes_per_s"
    return {f"{name}_s": part.value for name, part in parts.items()} | _named(divided, *names)


# Peaks of one GPU in TFLOP/s by NVIDIA's data sheets: in fp32 without tensor cores, in tf32, in bf16 and
# fp16; None: it has none. Dense: the sheets from A100 on print twice as much, "with sparsity".
_DATASHEETS: Sequence[tuple[str, float, float | None, float]] = (
    # images.nvidia.com/content/technologies/volta/pdf/volta-v100-datasheet-update-us-1165301-r5.pdf
    (r"Tesla V100-SXM2-\d+GB", 15.7, None, 125.0),
    (r"Tesla V100-PCIE-\d+GB", 14.0, None, 112.0),
    # www.nvidia.com/content/dam/en-zz/Solutions/Data-Center/tesla-t4/t4-tensor-core-datasheet-951643.pdf
    (r"Tesla T4", 8.1, None, 65.0),
    # www.nvidia.com/content/dam/en-zz/Solutions/Data-Center/a10/pdf/a10-datasheet.pdf
    (r"NVIDIA A10", 31.2, 62.5, 125.0),
    # www.nvidia.com/content/dam/en-zz/Solutions/Data-Center/a100/pdf/
    # nvidia-a100-datasheet-us-nvidia-1758950-r4-web.pdf
    (r"(NVIDIA )?A100(-(SXM4|PCIE)-\d+GB| 80GB PCIe)", 19.5, 156.0, 312.0),
    # resources.nvidia.com/en-us-gpu-resources/l4-tensor-datasheet
    (r"NVIDIA L4", 30.3, 60.0, 121.0),
    # resources.nvidia.com/en-us-l40s/l40s-datasheet-28413
    (r"NVIDIA L40S", 91.6, 183.0, 362.0),
    # resources.nvidia.com/en-us-tensor-core/nvidia-tensor-core-gpu-datasheet
    (r"NVIDIA H100 PCIe", 51.0, 378.0, 756.5),
    (r"NVIDIA H100 80GB HBM3", 67.0, 494.5, 989.0),
    # nvdam.widen.net/s/nb5zzzsjdf/hpc-datasheet-sc23-h200-datasheet-3002446
    (r"NVIDIA H200", 67.0, 494.5, 989.0),
)


def datasheet_flops_per_s(name: str | None, precision: str) -> float | None:
    """The peak of the GPU ``name`` in ``precision``; None of others, and of what its tensor cores lack."""
    for pattern, fp32, tf32, half in _DATASHEETS:
        if name is not None and re.fullmatch(pattern, name):
            bf16 = half if tf32 is not None else None  # both came with A100
            found = {"fp32": fp32, "tf32": tf32, "bf16": bf16, "fp16": half}.get(precision)
            return None if found is None else found * 1e12
    return None


def _of_devices(record: TrialRecord, result: StepsResult, scaled: Scaling) -> Values:
    """What the devices sent, computed and used."""
    flops, config, precision = result.flops_per_step, record.config, record.config.setting.precision
    # on CPUs the peak is no constant of the device, and what is computed again is no use of the model's
    is_known = config.device == "cuda" and not config.setting.activation_checkpointing
    rate = flops / scaled.step_time_s.value if flops else None
    # by default a step may have operations of several precisions, as torch and the user's code have set them
    peak = result.matrix_peak_flops_per_s if is_known and precision != "default" else None
    sheet = datasheet_flops_per_s(record.device_name, precision) if is_known else None
    return {
        **_named(result, "gradient_bytes", "energy_joules", "plain_energy_joules"),
        "flops_per_s": rate,
        "mfu": rate / peak if rate and peak else None,
        "mfu_datasheet": rate / sheet if rate and sheet else None,
        "device_utilization": _mean_known(result.device_utilization),
    }


def _mean_known(shares: Sequence[float | None] | None) -> float | None:
    known = [share for share in shares or () if share is not None]
    return sum(known) / len(known) if known else None

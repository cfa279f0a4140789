"""The text of each finding: its evidence and its fix, from one table."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from raybench.analysis.findings.finding import Finding, FindingName, Need, Reason
from raybench.report.format import duration_words, figures
from raybench.spec.plural import bytes_words, plural
from raybench.spec.user_input import literal

SENT = "the step waits for transfers of {transferred_bytes}"
WAITS = f"{SENT} in {{buckets}}"
SHARDED = "the step waits for {transferred_bytes} of FSDP's gathers and scatters"
SLOW_RANK = "{rank} takes {excess_ratio} longer than the others in every step"
WAITS_FOR_SLOWEST = "ranks wait for the slowest, which changes from step to step"
NO_CORE = "{rank} may use no core of NUMA node {numa_node}, which its GPU is on{as_far}"
WORKERS_SLOWER = "each worker computes more slowly next to the others than alone"
GPUS_SLOWER = "each GPU computes more slowly next to the others than alone"
SHARE_CORES = "{ranks} workers of {threads} share {cores} cores"

# What shows a finding, by its reason where that has its own text, else by its name. It does not repeat the
# time that it explains. ``str.format`` fills in the values by their names.
EVIDENCE: Mapping[FindingName | Reason, str] = {
    FindingName.COMMUNICATION_BOUND: f"{WAITS}, and latency is {{latency_share}} of their time",
    Reason.UNSEPARATED: WAITS,
    Reason.BOTH: f"{WAITS}, and neither latency nor bandwidth has most of their time",
    Reason.ONE_BUCKET_SIZE: f"{WAITS}, and one bucket size cannot separate latency from bandwidth",
    Reason.SOCKETS: f"{SENT}, and NCCL uses sockets instead of {{devices}}",
    Reason.HOST_MEMORY: f"{SENT}, and NCCL sends over {{network}} without GPUDirect",
    Reason.PASSES: f"{SENT}, and for {{collectives}} within its passes, as of SyncBatchNorm",
    Reason.GATHERS_TWICE: f"{SHARDED}, and FSDP gathers the weights before each pass",
    Reason.GATHERS: SHARDED,
    FindingName.INTERFERENCE: "communication costs this on top of its transfers, which slow down compute",
    FindingName.COSTLY_WRAPPER: "DDP's copies and hooks take this time without any transfer",
    Reason.SHARDS: "FSDP's copies and hooks take this time without any transfer",
    FindingName.CONTENTION: f"{WORKERS_SLOWER}, as they share caches and memory",
    Reason.OTHERS: WORKERS_SLOWER,
    Reason.SHARED_NODE: f"{GPUS_SLOWER}, as they share power and the host",
    Reason.CLOCKS: (
        f"{GPUS_SLOWER}, and clocks that are {{clock_drop_ratio}} lower explain up to {{by_clocks_s}} of it"
    ),
    Reason.SHARED_HOST: (
        f"{GPUS_SLOWER}, at clocks that are {{clock_drop_ratio}} lower, as they share the host"
    ),
    Reason.THREADS: SHARE_CORES,
    Reason.WORKERS: SHARE_CORES,
    FindingName.OTHER_PROCESSES: (
        "other processes, which may be Ray's own, used {other_cores} of {host_cores} cores"
    ),
    FindingName.STRAGGLER: SLOW_RANK,
    Reason.DEVICE: f"{SLOW_RANK}, and also alone",
    Reason.NOT_ALONE: f"{SLOW_RANK}, but not when it runs alone",
    Reason.SLOW_ALONE: "{rank} takes {spread_ratio} longer than rank {fast_rank} when each runs alone",
    FindingName.JITTER: f"{WAITS_FOR_SLOWEST}, although all batches have one shape",
    Reason.BATCHES: f"{WAITS_FOR_SLOWEST}, as batches may differ in length",
    FindingName.DATA_BOUND: "the step waits for its batch",
    Reason.FEW_WORKERS: "the step waits for its batch, from {workers} a rank",
    FindingName.UNFUSED_OPTIMIZER: "the optimizer takes {optimizer_s}, and a fused one {fused_s}",
    FindingName.BATCH_TOO_SMALL: "this time stays whatever the batch",
    Reason.STRONG_SCALING: "a device's part of the global batch takes this much longer than its share",
    FindingName.UNATTRIBUTED_LOSS: "this loss was not divided into parts{of_communication}",
    Reason.OVERSUBSCRIBED: "{world_size} workers shared fewer cores, so no figure shows how fast they are",
    Reason.QUOTA: "the container used up its CPU quota in {used_up_share} of the scheduler's periods",
    FindingName.THROTTLING: "rank {ranks} reported it in {throttled_rounds} of {rounds} rounds",
    Reason.CLOCK_FELL: "a clock fell by {clock_drop_ratio} between rounds",
    FindingName.NARROW_PCIE: "{narrow} has PCIe {link}, and could have {most_link}",
    FindingName.FAR_CORES: f"{NO_CORE}, at a cost that was not measured",
    Reason.SLOW_TOO: f"{NO_CORE}, and is the slow rank",
    FindingName.STILL_WARMING: "{rank} was still growing warmer at the end, {warming}",
    FindingName.HOST_SYNCHRONIZATION: "a step waits for its GPU {waits}, at {lines}",
    FindingName.LITTLE_MEMORY: "a GPU was full {retries} in timed steps, and torch emptied its cache",
    FindingName.RARE_SLOW_STEPS: "the mean step, which sets the cost, is {share_ratio} above the typical one",
    FindingName.LOSSES_DISAGREE: "the first losses of {strategy} are {relative_difference} off one device's",
    Reason.GRADIENT: "the first gradient of {strategy} is {gradient_difference} off one device's",
    FindingName.SAME_SAMPLES: "the ranks read the same samples, which count once for each of them",
    FindingName.NOT_ALL_MEASURED: "{missing}",
    Reason.CRASHED: "{which} crashed: {error}",
    Reason.TIMEOUT: "{which} took too long: {error}",
    Reason.OOM: "{which} did not fit: {error}",
    Reason.INVALID: "{which} cannot be measured: {error}",
    FindingName.NOT_REACHED: "{left_out}",
}

MORE_SAMPLES = "use a larger batch or gradient accumulation"
LARGER_OR_WHOLE = "use a larger batch, or strategy ddp if the model fits on one device"
STOP_IT = "look with top for what else runs, and stop it or measure later"
LOOK_THERE = "look with top and nvidia-smi for what else uses its device or host"
COMPARE = (
    "measure again, and if it stays slow compare its clock, temperature and power limit with the others', or "
    "leave it out by scaling.placement"
)

# What to do about it, in the same way, where it is no change of knobs.
FIX: Mapping[FindingName | Reason, str] = {
    Reason.FEW_BUCKETS: MORE_SAMPLES,
    Reason.BANDWIDTH: "use a larger batch, gradient accumulation, gradient_compression bf16 or a faster link",
    Reason.COMPRESSED: "use a larger batch, gradient accumulation or a faster link",
    Reason.BOTH: "use a larger batch, which helps against both",
    Reason.ONE_BUCKET_SIZE: "measure bucket_cap_mb {sizes} too",
    Reason.UNSEPARATED: "use a larger batch, whether latency or bandwidth limits them",
    Reason.SOCKETS: "look in the output of NCCL_DEBUG=INFO for a missing plugin, NCCL_NET or NCCL_IB_HCA",
    Reason.HOST_MEMORY: "load nvidia-peermem, with GPU and adapter below one switch (nvidia-smi topo -m)",
    Reason.PASSES: "synchronize fewer layers (BatchNorm for SyncBatchNorm), or use a larger batch",
    Reason.GATHERS: LARGER_OR_WHOLE,
    Reason.CHANNELS: "set NCCL_MAX_NCHANNELS lower, or use gradient accumulation",
    Reason.BUSY_CORES: "leave a core free of workers, or use gradient accumulation",
    FindingName.COSTLY_WRAPPER: MORE_SAMPLES,
    Reason.SHARDS: LARGER_OR_WHOLE,
    Reason.COPIES: f"set batched_grad_copy, which needs torch 2.14, or {MORE_SAMPLES}",
    FindingName.CONTENTION: "use fewer workers on this host, or more hosts",
    Reason.SHARED_NODE: "compare clocks with one GPU's at work (nvidia-smi dmon), and cores with top",
    Reason.CLOCKS: "check power limit and temperature (nvidia-smi -q -d POWER,TEMPERATURE)",
    Reason.SHARED_HOST: "look at PCIe and memory with nvidia-smi dmon, and at cores with top",
    Reason.WORKERS: "use no more workers than cores",
    Reason.OTHERS: "stop what else runs, which top shows, or leave a core free of workers",
    FindingName.OTHER_PROCESSES: STOP_IT,
    FindingName.STRAGGLER: f"{LOOK_THERE}, and compare its clock, temperature and power limit",
    Reason.NOT_ALONE: LOOK_THERE,
    Reason.DEVICE: COMPARE,
    Reason.SLOW_ALONE: COMPARE,
    FindingName.JITTER: STOP_IT,
    Reason.BATCHES: f"sort batches by length or pad them to one shape, else {STOP_IT}",
    FindingName.DATA_BOUND: "make batches before the steps, as loader processes serve real input only",
    Reason.LOADER: "prepare batches ahead, as more loader processes do not help",
    Reason.SCRIPT: "set the num_workers of the script's loaders higher, or make batches ahead",
    FindingName.BATCH_TOO_SMALL: "use a larger batch",
    Reason.LARGER_IS_NO_BETTER: "set compile or optimizer_kernels fused, as no larger batch was faster",
    FindingName.UNATTRIBUTED_LOSS: "measure it with memory to spare, which divides the loss",
    Reason.OF_SCRIPT: "measure the model as a workload (docs/workloads.md), which divides the loss",
    Reason.NO_PARTS: "measure plain DDP too, whose loss can be divided",
    Reason.NOT_LEFT_OUT: "measure without what keeps this loss undivided: {why}",
    Reason.OWN_COLLECTIVES: "measure it as a workload, or without the script's own collectives in every step "
    "(of transformers' Trainer, --average_tokens_across_devices False)",
    Reason.SEARCHED: "use --resume to measure the scaling curve, which divides the loss",
    Reason.OVERSUBSCRIBED: "run on as many cores as workers",
    Reason.QUOTA: "use fewer workers or threads, or raise the limit (resources.limits.cpu, --cpus)",
    FindingName.THROTTLING: "check temperature and power limit (nvidia-smi -q -d CLOCK,POWER,TEMPERATURE)",
    FindingName.NARROW_PCIE: "use its fastest slot, reseat the card, or check its riser and the BIOS",
    FindingName.FAR_CORES: (
        "give ranks cores of their GPUs' nodes: numactl --cpunodebind, torchrun --numa-binding, or Slurm's "
        "--gpu-bind=closest and --cpu-bind"
    ),
    FindingName.STILL_WARMING: "measure longer (measure.max_seconds), as clocks may fall on a warm GPU",
    FindingName.HOST_SYNCHRONIZATION: "read losses and metrics in few steps, and keep sizes on the host",
    FindingName.LITTLE_MEMORY: "use a smaller batch or activation_checkpointing",
    FindingName.RARE_SLOW_STEPS: "look for programs, garbage collection or checkpoints that come and go",
    FindingName.LOSSES_DISAGREE: "find what the strategy computes differently before you use its speed",
    FindingName.SAME_SAMPLES: (
        "give the loader a DistributedSampler, as without it an epoch takes as long as on one device"
    ),
    FindingName.NOT_ALL_MEASURED: "use a smaller batch, if memory is the reason and you need it",
    Reason.CRASHED: "fix the error, then {then}",
    Reason.TIMEOUT: "resume with more time, if it does not hang",
    Reason.OOM: "use a smaller batch, accumulation or activation_checkpointing",
    Reason.INVALID: "change what the reason names",
    FindingName.NOT_REACHED: "resume to measure the rest",
}


def evidence(finding: Finding) -> str:
    """What shows the finding, but for the time that it explains."""
    return _text(EVIDENCE, finding) + _of_others(finding) + _little_compute(finding)


def _of_others(finding: Finding) -> str:
    """How much of it other programs may be."""
    share = finding.values.get("others_share")
    if share is None:
        return ""
    shown, of_it = _shown(finding), "all" if share == 1 else f"up to {share:.0%}"
    return f". Other programs, on {shown['other_cores']} of {shown['host_cores']} cores, may be {of_it} of it"


def _little_compute(finding: Finding) -> str:
    """That there is too little to compute for the gradients, and what makes it so."""
    values = finding.values
    if "flops_per_byte" not in values:
        return ""
    per_byte, enough = (figures(values[name]) for name in ("flops_per_byte", "hiding_flops_per_byte"))
    small = "the batch is too small"
    if (tokens := values.get("sequence_tokens")) is not None:
        small = f"the batch or sequences of {tokens:.0f} tokens are too small"
    return f". Each byte of gradient has {per_byte} FLOP of compute, and {enough} would hide it: {small}"


def cost(finding: Finding) -> str:
    """The time that the finding explains, "2.1 ms, 14% of a step"; else its severity."""
    if finding.explains is None or finding.step_s is None:
        return str(finding.severity)
    value_s = max(finding.explains.value, 0.0)
    return f"{duration_words(value_s)}, {value_s / finding.step_s:.0%} of a step"


def next_step(finding: Finding) -> str:
    """What to do about the finding: its change, where it has one."""
    if not finding.change:
        return _text(FIX, finding)
    shown = {name: literal(value).strip('"').removesuffix(".0") for name, value in finding.change.items()}
    words = f"set {' and '.join(f'{name} to {value}' for name, value in shown.items())}"
    if [*shown] == ["batch_size"] and finding.reason in FIX:
        fix = _text(FIX, finding)  # beside which a larger batch helps against any cost of a step
        named = fix.replace("a larger batch", f"batch_size {shown['batch_size']}")
        return named if named != fix else f"{fix}, or {words}"
    return words


def _text(table: Mapping[FindingName | Reason, str], finding: Finding) -> str:
    key = finding.reason if finding.reason in table and finding.reason else finding.name
    return table[key].format(**_shown(finding))


COUNTED = {  # one, and several where that is not one with an s
    "buckets": ("bucket", ""),
    "retries": ("time", ""),
    "waits": ("time", ""),
    "collectives": ("collective", ""),
    "threads": ("thread", ""),
    "workers": ("loader process", "loader processes"),
}


def _shown(finding: Finding) -> dict[str, str]:
    """Every value in its unit, by its name; what several of them say; and what is not a number."""
    values = finding.values
    shown = {name: _value(name, value) for name, value in values.items()}
    if "rank" in values:
        node = f" on node {finding.named['node']}" if "node" in finding.named else ""
        shown["rank"] = f"rank {values['rank']:.0f}{node}"
    others = round(values.get("ranks", 1)) - 1
    shown["narrow"] = shown.get("rank", "") + (f", like {plural(others, 'other rank')}," if others else "")
    shown["as_far"] = f", and {plural(others, 'other rank')} none near theirs" if others else ""
    ends = [shown[name] for name in ("least_communication_s", "most_communication_s") if name in shown]
    shown["of_communication"] = f", of which communication is {' to '.join(ends)}" if ends else ""
    if "before_c" in values:
        shown["warming"] = "from {before_c:.0f} to {after_c:.0f} degrees".format(**values)
    if {"before_mhz", "after_mhz"} <= values.keys():
        shown["warming"] += ", at {before_mhz:.0f} and {after_mhz:.0f} MHz".format(**values)
    if finding.name is FindingName.FAILED:
        more = round(values["num_trials"]) - 1
        shown["which"] = finding.named["first"] + (f" and {plural(more, 'more trial')}" if more else "")
    return shown | dict(finding.named)


def _value(name: str, value: float) -> str:
    """A value with the unit that its name ends with."""
    if name in COUNTED:
        return plural(round(value), *COUNTED[name])
    if math.isinf(value):  # a loss that diverged
        return "more than 1,000%"
    if name.endswith("_s"):
        return duration_words(value)
    if name.endswith(("_share", "_ratio", "_difference")):
        return f"{value:.1%}" if value < 0.1 else f"{value:.0%}"
    if name.endswith("_bytes"):
        return bytes_words(value)
    return f"{value:.0f}" if float(value).is_integer() else figures(value)


NEEDS = {
    Need.VARIANTS: "{names} (the trial has not all variants)",
    Need.PHASES: "{names} (the phases of a step were not timed)",
    Need.BATCHES: "whether the batch is too small (no larger one was measured)",
    Need.CLOCKS: "{names} (the devices' clocks are not known)",
    Need.LOAD: "{names} (the load by other programs is not known)",
}


def not_examined_words(missing: Sequence[tuple[FindingName, Need]]) -> str:
    """What could not be looked at, and why; empty where all was."""
    by_need = dict[Need, list[str]]()
    for name, need in missing:
        by_need.setdefault(need, []).append(name)
    return " ".join(
        f"Not examined: {NEEDS[need].format(names=', '.join(names))}." for need, names in by_need.items()
    )

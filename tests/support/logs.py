"""Files as nccl-tests and a transformers Trainer write them, with a planted truth."""

from __future__ import annotations

from typing import Any

_HEADER = (
    "#       size         count      type   redop    root"
    "     time   algbw   busbw  #wrong     time   algbw   busbw  #wrong"
)


def nccl_log(
    world_size: int,
    nodes: int = 1,
    *,
    collective: str = "all_reduce",
    latency_s: float = 3e-5,
    bytes_per_s: float = 1e11,
    prefix: str = "",
) -> str:
    """A log of version 2.19; the time in place is latency and transfer, out of place 5% more."""
    per_node, name = world_size // nodes, f"{collective}_perf"
    factor = (2 if collective == "all_reduce" else 1) * (world_size - 1) / world_size
    lines = [
        "# nccl-tests version 2.19.6 nccl-headers=22907 nccl-library=22907",
        f"# Collective test starting: {name}",
        "# nThread 1 nGpus 1 minBytes 1024 maxBytes 268435456 step: 4(factor) warmup iters: 1 iters: 20",
        "#",
        "# Using devices",
    ]
    for rank in range(world_size):
        host, device = f"node-{rank // per_node}", rank % per_node
        place = f"Pid {1000 + rank:6d} on {host:>10s} device {device:2d} [0000:{rank:02x}:00]"
        lines.append(f"#  Rank {rank:2d} Group  0 {place} NVIDIA H100 80GB HBM3")
    lines += ["#", _HEADER, "#        (B)    (elements)                               (us)  (GB/s)  (GB/s)"]
    for size in (1024 * 4**power for power in range(10)):
        time_us = (latency_s + size / bytes_per_s) * 1e6
        rate = size / time_us / 1e3
        timed = [
            f"{each:7.2f}  {rate:6.2f}  {rate * factor:6.2f}  {0:6d}" for each in (time_us * 1.05, time_us)
        ]
        lines.append(f"{size:12d}  {size // 4:12d}  {'float':>8s}  {'sum':>6s}  {-1:6d}  {'  '.join(timed)}")
    lines += ["# Out of bounds values : 0 OK", "# Avg bus bandwidth    : 100", "#"]
    lines.append(f"# Collective test concluded: {name}")
    return "".join(f"{prefix}{line}\n" for line in lines)


def trainer_state(
    world_size: int,
    *,
    batch: int = 32,
    accumulation: int = 1,
    steps: int = 200,
    planned: int | None = None,
    step_s: float = 0.25,
    evaluation_s: float = 20.0,
) -> dict[str, Any]:
    """``trainer_state.json`` after ``save_state``; its rates are of ``planned`` steps, else those trained."""
    train_s, counted = steps * step_s + evaluation_s, planned or steps
    samples = world_size * batch * accumulation * counted
    return {
        "best_metric": None,
        "epoch": 1.0,
        "global_step": steps,
        "log_history": [
            {"epoch": 0.5, "step": steps // 2, "loss": 1.0},
            {"epoch": 1.0, "step": steps, "eval_loss": 1.0, "eval_runtime": evaluation_s},
            {
                "epoch": 1.0,
                "step": steps,
                "total_flos": 1e12,
                "train_loss": 1.0,
                "train_runtime": round(train_s, 4),
                "train_samples_per_second": round(samples / train_s, 3),
                "train_steps_per_second": round(counted / train_s, 3),
            },
        ],
        "max_steps": counted,
        "train_batch_size": batch,
    }

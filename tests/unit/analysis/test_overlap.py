"""How much of the communication a step hides, by a trace."""

from __future__ import annotations

from typing import Any

import pytest

from raybench.worker.steps.profiling import traced_rank

MAIN, GLOO, STREAM, NCCL_STREAM = 1, 2, 7, 20  # threads, and streams


def event(category: str, name: str, begin_ms: float, end_ms: float, thread: int = MAIN) -> dict[str, Any]:
    times = {"ts": 5e6 + 1e3 * begin_ms, "dur": 1e3 * (end_ms - begin_ms)}
    return {"ph": "X", "cat": category, "name": name, "pid": 1, "tid": thread, **times}


def step(number: int, begin_ms: float, end_ms: float) -> dict[str, Any]:
    return event("user_annotation", f"ProfilerStep#{number}", begin_ms, end_ms)


def milliseconds(trace: list[dict[str, Any]], rank: int = 0) -> dict[str, float]:
    said = traced_rank(trace, rank)
    names = ("steps_s", "compute_s", "communication_s", "both_s", "alone_s")
    return {name: pytest.approx(1e3 * getattr(said, name)) for name in names}


def test_gloo_transfers_on_threads_of_their_own() -> None:
    trace = [
        step(2, 0, 50),
        step(3, 50, 100),
        event("user_annotation", "raybench/forward", 0, 20),  # a range is no compute
        event("cpu_op", "aten::addmm", 0, 20),
        event("cpu_op", "aten::mm", 5, 15),  # within it: counts once
        event("cpu_op", "aten::mm", 20, 40),
        event("cpu_op", "c10d::allreduce_", 40, 90),  # hands a transfer over, or waits for it
        event("user_annotation", "gloo:all_reduce", 30, 45, GLOO),
        event("user_annotation", "gloo:all_reduce", 42, 60, GLOO + 1),  # two of gloo's threads at once
        event("user_annotation", "gloo:broadcast", 80, 90, GLOO),
        event("cpu_op", "aten::add_", 85, 100),
        {"ph": "M", "name": "process_name", "pid": 1},
        {"ph": "f", "cat": "fwdbwd", "name": "fwdbwd", "ts": 5e6, "pid": 1, "tid": MAIN},
    ]
    said = traced_rank(trace, 3)
    assert (said.rank, said.num_steps) == (3, 2)
    assert milliseconds(trace) == {
        "steps_s": 100,
        "compute_s": 55,  # 0 to 40, 85 to 100
        "communication_s": 40,  # 30 to 60, 80 to 90
        "both_s": 15,  # 30 to 40, 85 to 90
        "alone_s": 25,
    }


def test_nccl_kernels_beside_those_that_compute() -> None:
    nccl = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
    trace = [
        step(2, 0, 40),
        event("cpu_op", "aten::mm", 0, 40),  # gives work to the GPU: no compute of its own
        event("cuda_runtime", "cudaLaunchKernel", 1, 2),
        event("kernel", "ampere_sgemm_128x64_nn", 10, 30, STREAM),
        event("kernel", nccl, 25, 38, NCCL_STREAM),
        event("gpu_user_annotation", "nccl:all_reduce", 25, 38, NCCL_STREAM),  # the same, as a range
        event("gpu_memcpy", "Memcpy HtoD", 0, 5, STREAM),
    ]
    assert milliseconds(trace) == {
        "steps_s": 40,
        "compute_s": 20,
        "communication_s": 13,
        "both_s": 5,
        "alone_s": 8,
    }


def test_only_what_lies_within_the_steps_counts() -> None:
    trace = [
        event("cpu_op", "aten::mm", 0, 15),
        event("user_annotation", "gloo:all_reduce", 18, 30, GLOO),
        step(2, 10, 20),
    ]
    assert milliseconds(trace) == {
        "steps_s": 10,
        "compute_s": 5,
        "communication_s": 2,
        "both_s": 0,
        "alone_s": 2,
    }


def test_one_device_has_no_communication() -> None:
    said = traced_rank([step(2, 0, 10), event("cpu_op", "aten::mm", 2, 8)], 0)
    assert said.communication_s == said.both_s == said.alone_s == 0


def test_a_trace_without_a_step_says_nothing() -> None:
    with pytest.raises(ValueError, match="no step"):
        traced_rank([event("cpu_op", "aten::mm", 0, 15)], 0)

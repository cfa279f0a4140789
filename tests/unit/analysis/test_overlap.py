"""How much of the communication a step hides: of each setting, and by a trace."""

from __future__ import annotations

from typing import Any

import pytest

from raybench.analysis import analyse
from raybench.analysis.overlap import HIDDEN, passage
from raybench.spec import Setting
from raybench.worker.steps.profiling import intersection, traced_rank, union
from tests.support.planted import QUIET, FakeRunner, run_all
from tests.unit.studies import exactly, planted, request, study


def test_compute_that_hides_communication_is_interpolated() -> None:
    # exposed: 10% of the step at 10 ms of compute, 2% at 40 ms
    found = planted({(32,): exactly(0.9), (128,): exactly(0.98, 0.04)}, "batch_size")
    (each,) = found.overlaps.shown
    assert each.measure == "communication"
    assert each.compute_s == pytest.approx(0.010 * 4**0.625)
    assert (each.below and each.below.batch_size, each.above and each.above.batch_size) == (32, 128)


def test_hiding_that_is_not_reached_or_always_there_says_so() -> None:
    (never,) = planted({(32,): exactly(0.5), (128,): exactly(0.8, 0.04)}, "batch_size").overlaps.shown
    assert never.compute_s is None
    (always,) = planted({(32,): exactly(0.97), (128,): exactly(0.99, 0.04)}, "batch_size").overlaps.shown
    assert always.compute_s is None
    assert max(point.fraction.value for point in always.points) <= HIDDEN


def test_places_side_by_side_are_named() -> None:
    """As pack and spread were rows of one name, each with a sentence of its own."""
    spec = study(knobs={"batch_size": [32, 128]}, scaling={"placement": ["pack", "spread"]})
    requests = [
        request(world_size=size, placement=place, setting=Setting(batch_size=batch))
        for batch in (32, 128)
        for size, place in ((1, "pack"), (2, "pack"), (2, "spread"))
    ]
    found = analyse(spec, run_all(FakeRunner(noise=QUIET), requests)[0])
    assert [each.label for each in found.overlaps.shown] == ["pack", "spread"]
    assert [each.compute_s for each in found.overlaps.shown] == [None, None]


def test_the_last_passage_counts() -> None:
    assert passage([(1, 0.04), (2, 0.06), (4, 0.02)]) == (pytest.approx(2 * 2**0.25), 1)
    assert passage([(1, 0.02), (2, 0.06)]) is None


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


@pytest.mark.parametrize(
    ("intervals", "joined"),
    [
        ([], []),
        ([(3, 4), (0, 1)], [(0, 1), (3, 4)]),
        ([(0, 2), (2, 3)], [(0, 3)]),
        ([(0, 9), (1, 2), (8, 12)], [(0, 12)]),
    ],
)
def test_union(intervals: list[tuple[float, float]], joined: list[tuple[float, float]]) -> None:
    assert union(intervals) == joined


def test_intersection() -> None:
    assert intersection([(0, 4), (6, 9)], [(1, 2), (3, 7), (8, 8.5), (9, 12)]) == [
        (1, 2),
        (3, 4),
        (6, 7),
        (8, 8.5),
    ]
    assert intersection([(0, 1)], []) == []

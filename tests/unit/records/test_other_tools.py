"""Files of other programs: nccl-tests' logs in the forms it has printed, runs of a Trainer and of TraceML."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from raybench.analysis.collectives import links_of_log
from raybench.errors import RequestError
from raybench.records.measured_elsewhere import read_measured, read_nccl_tests
from tests.support.logs import nccl_log, trainer_state

OLD = "# size count type redop     time   algbw   busbw  error     time   algbw   busbw  error"
OLD_GATHER = OLD.replace(" redop ", " ")
PER_ITERATION = (
    "# size count type redop root     time   algbw   busbw  #wrong    i_min    i_max    i_p99    i_cv%"
    "     time   algbw   busbw  #wrong    i_min    i_max    i_p99    i_cv%            timestamp"
)


def refusal(call: Any, *arguments: Any) -> str:
    with pytest.raises(RequestError) as error:
        call(*arguments)
    assert len(error.value.problems) == 1
    return str(error.value)


def written(folder: Path, text: str, name: str = "mine.log") -> Path:
    path = folder / name
    path.write_text(text)
    return path


@pytest.mark.parametrize("prefix", ["", "[1,0]<stdout>:", "0: "])
def test_the_line_of_a_log_is_the_planted_one(tmp_path: Path, prefix: str) -> None:
    log = nccl_log(8, 2, latency_s=4e-5, bytes_per_s=1e11, prefix=prefix)
    logged = read_nccl_tests(written(tmp_path, log))
    assert {(each.nodes, each.device_name) for each in logged} == {(2, "NVIDIA H100 80GB HBM3")}
    (line,) = links_of_log(logged)
    assert (line.collective, line.place.world_size, line.place.nodes) == ("all_reduce", 8, 2)
    assert line.latency_s is not None
    assert line.latency_s.value == pytest.approx(4e-5, rel=0.01)
    assert line.algorithm_bandwidth_bytes_per_s is not None
    assert line.algorithm_bandwidth_bytes_per_s.value == pytest.approx(1e11, rel=0.01)


def test_several_tests_in_a_file_each_with_its_own_devices(tmp_path: Path) -> None:
    text = (
        nccl_log(2) + nccl_log(4, collective="all_gather") + nccl_log(8, collective="alltoall") + nccl_log(8)
    )
    found = links_of_log(read_nccl_tests(written(tmp_path, text)))
    assert [(each.collective, each.place.world_size, each.place.nodes) for each in found] == [
        ("all_reduce", 2, 1),
        ("all_gather", 4, 1),
        ("all_reduce", 8, 1),
    ]


HEAD = "# nThread 1 nGpus 2 minBytes 8 maxBytes 128\n# Using devices\n" + "".join(
    f"#   Rank  {rank} Pid  12345 on       lab device  {rank} [0x1a] Tesla V100\n" for rank in range(2)
)


@pytest.mark.parametrize(
    ("name", "header", "row", "collective", "time_s"),
    [
        ("all_reduce_perf.log", OLD, "8388608 2 float sum 523.1 16 16 0 552.5 1 1 0", "all_reduce", 552.5),
        ("all_gather_perf.log", OLD_GATHER, "8388608 1 float 523.1 1 2 0 552.5 1 1 N/A", "all_gather", 523.1),
        ("broadcast_perf.txt", OLD, "8388608 2 half none 9 1 1 0 N/A N/A N/A N/A", "broadcast", 9.0),
        (
            "all_reduce_perf.log",
            PER_ITERATION,
            "8388608 2 bfloat16 sum -1 5.1 1 1 0 1 2 3 4 552.5 1 1 0 1 2 3 4 2026-01-01 10:00:00",
            "all_reduce",
            552.5,
        ),
    ],
    ids=["2.0, no root", "2.0, no operator", "out of place alone", "timings of iterations and a time of day"],
)  # fmt: skip
def test_headers_of_several_versions(
    tmp_path: Path, name: str, header: str, row: str, collective: str, time_s: float
) -> None:
    (found,) = read_nccl_tests(written(tmp_path, f"{HEAD}{header}\n{row}\n", name))
    assert (found.collective, found.world_size, found.nodes) == (collective, 2, 1)
    assert (found.message_bytes, found.time_s) == (8388608, pytest.approx(time_s / 1e6))


def test_what_is_no_log_or_does_not_say_enough(tmp_path: Path) -> None:
    assert "a log of nccl-tests" in refusal(read_nccl_tests, written(tmp_path, "hello\n"))
    assert "a log of nccl-tests" in refusal(read_nccl_tests, written(tmp_path, nccl_log(1)))
    gather = nccl_log(4, collective="all_gather").replace("all_gather_perf", "")
    assert "all_gather_perf.log" in refusal(read_nccl_tests, written(tmp_path, gather))
    no_ranks = "".join(line for line in nccl_log(4).splitlines(True) if "Rank" not in line)
    assert "HOST" in refusal(read_nccl_tests, written(tmp_path, no_ranks))


# --- runs


def runs(folder: Path, sizes: Sequence[int], suffix: str = "", **state: Any) -> list[Path]:
    paths = []
    for size in sizes:
        (folder / f"{size}").mkdir(exist_ok=True)
        path = folder / f"{size}" / "trainer_state.json"
        path.write_text(json.dumps(trainer_state(size, **state)))
        paths.append(Path(f"{path}@{size}{suffix}"))
    return paths


def test_a_trainers_step_is_without_its_evaluations(tmp_path: Path) -> None:
    table = read_measured(runs(tmp_path, (1, 4), step_s=0.25, evaluation_s=20.0), None)
    assert [(row.world_size, row.batch_size, row.scaling) for row in table.rows] == [
        (1, 32, "weak"),
        (4, 32, "weak"),
    ]
    assert [row.step_time_s for row in table.rows] == pytest.approx([0.25, 0.25], rel=1e-3)
    assert len(table.notes) == 1


def test_a_trainer_that_accumulates_on_two_nodes(tmp_path: Path) -> None:
    (row,) = read_measured(runs(tmp_path, (8,), "/2", accumulation=4), None).rows
    assert (row.world_size, row.nodes, row.batch_size, row.gradient_accumulation) == (8, 2, 32, 4)


def test_one_global_batch_is_strong_scaling(tmp_path: Path) -> None:
    files = [*runs(tmp_path, (1,), batch=128), *runs(tmp_path, (4,), batch=32)]
    assert [(row.scaling, row.batch_size) for row in read_measured(files, None).rows] == [("strong", 128)] * 2
    assert [(row.scaling, row.batch_size) for row in read_measured(files, "weak").rows] == [
        ("weak", 128),
        ("weak", 32),
    ]


def test_the_devices_of_a_trainer_where_they_are_plain_and_where_not(tmp_path: Path) -> None:
    one, two = (Path(str(path).partition("@")[0]) for path in runs(tmp_path, (1, 2)))
    assert read_measured([one], None).rows[0].world_size == 1
    said = refusal(read_measured, [two], None)
    assert f"{two}@2" in said
    assert "a step of 64 samples in batches of 32" in said
    assert "(received 3)" in refusal(read_measured, [Path(f"{two}@3")], None)


def test_steps_of_a_run_that_went_on_and_of_one_that_stopped(tmp_path: Path) -> None:
    """A new Trainer has rates of the steps since it went on, an older one those of all that were planned."""
    for trained, planned, at_step in ((100, 100, 200), (100, 400, 100)):
        path = tmp_path / "trainer_state.json"
        state = trainer_state(1, steps=trained, step_s=0.5, planned=planned, evaluation_s=0.0)
        path.write_text(json.dumps(state | {"global_step": at_step}))
        assert read_measured([path], None).rows[0].step_time_s == pytest.approx(0.5, rel=0.01)


def test_a_checkpoints_state_has_no_times(tmp_path: Path) -> None:
    state = trainer_state(1)
    path = written(
        tmp_path, json.dumps(state | {"log_history": state["log_history"][:-1]}), "trainer_state.json"
    )
    assert "trainer.save_state()" in refusal(read_measured, [path], None)


def summary(world_size: int | None, **average: float | None) -> dict[str, Any]:
    return {
        "schema_version": 1.7,
        "meta": {"mode": "single_node", "world_size": world_size, "nodes_observed": 1},
        "primary_diagnosis": {"kind": "INPUT_BOUND", "summary": "Input wait is high."},
        "step_time": {"metadata": {}, "global": {"index_by": "global_rank", "average": average}},
    }


@pytest.mark.parametrize(
    "average", [{"step_time_ms": 250.0}, {"total_step_ms": 250.0, "step_time_ms": 200.0}]
)
def test_tracemls_steps_before_and_since_1_7(tmp_path: Path, average: dict[str, float]) -> None:
    path = written(tmp_path, json.dumps(summary(4, **average, h2d_ms=None)), "final_summary.json")
    table = read_measured([Path(f"{path}@4x32")], None)
    (row,) = table.rows
    assert (row.world_size, row.batch_size, row.step_time_s) == (4, 32, 0.25)
    assert table.notes[-1] == "TraceML on 4 devices: Input wait is high."
    assert f"{path}@4x32" in refusal(read_measured, [path], None)
    assert "its world_size, 4 (received 8)" in refusal(read_measured, [Path(f"{path}@8x32")], None)


def test_traceml_without_the_wait_for_input(tmp_path: Path) -> None:
    average = {"input_wait_ms": None, "step_time_ms": None, "traced_step_time_ms": 200.0}
    path = written(tmp_path, json.dumps(summary(4, **average)), "final_summary.json")
    table = read_measured([Path(f"{path}@4x32")], None)
    assert table.rows[0].step_time_s == 0.2
    assert "without the wait for input" in table.notes[0]


def test_without_steps_there_is_nothing(tmp_path: Path) -> None:
    path = written(tmp_path, json.dumps(summary(4, step_time_ms=None)), "final_summary.json")
    assert "step_time_ms" in refusal(read_measured, [Path(f"{path}@4x32")], None)


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"log_history": 3}', '{"log_history": [], "global_step": 0}']
)
def test_other_json_is_refused_in_a_line(tmp_path: Path, text: str) -> None:
    path = written(tmp_path, text, "trainer_state.json")
    assert str(path) in refusal(read_measured, [path], None)

"""The command ``predict``, and ``report`` of a CSV file, as a user meets them."""

from __future__ import annotations

import csv
import json
import re
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from typer.testing import CliRunner

from raybench import study as command_line
from raybench.errors import RequestError
from raybench.machine import environment as environments
from raybench.records.requests import Configuration
from raybench.records.store import ResultsDirectory
from raybench.spec.knobs import Setting
from tests.support.logs import nccl_log, trainer_state
from tests.support.planted import FakeRunner, Noise, StepCosts
from tests.unit.studies import grid, study
from tests.unit.sweeps import swept

HEADER = "nodes,world_size,batch_size,step_time_s"
GOOD = [
    f"{nodes},{nodes * each},{batch},{0.001 + batch * 1e-5 + (0.002 * nodes if nodes * each > 1 else 0)}"
    for nodes, each in ((1, 1), (1, 2), (1, 4), (2, 4), (4, 4))
    for batch in (100, 1000)
]


def written(folder: Path, rows: list[str] = GOOD, name: str = "mine.csv", header: str = HEADER) -> Path:
    path = folder / name
    path.write_text("\n".join([header, *rows]) + "\n", encoding="utf-8")
    return path


def typed(*words: str | Path) -> Result:
    return CliRunner().invoke(command_line.app, [*map(str, words)])


def answer(*words: str | Path) -> str:
    done = typed(*words)
    assert done.exit_code == 0, done.exception or done.output
    return done.output


def refused(*words: str | Path) -> str:
    done = typed(*words)
    assert isinstance(done.exception, RequestError), done.exception or done.output
    assert 1 <= len(done.exception.problems) <= 6
    return str(done.exception)


def in_words(text: str) -> str:
    return " ".join(text.split())


def test_a_row_for_each_batch_and_world_size(tmp_path: Path) -> None:
    out = answer("predict", written(tmp_path), "--world-sizes", "32,64", "--devices-per-node", "4")
    rows = re.findall(r"^ +(\d+)/(\d+) +([\d,]+) +\S+ \[", out, re.MULTILINE)
    assert rows == [("32", "8", "100"), ("64", "16", "100"), ("32", "8", "1,000"), ("64", "16", "1,000")]
    assert "each further device brought at batch 100: " in in_words(out)
    assert not re.search(r"\x1b", out)
    assert max(map(len, out.splitlines())) <= 100


def test_the_columns_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "predicted.csv"
    source = written(tmp_path)
    out = answer(
        "predict",
        source,
        "--world-sizes",
        "32,100000",
        "--devices-per-node",
        "4",
        "--output",
        path,
        "--price-per-device-hour",
        "2",
    )
    assert out.rstrip().endswith("predicted.csv")
    with path.open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert ",".join(rows[0]) == (
        "model,nodes,world_size,batch_size,step_time_s,step_time_low_s,step_time_high_s,naive_step_time_s,"
        "efficiency,cost,refused,how"
    )
    assert [(row["model"], row["nodes"], row["world_size"], row["batch_size"]) for row in rows] == [
        ("mine", "8", "32", "100"),
        ("mine", "25000", "100000", "100"),
        ("mine", "8", "32", "1000"),
        ("mine", "25000", "100000", "1000"),
    ]
    near, far = rows[0], rows[1]
    step_s = float(near["step_time_s"])
    assert float(near["step_time_low_s"]) < step_s < float(near["step_time_high_s"])
    assert float(near["cost"]) == pytest.approx(1e6 / (3200 / step_s) / 3600 * 32 * 2, rel=1e-6)
    assert near["refused"] == ""
    assert far["step_time_s"] == far["efficiency"] == far["cost"] == ""
    assert "8 times" in far["refused"]
    assert float(far["naive_step_time_s"]) == pytest.approx(0.010)
    before = path.read_bytes()
    assert "nothing is overwritten" in refused("predict", source, "--output", path)
    assert path.read_bytes() == before


def test_the_next_doublings_are_asked_for_by_default(tmp_path: Path) -> None:
    out = answer("predict", written(tmp_path))
    assert re.findall(r"^ +(\d+)/\d+ +100 ", out, re.MULTILINE) == ["32", "64", "128"]


def test_costs_of_a_run(tmp_path: Path) -> None:
    out = in_words(
        answer(
            "predict",
            written(tmp_path),
            "--world-sizes",
            "32",
            "--devices-per-node",
            "4",
            "--epochs",
            "90",
            "--samples-per-epoch",
            "1281167",
            "--price-per-device-hour",
            "1.5",
        )
    )
    assert "A run is 90 epochs: steps alone." in out
    assert re.search(r"run, min +cost", out)
    quiet = answer("predict", written(tmp_path), "--epochs", "2", "--samples-per-epoch", "9", "--quiet")
    assert "devices/" not in quiet


def test_refusals_are_answers_with_their_reason(tmp_path: Path) -> None:
    done = typed("predict", written(tmp_path, ["1,1,256,0.0076", "1,2,256,0.0414"]))
    assert done.exit_code == 0
    out = in_words(done.output)
    assert "refused at 4, 8, 16 devices" in out
    assert "measured: 2 devices at batch 256: 0.37x, efficiency 18%" in out


def test_every_model_has_its_table(tmp_path: Path) -> None:
    rows = [f"{row},{model}" for model in ("small", "large") for row in GOOD]
    out = answer("predict", written(tmp_path, rows, header=f"{HEADER},model"), "--world-sizes", "32")
    assert "small: weak scaling" in out
    assert "large: weak scaling" in out


def test_a_global_batch(tmp_path: Path) -> None:
    times = {1: 0.132, 2: 0.249, 4: 2.366, 8: 5.947}
    rows = [f"1,{size},2048,{time_s}" for size, time_s in times.items()]
    out = in_words(
        answer(
            "predict", written(tmp_path, rows), "--scaling", "strong", "--world-sizes", "16", "--nodes", "1"
        )
    )
    assert "strong scaling" in out
    assert "8 devices at global batch 2,048: 0.02x, efficiency 0.3%" in out


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["--world-sizes", "16,x"], "--world-sizes: numbers of devices, each once"),
        (["--world-sizes", "all"], '16,32,64 (received "all")'),
        (["--world-sizes", "1000000000"], 'at most 1,000,000, as 16,32,64 (received "1000000000")'),
        (["--world-sizes", "16,32", "--nodes", "4"], "--nodes: one number for each of --world-sizes, 2"),
        (["--nodes", "4"], "--nodes: goes with --world-sizes, one number for each"),
        (["--world-sizes", "16", "--nodes", "4", "--devices-per-node", "4"], "--nodes: not together"),
        (["--devices-per-node", "0"], '--devices-per-node: a whole number above 0 (received "0")'),
        (["--devices-per-node", "four"], '--devices-per-node: a whole number above 0 (received "four")'),
        (["--price-per-device-hour", "-1"], '--price-per-device-hour: a number above 0 (received "-1")'),
        (["--price-per-device-hour", "nan"], "--price-per-device-hour: a number above 0"),
        (["--samples-per-epoch", "0"], '--samples-per-epoch: a whole number above 0 (received "0")'),
        (["--epochs", "3"], "--epochs: goes with --samples-per-epoch"),
        (["--communication", "nowhere"], "no such directory"),
    ],
)
def test_a_wrong_option_is_named_with_the_value(tmp_path: Path, options: list[str], expected: str) -> None:
    assert expected in refused("predict", written(tmp_path), *options)


def test_what_is_no_source(tmp_path: Path) -> None:
    assert "no such directory or file" in refused("predict", tmp_path / "none.csv")
    assert "not a results directory" in refused("predict", tmp_path)
    (tmp_path / "broken.csv").write_text(f"{HEADER}\n1,1,32,nan\n")
    for command in ("predict", "report"):
        assert '(received "nan")' in refused(command, tmp_path / "broken.csv")


# --- a results directory


def costs(config: Configuration, setting: Setting) -> StepCosts:
    alone_s, size = 0.002 + 5e-5 * setting.batch_size, config.world_size
    return StepCosts(
        plain_s=alone_s,
        base_s=alone_s,
        contention_s=0.0002 if size > 1 else 0.0,
        exposed_s=0.001 * (size - 1) / size + 1e-4 * size if size > 1 else 0.0,
    )


def results(folder: Path, sizes: tuple[int, ...] = (1, 2, 4, 8), **fields: Any) -> Path:
    spec = study(knobs={"batch_size": [256, 32]}, **fields)
    records, _ = grid(spec, sizes, FakeRunner(costs, Noise(block=0.01, step=0.005), num_devices=8))
    with ResultsDirectory.create(folder / "results", spec, environments.capture()) as store:
        for record in records:
            store.append(record)
    return folder / "results"


@pytest.mark.promise("predict")
def test_a_results_directory_and_its_summary_say_the_same(tmp_path: Path) -> None:
    directory = results(tmp_path, cost={"price_per_device_hour": 1.5})
    options = ("--world-sizes", "16,32", "--devices-per-node", "64")
    answer("predict", directory, *options, "--output", tmp_path / "one.csv")
    answer("report", directory)
    summary = directory / "report" / "summary.csv"
    answer("predict", summary, *options, "--price-per-device-hour", "1.5", "--output", tmp_path / "other.csv")
    one, other = (
        list(csv.DictReader((tmp_path / name).read_text().splitlines())) for name in ("one.csv", "other.csv")
    )
    assert len(one) == len(other) == 4
    for mine, theirs in zip(one, other, strict=True):
        for name in ("model", "world_size", "batch_size", "refused"):
            assert mine[name] == theirs[name]
        for name in ("step_time_s", "step_time_low_s", "naive_step_time_s", "cost"):
            assert float(mine[name]) == pytest.approx(float(theirs[name]), rel=0.02), name


@pytest.mark.parametrize("sizes", [(1, 2), (1, 2, 4, 8)])
def test_the_report_of_a_results_directory_in_which_nothing_is_predicted_has_a_law(
    tmp_path: Path, sizes: tuple[int, ...]
) -> None:
    directory, most = results(tmp_path, sizes), max(sizes)
    answer("report", directory)
    text = (directory / "report" / "report.md").read_text(encoding="utf-8")
    assert f"law {2 * most} devices would train" in text
    asked = f"{2 * most},{4 * most},{8 * most}"
    assert f"To measure it as if: `--as-if {asked} --network {most}xtcp-100`" in text


def test_options_of_a_fit_are_refused_where_a_network_is_simulated(tmp_path: Path) -> None:
    for options in (
        ("--scaling", "strong"),
        ("--nodes", "2", "--world-sizes", "4"),
        ("--devices-per-node", "4"),
    ):
        found = refused("predict", results(tmp_path / options[0]), "--network", "2x1Gbit/s", *options)
        assert f"{options[0]}: excludes --network" in found


def test_a_results_directory_without_a_trial(tmp_path: Path) -> None:
    ResultsDirectory.create(tmp_path / "empty", study(), environments.capture()).close()
    found = refused("predict", tmp_path / "empty")
    assert "a complete trial of steps, not oversubscribed" in found
    assert "received 0 trials, 0 complete" in found


def test_the_report_of_a_file_says_over_what_its_speed_up_is(tmp_path: Path) -> None:
    out = in_words(answer("report", written(tmp_path, ["1,2,32,0.010", "1,8,32,0.011"])))
    assert "over the smallest world size that was measured with the same batch" in out


def test_the_network_of_a_sweep(tmp_path: Path) -> None:
    records, found = swept(world_sizes=(2, 4), message_bytes=(1024, 65536, 1 << 20))
    with ResultsDirectory.create(tmp_path / "sweep", found.sweep, environments.capture()) as store:
        for record in records:
            store.append(record)
    source = written(tmp_path)
    assert "weak scaling" in answer("predict", source, "--communication", tmp_path / "sweep")
    assert "a study, not a sweep" in refused("predict", source, "--communication", results(tmp_path))
    assert "a sweep of collectives" in refused("predict", tmp_path / "sweep")


def test_the_network_of_other_devices_is_refused(tmp_path: Path) -> None:
    records, found = swept(world_sizes=(2, 4), message_bytes=(1024, 65536, 1 << 20))
    place = records[0].request.config.model_copy(update={"device": "cuda"})
    other = {
        "named": [each.model_copy(update={"device_name": "another CPU"}) for each in records],
        "cuda": [
            each.model_copy(update={"request": each.request.model_copy(update={"config": place})})
            for each in records
        ],
    }
    for name, swept_ones in other.items():
        with ResultsDirectory.create(tmp_path / name, found.sweep, environments.capture()) as store:
            for record in swept_ones:
                store.append(record)
    source = results(tmp_path)
    by_name = refused("predict", source, "--communication", tmp_path / "named")
    assert "a sweep of the trials' devices, " in by_name
    assert "(received another CPU)" in by_name
    by_backend = refused("predict", source, "--communication", tmp_path / "cuda")
    assert "a sweep of the trials' backend, gloo (received NCCL)" in by_backend


# --- report of a file


@pytest.mark.parametrize("scaling", ["weak", "strong"])
def test_a_file_says_how_it_scales(tmp_path: Path, scaling: str) -> None:
    rows = [f"1,{size},256,{0.1 + 0.4 / size}" for size in (1, 2, 4, 8)]
    header = "nodes,world_size,batch_size,step_time_s"
    source = written(tmp_path, rows, "mine.csv", header)
    says = written(tmp_path, [f"{row},{scaling}" for row in rows], "says.csv", f"{header},scaling")
    asked = ("--world-sizes", "16", "--devices-per-node", "16")
    first = answer("predict", source, "--scaling", scaling, *asked)
    again = answer("predict", says, *asked)
    assert [line for line in first.splitlines() if "16/1" in line] == [
        line for line in again.splitlines() if "16/1" in line
    ]
    assert f"{scaling} scaling" in again
    other = "weak" if scaling == "strong" else "strong"
    assert f"--scaling: {scaling}, as the column scaling" in refused("predict", says, "--scaling", other)


def test_the_report_of_a_file_is_printed(tmp_path: Path) -> None:
    source = written(tmp_path)
    out = in_words(answer("report", source))
    assert "mine: weak scaling" in out
    assert "16 devices at batch 100: " in out
    assert list(tmp_path.iterdir()) == [source]


def test_options_of_files_are_not_for_directories(tmp_path: Path) -> None:
    assert "--scaling: of files" in refused("report", results(tmp_path), "--scaling", "weak")


def test_logs_of_nccl_tests_are_a_network(tmp_path: Path) -> None:
    """One node was measured alone: what crosses two is known from the logs, as from a sweep."""
    source = written(tmp_path, [row for row in GOOD if row.startswith("1,")])
    words = ["predict", source, "--world-sizes", "16", "--devices-per-node", "8"]
    assert "refused at 16 devices" in in_words(answer(*words))
    folder = tmp_path / "logs"
    folder.mkdir()
    for size, nodes in ((2, 1), (4, 1), (16, 2)):
        (folder / f"{size}.log").write_text(nccl_log(size, nodes))
    assert "refused" not in answer(*words, "--communication", folder)
    together = written(tmp_path, [log.read_text() for log in folder.iterdir()], "all.txt", "")
    assert "refused" not in answer(*words, "--communication", together)
    backend = refused("predict", results(tmp_path), "--communication", folder)
    assert "a sweep of the trials' backend, gloo (received NCCL)" in backend


@pytest.mark.promise("other tools")
def test_a_report_of_several_runs_of_a_trainer(tmp_path: Path) -> None:
    files = []
    for size, step_s in ((1, 0.25), (2, 0.27), (4, 0.3)):
        path = tmp_path / f"run_{size}.json"
        path.write_text(json.dumps(trainer_state(size, step_s=step_s)))
        files.append(f"{path}@{size}")
    found = answer("report", *files)
    assert "4 devices at batch 32: 3.33x, efficiency 83%" in found
    assert "8/1" in answer("predict", *files, "--world-sizes", "8", "--devices-per-node", "8")
    assert "a results directory" in refused("predict", *files, "--what-if", "batch_size=8")

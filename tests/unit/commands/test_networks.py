"""``--network``: names, files and sweeps; ``predict DIR --network``."""

from __future__ import annotations

import re
from pathlib import Path

import pandas as pd
import pytest
from typer.testing import CliRunner

from raybench import study as command_line
from raybench.commands.networks import parse_network
from raybench.commands.predict_run import swept_links
from raybench.errors import RequestError
from raybench.machine import environment as environments
from raybench.records.store import ResultsDirectory
from raybench.spec.study import Study
from tests.support.planted import FakeLink
from tests.unit.analysis.simulate.planted import trial
from tests.unit.analysis.simulate.test_as_if import with_as_if
from tests.unit.studies import study
from tests.unit.sweeps import swept

FILE = """
devices_per_node = 8
bytes_per_s = [20e9, 45e9]
latency_s = 14e-6
algorithms = ["hierarchical"]
"""


def directory(folder: Path) -> Path:
    record = trial(2.0)
    of = study(knobs={"bucket_cap_mb": [2.0]}, scaling={"world_sizes": [2]})
    with ResultsDirectory.create(folder / "results", of, environments.capture()) as store:
        store.append(record)
    return folder / "results"


def invoke(*arguments: object) -> tuple[int, str]:
    done = CliRunner().invoke(command_line.app, [str(each) for each in arguments], env={"COLUMNS": "200"})
    return done.exit_code, f"{done.output}{done.exception or ''}"


def test_a_file_has_the_fields_of_a_network(tmp_path: Path) -> None:
    path = tmp_path / "cluster.toml"
    path.write_text(FILE)
    found = parse_network(str(path))
    assert (found.name, found.devices_per_node, found.bytes_per_s) == ("cluster", 8, (20e9, 45e9))
    assert found.latency_s == (14e-6, 14e-6)


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("devices_per_node = 8", "bytes_per_s"),
        ("devices_per_node = 8\nbytes_per_s = -1", "bytes_per_s"),
        ("devices_per_node = 8\nbytes_per_s = 1e9\nspeed = 3", "speed"),
        ("devices_per_node =", "not TOML"),
    ],
)
def test_a_file_that_is_none_is_refused_with_its_field(tmp_path: Path, text: str, fault: str) -> None:
    path = tmp_path / "cluster.toml"
    path.write_text(text)
    with pytest.raises(RequestError, match=fault):
        parse_network(str(path))


@pytest.mark.parametrize("text", ["fast", "8x400Gb/s", "nowhere.toml", "8x"])
def test_what_is_no_network_says_what_there_is(text: str) -> None:
    with pytest.raises(RequestError, match=r"--network|nowhere.toml: cannot be read"):
        parse_network(text)


def test_a_sweep_is_the_network_that_it_has_timed(tmp_path: Path) -> None:
    folder = tmp_path / "sweep"
    link = FakeLink(latency_s=200e-6, bandwidth_bytes_per_s=1e9)
    asked = {"collectives": ("all_reduce",), "num_devices": 2, "num_nodes": 2, "placement": ("spread",)}
    records, results = swept(link, **asked)
    with ResultsDirectory.create(folder, results.sweep, environments.capture()) as store:
        for record in records:
            store.append(record.model_copy(update={"nodes": 2}))
    found = parse_network(str(folder))
    worst, best = found.bytes_per_s or (0.0, 0.0)
    assert worst <= 1e9 <= best
    assert found.algorithms == ("ring", "tree")
    latency_s, s_per_byte = found.lines(2)[0]  # of the ring, as it was swept
    assert latency_s == pytest.approx(200e-6, rel=0.2)
    assert s_per_byte == pytest.approx(1e-9, rel=0.1)


def test_a_sweep_through_the_adapters_of_one_node_is_what_its_links_carry_together(tmp_path: Path) -> None:
    """Of two devices each sends 2 (n - 1) / n = 1 of a message over adapters that are joined to the node."""
    folder = tmp_path / "sweep"
    link = FakeLink(latency_s=200e-6, bandwidth_bytes_per_s=1e9)
    records, results = swept(link, collectives=("all_reduce",), num_devices=2)
    through = results.sweep.model_copy(update={"loopback_nic": True})
    with ResultsDirectory.create(folder, through, environments.capture()) as store:
        for record in records:
            store.append(record)
    found = parse_network(str(folder))
    worst, best = found.bytes_per_s or (0.0, 0.0)
    assert worst <= 2e9 <= best
    assert found.devices_per_node == 2
    latency_s, s_per_byte = found.lines(8)[0]  # four such nodes
    assert latency_s == pytest.approx(8 * 100e-6, rel=0.2)
    assert s_per_byte == pytest.approx(2 * 7 / 8 / 2e9, rel=0.1)
    with pytest.raises(RequestError, match="what adapters carry is a --network"):
        swept_links(folder, [])


def test_a_study_holds_the_network_itself(tmp_path: Path) -> None:
    path = tmp_path / "cluster.toml"
    path.write_text(FILE)
    asked = {"name": "s", "workload": {"name": "mlp"}, "scaling": {"as_if": [64]}}
    by_table = Study.model_validate(asked | {"network": parse_network(str(path))})
    by_name = Study.model_validate(asked | {"network": "8x400Gbit/s"})
    assert by_table.network == parse_network(str(path))
    assert by_name.network == parse_network("8x400Gbit/s")


def test_predict_simulates_the_headline_over_a_network(tmp_path: Path) -> None:
    output = tmp_path / "more.csv"
    code, text = invoke(
        "predict", directory(tmp_path), "--network", "1x10Gbit/s", "--world-sizes", "4,8", "--output", output
    )
    assert code == 0, text
    assert "Simulated: from the gradients and buckets of 2 devices" in " ".join(text.split())
    table = pd.read_csv(output)
    assert list(table.world_size) == [4, 8]
    assert set(table.how) == {"simulated"}
    assert (table.step_time_low_s < table.step_time_s).all()


def test_what_has_most_of_the_width_is_named_with_the_measurement_that_narrows_it(tmp_path: Path) -> None:
    code, text = invoke("predict", directory(tmp_path), "--network", "1x200Mbit/s", "--world-sizes", "8")
    assert code == 0, text
    words = " ".join(text.split())
    assert "of the interval's variance is from the network's bandwidth: `communication` on two nodes" in words


def test_predict_names_what_it_lacks_and_a_node_that_is_too_small(tmp_path: Path) -> None:
    results = directory(tmp_path)
    inside = invoke("predict", results, "--network", "8x10Gbit/s", "--world-sizes", "4,8,64")[1]
    assert "--network: a network that says what joins 4, 8 devices (received 8x10Gbit/s" in inside
    too_small = invoke("predict", results, "--network", "4xnvlink-4", "--world-sizes", "8")[1]
    assert "a network that says what joins 8 devices (received 4xnvlink-4, nodes of 4 devices)" in too_small
    table = tmp_path / "steps.csv"
    table.write_text("nodes,world_size,batch_size,step_time_s\n1,1,8,0.1\n1,2,8,0.1\n")
    assert "--network: a results directory" in invoke("predict", table, "--network", "1x10Gbit/s")[1]


def test_without_a_network_predict_says_what_one_must_bring(tmp_path: Path) -> None:
    code, text = invoke("predict", directory(tmp_path), "--world-sizes", "8,64")
    assert code == 0, text
    words = " ".join(text.split())
    table = text[text.index("What the network must bring") : text.index("Ceiling and its speed-up")]
    assert re.findall(r"^ +(\d+) ", table, re.MULTILINE) == ["8", "64"]
    assert "step time = refused" not in words  # it was all that its table said
    assert re.search(r"A free network lets 8 devices train [78]\.\d\d times as fast as one\.", words)
    assert re.search(r"Coming near that takes [\d.]+ to [\d.]+ Gbit/s a node\.", words)
    strong = invoke("predict", directory(tmp_path / "strong"), "--world-sizes", "8", "--scaling", "strong")[1]
    assert "A free network" not in strong  # which is of the batch of each device


def test_a_report_has_what_was_measured_as_if(tmp_path: Path) -> None:
    from raybench.records.requests import AsIf

    of = study(knobs={"bucket_cap_mb": [2.0]}, scaling={"world_sizes": [2]})
    with ResultsDirectory.create(tmp_path / "results", of, environments.capture()) as store:
        store.append(with_as_if(trial(2.0), AsIf(world_size=16)))
    code, text = invoke("report", tmp_path / "results")
    assert code == 0, text
    assert "16 devices joined like these would train" in " ".join(text.split())
    table = pd.read_csv(tmp_path / "results" / "report" / "predictions.csv")
    assert list(zip(table.world_size, table.how, strict=True)) == [(16, "as_if")]
    assert (tmp_path / "results" / "report" / "plots" / "required.png").exists()

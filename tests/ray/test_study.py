"""The default study's smoke size, from the shell prompt to the report and on again, and watched meanwhile.

Before it ends its workers it waits for whoever looks at them (``tests.ray.seen_first``): so every gauge of a
trial is scraped, however short the study is.
"""

from __future__ import annotations

import csv
import json
import math
import re
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import pytest

from raybench.analysis.labels import label, task_words
from raybench.analysis.scaling import Fit
from raybench.commands.progress import trial_values
from raybench.launch.metrics import LEFT, METRICS, STAGE_PLANNED, TRIALS, Metric
from raybench.records.record import TrialRecord
from raybench.records.store import ResultsDirectory
from tests.conftest import ROOT
from tests.ray.scraping import DASHBOARD, GRAFANA, Series, asked, exported, running_prometheus, scrape, shown
from tests.ray.seen_first import MEASURED, SEEN
from tests.support.commands import Command
from tests.support.planted.faults import until

pytestmark = pytest.mark.timeout(900)
ANSWER = re.compile(r"2 devices (?:train|are slower) ")
STUDY = "default"
PARTS = ("ideal_s", "contention_s", "wrapper_s", "skew_s", "exposed_communication_s")
REPORT_S = 6  # Ray's interval, 10 s by default; what is not set for two of them is forgotten
OF_TRIALS = [metric for metric in METRICS if "setting" in metric.tags]
# a stage of this study may be over before Ray has reported once
OF_STAGES = {exported(STAGE_PLANNED), exported(LEFT)}
VARIABLES = {
    "RAY_AUTH_MODE": "disabled",  # by default Ray's dashboard asks for a token where there is one
    "RAY_metrics_report_interval_ms": str(1000 * REPORT_S),
}


class SeenFirst(Command):
    program = ("-m", "tests.ray.seen_first")


@dataclass
class Smoke:
    """The command, what it left, and what was seen of it while its workers ran."""

    command: Command
    directory: Path
    listening: list[tuple[str, str]]  # processes, and the address of each
    left: list[str]  # processes, when the command was over
    expected: dict[str, Series]  # each gauge of a trial, by its exported name
    scraped: dict[str, Series]  # at the end, long after the first trial
    dashboard: dict[str, str]  # what it answered, by path
    there: dict[str, bool]  # each path below /tmp/ray that docs/clusters.md names
    queries: dict[str, list[dict[str, Any]]] | None  # what Prometheus answers; None: there is none here

    def rows(self) -> list[dict[str, str]]:
        with (self.directory / "report" / "summary.csv").open() as file:
            return list(csv.DictReader(file))

    def records(self) -> list[TrialRecord]:
        with ResultsDirectory.open_readonly(self.directory) as store:
            return list(store.records())


@pytest.fixture(scope="module")
def smoke() -> Iterator[Smoke]:
    with tempfile.TemporaryDirectory(prefix="rb-", dir="/tmp", ignore_cleanup_errors=True) as temporary:
        folder = Path(temporary)
        ray_folder, directory = folder / "ray", folder / "out"
        with running_prometheus(folder) as prometheus:
            began = time.time()
            command = SeenFirst(
                # it waits for what is looked at in its midst
                *("scaling", "--smoke", "--output", "out", "--time-budget", "20m"),
                folder=folder,
                variables={**VARIABLES, "RAY_TMPDIR": str(folder)},
            )
            assert until(lambda: (folder / MEASURED).exists() or command.process.poll() is not None, 400)
            assert command.process.poll() is None, command.output
            with ResultsDirectory.open_readonly(directory) as store:
                study, records = store.study(), list(store.records())
                spreads = store.environment().spreads
            expected: dict[str, Series] = {exported(TRIALS): {(STUDY, "complete"): float(len(records))}}
            for number, record in enumerate(records, 1):
                tags = (str(record.config.world_size), record.config.setting.strategy)
                so_far = Fit(records[:number], known=spreads).scaling(record)
                for metric, value in trial_values(record, so_far).items():
                    series = expected.setdefault(exported(metric), {})
                    series[STUDY, *tags, label(study, record.config)] = value
            # what was set long ago is there too: Ray forgets a gauge that is not set again and again
            first_ended = datetime.fromisoformat(records[0].started_at).timestamp() + records[0].wall_time_s
            until(lambda: time.time() > first_ended + 3 * REPORT_S, 3 * REPORT_S)
            until(lambda: not missing(expected, scrape(ray_folder)), 60)
            until(lambda: len(shown(command.output)) == len(DASHBOARD), 30)
            listening = command.listening()
            named = re.findall(r"/tmp/ray/([\w./]+)", (ROOT / "docs" / "clusters.md").read_text())
            seen = Smoke(
                command,
                directory,
                listening,
                [],
                expected,
                scrape(ray_folder),
                shown(command.output),
                {path: (ray_folder / path).exists() for path in named},
                answers(prometheus, time.time() - began) if prometheus else None,
            )
            (folder / SEEN).touch()
            assert command.wait() == 0, command.output
            seen.left = command.survivors(60)
        yield seen


def missing(expected: dict[str, Series], scraped: dict[str, Series]) -> list[str]:
    """The values that were not scraped."""
    return [
        f"{name} {tags}: {value}, scraped {scraped.get(name, {}).get(tags)}"
        for name, series in expected.items()
        for tags, value in series.items()
        if not math.isclose(scraped.get(name, {}).get(tags, math.nan), value, rel_tol=1e-9)
    ]


def answers(prometheus: str, since_s: float) -> dict[str, list[dict[str, Any]]]:
    """Of every query of the dashboard's panels, and of each gauge by its name."""
    dashboard = json.loads((GRAFANA / "raybench.json").read_text())
    queries = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    queries = [each for each in queries if not any(name in each for name in OF_STAGES)]
    queries += [exported(metric) for metric in OF_TRIALS]
    plain = {each: each.replace("$study", STUDY).replace("$__range", "10m") for each in queries}
    return {each: asked(prometheus, query, since_s) for each, query in plain.items()}


@pytest.mark.promise("default study")
def test_goes_through_every_step_and_ends_with_the_answer(smoke: Smoke) -> None:
    found = smoke.rows()
    assert {row["state"] for row in found} == {"complete"}
    assert {"search", "scaling"} <= {row["role"] for row in found}
    assert {row["world_size"] for row in found if row["role"] == "scaling"} == {"1", "2"}
    # the default and three suggestions, whichever of them is the best and so on a curve
    assert len([row for row in found if row["world_size"] == "2"]) == 4
    assert ANSWER.search(smoke.command.output)
    assert "Report:  out/report/report.html" in smoke.command.output


def test_step_time_is_the_sum_of_its_parts(smoke: Smoke) -> None:
    taken_apart = [row for row in smoke.rows() if row["role"] == "scaling" and row["world_size"] == "2"]
    assert taken_apart
    for row in taken_apart:
        total = sum(float(row[part]) for part in PARTS)
        assert math.isclose(total, float(row["step_time_s"]), rel_tol=1e-6)
        assert float(row["efficiency_low"]) < float(row["efficiency"]) < float(row["efficiency_high"])
        assert float(row["flops_per_s"]) > 0
        assert int(row["gradient_bytes"]) == 4 * (256 * 256 * 2 + 256 * 128 + 256 * 2 + 128)
        # that they are what they are called is shown on planted ones, by tests/ranks
        assert all(float(row[f"{name}_s"]) > 0 for name in ("forward", "backward", "optimizer"))


@pytest.mark.promise("every file")
def test_writes_every_file_of_the_contract(smoke: Smoke) -> None:
    directory = smoke.directory
    names = {str(path.relative_to(directory)) for path in directory.rglob("*") if path.is_file()}
    assert {"study.toml", "environment.json", "trials.jsonl", "optuna.log"} <= names
    report = {"report.html", "report.md", "summary.csv", "summary.json", "summary.tex", "diagnosis.md"}
    assert {f"report/{name}" for name in report} <= names
    assert {"report/plots/scaling.png", "report/plots/waterfall.svg"} <= names
    assert {f"samples/{record.trial_id}.parquet" for record in smoke.records()} <= names
    environment = json.loads((directory / "environment.json").read_text())
    assert environment["packages"]["torch"]


def test_piped_output_is_plain_lines(smoke: Smoke) -> None:
    output = smoke.command.output
    assert "\x1b" not in output
    assert "\r" not in output
    assert "(raylet)" not in output
    assert "Ray dashboard: http" in output


@pytest.mark.promise("loopback")
def test_nobody_on_the_network_can_reach_it(smoke: Smoke) -> None:
    """All of Ray, and gloo, are on the loopback interface; torch's store of addresses can be told none."""
    open_ = [name for name, place in smoke.listening if not ip_address(place).is_loopback]
    assert len(smoke.listening) > len(open_)  # sockets are seen at all
    assert [name for name in open_ if "RayTrainWorker" not in name] == []
    assert len(open_) <= 1


@pytest.mark.promise("nothing left")
def test_no_process_is_left(smoke: Smoke) -> None:
    assert smoke.left == []


@pytest.mark.promise("gauges")
def test_what_is_scraped_from_ray_is_what_was_recorded(smoke: Smoke) -> None:
    assert set(smoke.expected) == {exported(TRIALS), *(exported(metric) for metric in OF_TRIALS)}
    assert missing(smoke.expected, smoke.scraped) == []
    assert "no metrics are sent" not in (smoke.directory / "ray.log").read_text(errors="replace")


def test_what_the_readme_hands_to_grafana_is_there(smoke: Smoke) -> None:
    folder = "session_latest/metrics/grafana"
    assert smoke.there == {f"{folder}/dashboards/": True, f"{folder}/grafana.ini": True}


@pytest.mark.promise("dashboard")
def test_the_dashboard_shows_the_study_by_name(smoke: Smoke) -> None:
    """Job, actor, Train's run and each trial."""
    jobs, tasks, actors, runs = (smoke.dashboard[path] for path in DASHBOARD)
    assert [job["metadata"]["job_name"] for job in json.loads(jobs) if job["type"] == "DRIVER"][:1] == [STUDY]
    assert f'"{STUDY}-group-1-mailbox"' in actors
    assert {run["name"] for run in json.loads(runs)["train_runs"]} >= {f"{STUDY}-group-1"}
    states = {task["name"]: task["state"] for task in json.loads(tasks)["data"]["result"]["result"]}
    for record in smoke.records()[:2]:
        assert states[task_words(record.request)] == "FINISHED"


def test_prometheus_answers_every_query_of_the_dashboard(smoke: Smoke) -> None:
    if smoke.queries is None:
        pytest.skip("no program `prometheus` (Debian: apt-get install prometheus)")
    for query, found in smoke.queries.items():
        assert found, query


def test_prometheus_has_the_values_of_the_records(smoke: Smoke) -> None:
    if smoke.queries is None:
        pytest.skip("no program `prometheus` (Debian: apt-get install prometheus)")
    for metric in OF_TRIALS:
        newest = {
            _tags(metric, each): float(each["values"][-1][1]) for each in smoke.queries[exported(metric)]
        }
        of_metric = {exported(metric): smoke.expected[exported(metric)]}
        assert missing(of_metric, {exported(metric): newest}) == []


def _tags(metric: Metric, series: dict[str, Any]) -> tuple[str, ...]:
    return tuple(series["metric"][tag] for tag in metric.tags)


@pytest.mark.promise("resume")
def test_resume_measures_nothing_twice(smoke: Smoke) -> None:
    directory = smoke.directory
    before = (directory / "trials.jsonl").read_text()
    again = Command("scaling", "--resume", "--output", "out", folder=directory.parent, log="again.txt")
    assert again.wait() == 0, again.output
    after = (directory / "trials.jsonl").read_text()
    assert after.startswith(before)
    new = [json.loads(line) for line in after[len(before) :].splitlines()]
    known = {json.loads(line)["trial_id"] for line in before.splitlines()}
    assert not {record["trial_id"] for record in new} & known
    assert new == []
    assert ANSWER.search(again.output)

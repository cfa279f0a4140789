"""raybench's gauges while a study runs, scraped by hand and by a real Prometheus: what its records say."""

from __future__ import annotations

import json
import re
import shutil
import socket
import subprocess
import tempfile
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from raybench.analysis.estimates.efficiency import scaling
from raybench.analysis.labels import task_words
from raybench.commands.gauges import trial_values
from raybench.launch.metrics import METRICS, TRIALS, Metric
from raybench.records.record import TrialRecord
from raybench.records.store import ResultsDirectory
from tests.conftest import ROOT
from tests.support import faulty
from tests.support.commands import Command
from tests.support.faulty_study import write_study

GRAFANA = ROOT / "deploy" / "grafana"
DISCOVERY = "prom_metrics_service_discovery.json"
BATCHES = [8, faulty.OUT_OF_MEMORY, 9, 10, 11, 12]
REPORT_S = 6  # Ray's interval, 10 s by default; what is not set for two of them is forgotten
LATE_S = REPORT_S + 2  # until what is set is surely there to be scraped
STUDY = "faulty"
DASHBOARD = ("api/jobs/", "api/v0/tasks?limit=1000", "api/v0/actors", "api/train/v2/runs/v1")
Series = dict[tuple[str, ...], set[float]]  # every value that was seen, by the values of its tags


@dataclass
class Watched:
    """What was seen of one study from outside, and what it recorded."""

    records: list[TrialRecord]
    scraped: dict[str, Series]  # by exported name
    newest: dict[str, Series]  # of the last time that Ray answered
    newest_at: float
    prometheus: str | None  # its address
    began: float
    ended: float
    there: dict[str, bool]  # each path below /tmp/ray that the README names
    dashboard: dict[str, str]  # what Ray's dashboard was told last, by path

    def in_time(self) -> list[TrialRecord]:
        """All but the last trials, which may have ended with Ray."""
        found = [each for each in self.records if ended_at(each) + LATE_S < self.newest_at]
        assert len(found) >= 4, "a study too short to be watched"
        return found

    def expected(self, metric: Metric) -> dict[tuple[str, ...], float]:
        """The metric's values of the records, by the tags that tell them apart."""
        values = {}
        for record in filter(lambda each: each.steps, self.in_time()):
            value = trial_values(record, scaling(record, self.records)).get(metric)
            if value is not None:
                config = record.config
                tags = (STUDY, str(config.world_size), config.setting.strategy, f"batch {config.batch_size}")
                values[tags] = value
        return values


@pytest.fixture(scope="module")
def watched() -> Iterator[Watched]:
    """A study of half a minute on a local cluster whose temporary directory is its own."""
    with (
        tempfile.TemporaryDirectory(prefix="rb-", dir="/tmp", ignore_cleanup_errors=True) as temporary,
        pytest.MonkeyPatch.context() as patch,
    ):
        folder = Path(temporary)
        patch.setenv("RAY_TMPDIR", str(folder))
        patch.setenv("RAY_AUTH_MODE", "disabled")  # by default Ray's dashboard asks for a token
        patch.setenv("RAY_metrics_report_interval_ms", str(1000 * REPORT_S))
        write_study(folder, BATCHES, "[1, 2]", workload="seconds = 0.03")
        with running_prometheus(folder) as prometheus:
            began, newest_at = time.time(), 0.0
            scraped, newest, dashboard = dict[str, Series](), dict[str, Series](), dict[str, str]()
            command = Command("scaling", f"{STUDY}.toml", "--output", "out", folder=folder)
            while command.process.poll() is None:
                assert time.time() < began + 250, command.output
                found = scrape(folder / "ray" / DISCOVERY)
                if found:
                    newest, newest_at = found, time.time()
                for name, series in found.items():
                    for tags, values in series.items():
                        scraped.setdefault(name, {}).setdefault(tags, set()).update(values)
                if " samples/s" in command.output:
                    dashboard |= shown(command.output)
                time.sleep(0.3)
            ended = time.time()
            assert command.wait() == 0, command.output
            assert "no metrics are sent" not in (folder / "out" / "ray.log").read_text(errors="replace")
            with ResultsDirectory.open_readonly(folder / "out") as store:
                records = store.records()
            named = re.findall(r"/tmp/ray/([\w./]+)", (ROOT / "README.md").read_text())
            there = {path: (folder / "ray" / path).exists() for path in named}
            yield Watched(
                list(records), scraped, newest, newest_at, prometheus, began, ended, there, dashboard
            )


def ended_at(record: TrialRecord) -> float:
    """When a trial was done, in s of the clock; its beginning is known to the second."""
    return datetime.fromisoformat(record.started_at).timestamp() + 1 + record.wall_time_s


def scrape(discovery: Path) -> dict[str, Series]:
    """What every node says that Ray's file names, as Prometheus asks them; nothing where none answers yet."""
    tags = {metric.exported: metric.tags for metric in METRICS}
    found: dict[str, Series] = {}
    try:
        targets = [target for each in json.loads(discovery.read_text()) for target in each["targets"]]
    except (OSError, ValueError):
        return found
    pages = [page for target in targets if (page := page_of(target))]
    for family in (family for page in pages for family in text_string_to_metric_families(page)):
        if family.name not in tags:
            continue
        assert family.type == "gauge"
        for sample in family.samples:
            named = tuple(sample.labels[tag] for tag in tags[family.name])
            found.setdefault(family.name, {}).setdefault(named, set()).add(sample.value)
    return found


def page_of(target: str) -> str:
    """A node's metrics; nothing where it does not answer."""
    try:
        return fetch(f"http://{target}/metrics").decode()
    except OSError:
        return ""


def fetch(address: str) -> bytes:
    with urllib.request.urlopen(address, timeout=5) as answer:
        return bytes(answer.read())


def shown(output: str) -> dict[str, str]:
    """What Ray's dashboard has of jobs, tasks, actors and Train's runs; what does not answer is left out."""
    (address,) = re.findall(r"Ray dashboard: (http://\S+)", output)
    found = {}
    for path in DASHBOARD:
        try:
            found[path] = fetch(f"{address}/{path}").decode()
        except OSError:
            continue
    return found


@contextmanager
def running_prometheus(folder: Path) -> Iterator[str | None]:
    """The address of a Prometheus with the file of deploy/, or None where there is no such program."""
    program = shutil.which("prometheus")
    if program is None:
        yield None
        return
    given = (GRAFANA / "prometheus.yml").read_text()
    assert "/tmp/ray/" in given
    config = folder / "prometheus.yml"
    config.write_text(given.replace("/tmp/ray/", f"{folder}/ray/").replace(": 10s", ": 1s"))
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        place = f"127.0.0.1:{taken.getsockname()[1]}"
    with (folder / "prometheus.log").open("w") as log:
        server = subprocess.Popen(
            [
                program,
                f"--config.file={config}",
                f"--storage.tsdb.path={folder / 'series'}",
                f"--web.listen-address={place}",
            ],
            stdout=log,
            stderr=subprocess.STDOUT,
        )
    try:
        deadline = time.monotonic() + 30
        while True:
            assert server.poll() is None, (folder / "prometheus.log").read_text()
            assert time.monotonic() < deadline, "Prometheus does not answer"
            try:
                fetch(f"http://{place}/-/ready")
            except (urllib.error.URLError, OSError):
                time.sleep(0.2)
            else:
                break
        yield f"http://{place}"
    finally:
        server.terminate()
        server.wait(20)


def test_what_is_scraped_from_ray_is_what_was_recorded(watched: Watched) -> None:
    assert set(watched.scraped) == {metric.exported for metric in METRICS}
    for metric in METRICS:
        if "setting" not in metric.tags:
            continue
        seen = watched.scraped[metric.exported]
        for tags, value in watched.expected(metric).items():
            assert any(each == pytest.approx(value, rel=1e-9) for each in seen[tags]), (metric.name, tags)


def test_what_was_set_long_ago_is_still_there_at_the_end(watched: Watched) -> None:
    """Ray forgets a gauge that is not set again and again."""
    for metric in METRICS:
        if "setting" in metric.tags:
            assert set(watched.expected(metric)) <= set(watched.newest[metric.exported]), metric.name
    first = watched.in_time()[0]
    assert watched.newest_at - ended_at(first) > 2 * REPORT_S + LATE_S


def test_what_the_readme_hands_to_grafana_is_there(watched: Watched) -> None:
    folder = "session_latest/metrics/grafana"
    assert watched.there == {f"{folder}/dashboards/": True, f"{folder}/grafana.ini": True}


def test_the_dashboard_shows_the_study_by_name(watched: Watched) -> None:
    """Job, actor, Train's run and each trial, as far as it was asked before the command ended."""
    jobs, tasks, actors, runs = (watched.dashboard[path] for path in DASHBOARD)
    assert [job["metadata"]["job_name"] for job in json.loads(jobs) if job["type"] == "DRIVER"][:1] == [STUDY]
    assert f'"{STUDY}-group-1-mailbox"' in actors
    assert {run["name"] for run in json.loads(runs)["train_runs"]} >= {f"{STUDY}-group-1"}
    states = {task["name"]: task["state"] for task in json.loads(tasks)["data"]["result"]["result"]}
    for record in watched.in_time()[:2]:
        assert states[task_words(record.request)] == "FINISHED"


def test_failed_trials_are_counted_beside_complete_ones(watched: Watched) -> None:
    states = [record.state for record in watched.records]
    assert states.count("oom") == 1
    seen = watched.scraped[TRIALS.exported]
    assert seen[STUDY, "oom"] == {1}
    counted = seen[STUDY, "complete"]
    assert counted <= set(range(1, states.count("complete") + 1))
    assert max(counted) >= sum(record.state == "complete" for record in watched.in_time())


def test_prometheus_answers_every_query_of_the_dashboard(watched: Watched) -> None:
    if watched.prometheus is None:
        pytest.skip("no program `prometheus` (Debian: apt-get install prometheus)")
    dashboard: dict[str, Any] = json.loads((GRAFANA / "raybench.json").read_text())
    for panel in dashboard["panels"]:
        for target in panel["targets"]:
            found = asked(watched, target["expr"].replace("$study", STUDY).replace("$__range", "10m"))
            assert found, f"{panel['title']}: {target['expr']}"
    (label,) = (each for each in dashboard["templating"]["list"] if each["name"] == "study")
    name, tag = label["definition"].removeprefix("label_values(").rstrip(")").split(", ")
    assert {series["metric"][tag] for series in asked(watched, name)} == {STUDY}


def test_prometheus_has_the_values_of_the_records(watched: Watched) -> None:
    if watched.prometheus is None:
        pytest.skip("no program `prometheus` (Debian: apt-get install prometheus)")
    for metric in METRICS:
        if "setting" not in metric.tags:
            continue
        kept = {
            tuple(series["metric"][tag] for tag in metric.tags): {float(v) for _, v in series["values"]}
            for series in asked(watched, metric.exported)
        }
        for tags, value in watched.expected(metric).items():
            assert any(each == pytest.approx(value, rel=1e-9) for each in kept[tags]), (metric.name, tags)


def asked(watched: Watched, query: str) -> list[dict[str, Any]]:
    """The series that a query gives over the time of the study, second by second."""
    parameters = {"query": query, "start": watched.began, "end": watched.ended, "step": 1}
    answer = json.loads(
        fetch(f"{watched.prometheus}/api/v1/query_range?{urllib.parse.urlencode(parameters)}")
    )
    assert answer["status"] == "success", answer
    return list(answer["data"]["result"])

"""What can be seen of a running study from outside: raybench's gauges, Ray's dashboard, a real Prometheus."""

from __future__ import annotations

import json
import re
import shutil
import socket
import subprocess
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from raybench.launch.metrics import METRICS, Metric
from tests.conftest import ROOT
from tests.support.planted.faults import until

GRAFANA = ROOT / "deploy" / "grafana"
DISCOVERY = "prom_metrics_service_discovery.json"
DASHBOARD = ("api/jobs/", "api/v0/tasks?limit=1000", "api/v0/actors", "api/train/v2/runs/v1")
Series = dict[tuple[str, ...], float]  # by the values of the metric's tags


def exported(metric: Metric) -> str:
    """The name as it is scraped: Ray puts its own before every one."""
    return f"ray_{metric.name}"


def scrape(ray_folder: Path) -> dict[str, Series]:
    """What every node says that Ray's file names, as Prometheus asks them; nothing where none answers yet."""
    tags = {exported(metric): metric.tags for metric in METRICS}
    found: dict[str, Series] = {}
    try:
        discovery = json.loads((ray_folder / DISCOVERY).read_text())
        pages = [fetch(f"http://{each}/metrics").decode() for node in discovery for each in node["targets"]]
    except (OSError, ValueError):
        return found
    for family in (family for page in pages for family in text_string_to_metric_families(page)):
        if family.name not in tags:
            continue
        assert family.type == "gauge"
        for sample in family.samples:
            named = tuple(sample.labels[tag] for tag in tags[family.name])
            found.setdefault(family.name, {})[named] = sample.value
    return found


def fetch(address: str) -> bytes:
    with urllib.request.urlopen(address, timeout=10) as answer:
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
    """The address of a Prometheus with the file of deploy/, or None where there is no such program.

    ``folder`` is that of Ray's temporary files.
    """
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
        assert until(lambda: _is_ready(place), 60), (folder / "prometheus.log").read_text()
        yield f"http://{place}"
    finally:
        server.terminate()
        server.wait(60)


def _is_ready(place: str) -> bool:
    try:
        fetch(f"http://{place}/-/ready")
    except OSError:
        return False
    return True


def asked(prometheus: str, query: str, since_s: float) -> list[dict[str, Any]]:
    """The series that a query gives over the last ``since_s``, second by second."""
    now = time.time()
    parameters = {"query": query, "start": now - since_s, "end": now, "step": 1}
    answer = json.loads(fetch(f"{prometheus}/api/v1/query_range?{urllib.parse.urlencode(parameters)}"))
    assert answer["status"] == "success", answer
    return list(answer["data"]["result"])

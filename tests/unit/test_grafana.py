"""deploy/grafana: the dashboard's queries are about gauges that there are, and it is what Grafana imports."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from raybench.launch.metrics import METRICS
from tests.conftest import ROOT

FOLDER = ROOT / "deploy" / "grafana"
DASHBOARD: dict[str, Any] = json.loads((FOLDER / "raybench.json").read_text(encoding="utf-8"))
PANELS: list[dict[str, Any]] = DASHBOARD["panels"]
VARIABLES = {each["name"]: each for each in DASHBOARD["templating"]["list"]}
PROMETHEUS = {"type": "prometheus", "uid": "${datasource}"}
BUILT_IN = {"__range"}  # Grafana's own
COLUMNS = 24  # of its grid


def expressions() -> Iterator[str]:
    """Every query of the panels, and the one that lists studies."""
    for panel in PANELS:
        for target in panel["targets"]:
            yield target["expr"]
    yield VARIABLES["study"]["query"]["query"]


def test_every_gauge_is_shown_and_every_one_shown_is_there() -> None:
    named = {name for text in expressions() for name in re.findall(r"\bray_\w+", text)}
    assert named == {f"ray_{metric.name}" for metric in METRICS}


def test_queries_select_and_group_by_tags_that_the_gauge_has() -> None:
    tags = {f"ray_{metric.name}": set(metric.tags) for metric in METRICS}
    for panel in PANELS:
        for target in panel["targets"]:
            (name,) = re.findall(r"\bray_\w+", target["expr"])
            selected = set(re.findall(r"(\w+)=~?\"", target["expr"]))
            (grouped,) = re.findall(r"by \(([\w, ]+)\)", target["expr"])
            shown = set(re.findall(r"{{(\w+)}}", target.get("legendFormat", "")))
            assert selected == {"study"}
            assert set(grouped.split(", ")) == tags[name], "series of several drivers, one of each tag"
            assert shown <= tags[name]


def test_variables_are_defined() -> None:
    used = {name for text in expressions() for name in re.findall(r"\$\{?(\w+)", text)}
    assert used <= {*VARIABLES, *BUILT_IN}
    assert VARIABLES["datasource"] | {"type": "datasource", "query": "prometheus"} == VARIABLES["datasource"]
    assert VARIABLES["study"]["definition"] == VARIABLES["study"]["query"]["query"]
    assert list(VARIABLES) == ["datasource", "study"], "the source comes before what is asked of it"


def test_the_dashboard_has_what_grafana_asks() -> None:
    assert DASHBOARD["title"] == "raybench"
    assert re.fullmatch(r"[A-Za-z0-9_-]{1,40}", DASHBOARD["uid"])
    assert DASHBOARD["schemaVersion"] >= 36, "data sources by uid"
    assert "id" not in DASHBOARD, "of one server's database"
    assert len({panel["id"] for panel in PANELS}) == len(PANELS)
    for panel in PANELS:
        assert panel["title"]
        assert panel["description"]
        assert panel["type"] in ("stat", "timeseries", "table")
        assert panel["datasource"] == PROMETHEUS
        assert panel["fieldConfig"].keys() == {"defaults", "overrides"}
        assert len({target["refId"] for target in panel["targets"]}) == len(panel["targets"])
        for target in panel["targets"]:
            assert target["datasource"] == PROMETHEUS
            assert target["instant"] is not target["range"]


def test_panels_lie_beside_each_other() -> None:
    taken: set[tuple[int, int]] = set()
    for panel in PANELS:
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= COLUMNS
        cells = {(place["x"] + x, place["y"] + y) for x in range(place["w"]) for y in range(place["h"])}
        assert not taken & cells, panel["title"]
        taken |= cells


@pytest.mark.parametrize("name", ["Value #Efficiency", "Value #Throughput", "Value #Step", "Value #Exposed"])
def test_the_table_renames_columns_that_it_has(name: str) -> None:
    (table,) = (panel for panel in PANELS if panel["type"] == "table")
    organize = next(each for each in table["transformations"] if each["id"] == "organize")
    assert name in organize["options"]["renameByName"]
    assert name.removeprefix("Value #") in {target["refId"] for target in table["targets"]}


def test_prometheus_finds_ray_by_the_file_that_ray_keeps() -> None:
    given = yaml.safe_load((FOLDER / "prometheus.yml").read_text(encoding="utf-8"))
    (job,) = given["scrape_configs"]
    assert job["file_sd_configs"][0]["files"] == ["/tmp/ray/prom_metrics_service_discovery.json"]

"""The head of a cluster that was joined loses its power or its link, or all nodes theirs, in mid-trial."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cluster.conftest import nodes_of, run_until_broken, write_study

pytestmark = pytest.mark.timeout(900)

WITHIN_S = 120.0  # a silent head is waited for 20 s; the rest is the report, on busy cores


def case(runner: str, lost: str, *, long: bool = True) -> object:
    return pytest.param(runner, lost, id=f"{runner}-{lost}", marks=[pytest.mark.long] if long else [])


@pytest.mark.promise("lost head")
@pytest.mark.parametrize(
    ("runner", "lost"),
    [
        case("group", "power", long=False),
        case("group", "switch"),
        case("tune", "power"),
        case("tune", "link"),
    ],
)
def test_it_ends_with_a_report_and_nothing_recorded_is_lost(
    can_have_nodes: None, tmp_path: Path, runner: str, lost: str
) -> None:
    write_study(tmp_path, "waiting.toml", batches=[8, 16, 24, 32])
    with nodes_of(3) as nodes:
        head, drivers = nodes.nodes[:2]

        def breaks() -> None:
            if lost == "power":
                nodes.end(head)
            elif lost == "link":
                nodes.set_link(head, up=False)
            else:
                nodes.cut_switch()

        study = run_until_broken(
            nodes, tmp_path, "--runner", runner, on=drivers, breaks=breaks, within_s=WITHIN_S
        )
    assert study.code == 3, study.words
    assert f"the head of the cluster, {nodes.address}, has not answered for" in study.words
    asked = "--runner tune " if runner == "tune" else ""
    assert f"scaling {asked}--resume --output out" in study.words
    assert (tmp_path / "out" / "report" / "report.html").exists()

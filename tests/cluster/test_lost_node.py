"""A node that loses its power, or its link, in mid-trial."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cluster.conftest import nodes_of, run_on, run_until_broken, write_study
from tests.support.local_nodes import LocalNodes

pytestmark = pytest.mark.timeout(1200)

WITHIN_S = {"group": 240.0, "tune": 400.0}


@pytest.mark.promise("lost node")
@pytest.mark.parametrize(
    ("runner", "lost"),
    [
        ("group", "power"),
        pytest.param("group", "link", marks=pytest.mark.long),
        pytest.param("tune", "power", marks=pytest.mark.long),
    ],
)
def test_its_trial_fails_and_the_others_go_on_where_they_fit(
    can_have_nodes: None, tmp_path: Path, runner: str, lost: str
) -> None:
    write_study(tmp_path, "waiting.toml", batches=[8, 16, 32])
    with nodes_of(2) as nodes:

        def breaks() -> None:
            if lost == "power":
                nodes.end(nodes.nodes[1])
            else:
                nodes.set_link(nodes.nodes[1], up=False)

        study = run_until_broken(
            nodes, tmp_path, "--runner", runner, breaks=breaks, within_s=WITHIN_S[runner], records=2
        )
        if runner == "tune":  # of the long run: tests/unit/commands has what is said of fewer nodes
            _goes_on_with_one_node(nodes, tmp_path)
    assert study.code == 0, study.words
    once = [record["request"] | record for record in study.records() if not record["request"].get("visit")]
    ended = [(record["config"]["world_size"], record["state"]) for record in once]
    # the default on two devices and on one, then a suggestion on two, in which the node is lost
    assert ended == [
        (2, "complete"),
        (1, "complete"),
        (2, "crashed"),
        (1, "complete"),
        (1, "complete"),
    ]
    assert "not measured, since nodes are gone: a part of the " in study.words
    assert "waiting up to 3 s for 2 places" in study.words
    summary = json.loads((tmp_path / "out" / "report" / "summary.json").read_text())
    # by which a script finds it: the exit code is 0
    assert "not reached" in {each["name"] for each in summary["findings"]}


def _goes_on_with_one_node(nodes: LocalNodes, folder: Path) -> None:
    """What is known is not measured a second time, what still does not fit is named again."""
    before = _trial_ids(folder)
    code, output = run_on(nodes, folder, "scaling", "--resume", "--output", "out")
    words = " ".join(output.split())
    assert code == 0, output
    assert "goes on with 1 of 2 nodes: what does not fit on them is left out" in words
    assert "not measured, since nodes are gone: a part of the " in words
    assert _trial_ids(folder) == before


def _trial_ids(folder: Path) -> list[str]:
    """Of the first visit of each setting."""
    lines = (folder / "out" / "trials.jsonl").read_text().splitlines()
    records = [json.loads(line) for line in lines]
    return [record["trial_id"] for record in records if not record["request"].get("visit")]

"""A node that loses its power under one of several trials of Tune's."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cluster.conftest import nodes_of, run_until_broken, write_study

pytestmark = [pytest.mark.long, pytest.mark.timeout(1200)]

BATCHES = [8, 16, 24, 32, 40, 48]


def test_the_trials_beside_it_are_kept_and_the_rest_is_measured_on_the_other_nodes(
    can_have_nodes: None, tmp_path: Path
) -> None:
    write_study(tmp_path, "waiting.toml", batches=BATCHES, sizes="[1]")
    with nodes_of(3) as nodes:
        lost = nodes.nodes[2]
        study = run_until_broken(
            nodes,
            tmp_path,
            *("--runner", "tune"),
            breaks=lambda: nodes.end(lost),
            within_s=400,
            records=3,
        )
    assert study.code == 0, study.words
    records = study.records()
    curve = [record for record in records if record["request"]["role"] == "scaling"]
    once = [record for record in curve if not record["request"].get("visit")]
    assert sorted(each["request"]["config"]["setting"]["batch_size"] for each in once) == BATCHES
    states = [record["state"] for record in once]
    assert set(states) <= {"complete", "crashed"}
    assert states.count("crashed") <= 1  # the one that was on the node, where its workers had begun
    after = [record for record in records[study.before.count("\n") :] if record["state"] == "complete"]
    assert after
    assert all(record["hostnames"] != [lost.name] for record in after)

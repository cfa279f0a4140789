"""A cluster that does not start, or does not answer."""

from __future__ import annotations

from types import SimpleNamespace
from typing import NoReturn

import pytest
import ray

from raybench.errors import Interrupted, RequestError
from raybench.launch.cluster import TOO_LATE, Cluster
from raybench.machine.host import WorkerNeeds


@pytest.fixture
def _variables_put_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    for name in ("RAY_ENABLE_AUTO_CONNECT", "RAY_TRAIN_V2_ENABLED", "RAY_TRAIN_ENABLE_STATE_TRACKING"):
        monkeypatch.setenv(name, "1")
    monkeypatch.setenv("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")


@pytest.mark.usefixtures("_variables_put_back")
@pytest.mark.parametrize(
    ("error", "raised"),
    [
        (Exception(f"The current node {TOO_LATE}."), RequestError),  # as Ray raises it
        (Interrupted("SIGTERM"), Interrupted),
    ],
)
def test_a_local_cluster_that_does_not_start_is_a_line(
    monkeypatch: pytest.MonkeyPatch, error: Exception, raised: type[Exception]
) -> None:
    def init(**arguments: object) -> NoReturn:
        raise error

    monkeypatch.setattr(ray, "init", init)
    cluster = Cluster()
    with pytest.raises(raised) as caught:
        cluster.connect()
    cluster.close()
    if isinstance(caught.value, RequestError):
        assert caught.value.problems == (
            "Ray did not start here: The current node timed out during startup.",
        )


@pytest.mark.usefixtures("_variables_put_back")
def test_a_node_that_busy_cores_kept_from_starting_is_started_once_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tries, told = list[object](), list[str]()

    def init(**arguments: object) -> SimpleNamespace:
        tries.append(arguments["address"])
        if len(tries) == 1:
            raise Exception(TOO_LATE)
        return SimpleNamespace(dashboard_url="127.0.0.1:8265")

    monkeypatch.setattr(ray, "init", init)
    monkeypatch.setattr(ray, "shutdown", lambda: None)
    cluster = Cluster()
    cluster.prepare(WorkerNeeds("cpu", 1), tell=told.append)
    cluster.connect()
    cluster.close()
    assert tries == ["local", "local"]
    assert told == ["Ray did not start within 30 s: once more", "Ray dashboard: http://127.0.0.1:8265"]

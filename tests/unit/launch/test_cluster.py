"""A cluster that does not start, or does not answer."""

from __future__ import annotations

from typing import NoReturn

import pytest
import ray

from raybench.errors import Interrupted, RequestError
from raybench.launch.cluster import Cluster


@pytest.mark.parametrize(
    ("error", "raised"),
    [
        (Exception("The current node timed out during startup."), RequestError),  # as Ray raises it
        (Interrupted("SIGTERM"), Interrupted),
    ],
)
def test_a_local_cluster_that_does_not_start_is_a_line(
    monkeypatch: pytest.MonkeyPatch, error: Exception, raised: type[Exception]
) -> None:
    def init(**arguments: object) -> NoReturn:
        raise error

    monkeypatch.setattr(ray, "init", init)
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    for name in ("RAY_ENABLE_AUTO_CONNECT", "RAY_TRAIN_V2_ENABLED", "RAY_TRAIN_ENABLE_STATE_TRACKING"):
        monkeypatch.setenv(name, "1")  # is put back afterwards
    monkeypatch.setenv("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    cluster = Cluster()
    with pytest.raises(raised) as caught:
        cluster.connect()
    cluster.close()
    if isinstance(caught.value, RequestError):
        assert caught.value.problems == (
            "Ray did not start here: The current node timed out during startup.",
        )

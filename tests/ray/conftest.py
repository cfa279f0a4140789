"""One head serves all tests that join a cluster: it has two cores, takes jobs, and asks for a token."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from tests.support.ray_head import free_port, running_head, wait_for_port

VARIABLES = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": "a" * 32}


@dataclass(frozen=True)
class Head:
    address: str
    dashboard_port: int
    variables: dict[str, str]  # of whoever joins it


@pytest.fixture(scope="session")
def head() -> Iterator[Head]:
    dashboard, agent = free_port(), free_port()
    ports = ("--dashboard-port", str(dashboard), "--dashboard-agent-listen-port", str(agent))
    with running_head("--include-dashboard", "true", *ports, variables=VARIABLES) as (address, process):
        for port in (dashboard, agent):
            wait_for_port(process, port)
        yield Head(address, dashboard, VARIABLES)

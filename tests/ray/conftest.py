"""One head serves all tests that join a cluster: it has two cores, takes jobs, and asks for a token."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest

from tests.support.ray_head import free_port, running_head, wait_for_port

TOKEN = "a" * 32


@dataclass(frozen=True)
class Head:
    address: str
    dashboard_port: int
    variables: dict[str, str] = field(  # of whoever joins it
        default_factory=lambda: {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": TOKEN}
    )


@pytest.fixture(scope="session")
def head() -> Iterator[Head]:
    dashboard, agent = free_port(), free_port()
    ports = ("--dashboard-port", str(dashboard), "--dashboard-agent-listen-port", str(agent))
    variables = Head("", 0).variables
    with running_head("--include-dashboard", "true", *ports, variables=variables) as (address, process):
        for port in (dashboard, agent):
            wait_for_port(process, port)
        yield Head(address, dashboard)

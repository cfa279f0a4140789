"""Small models, and ways between devices that are worse than they could be."""

from __future__ import annotations

import pytest

from raybench.analysis import analyse
from raybench.analysis.collectives.link import Link, LinkKey
from raybench.analysis.collectives.messages import SweptPlace
from raybench.analysis.diagnosis.case import Around
from raybench.analysis.diagnosis.findings import Finding, FindingName
from raybench.analysis.estimates.statistics import Estimate
from raybench.machine.environment import Environment
from raybench.records.record import TrialRecord
from raybench.spec import Setting
from raybench.testing import QUIET, StepCosts
from tests.unit.studies import measured, study

NAMES = (
    FindingName.COMMUNICATION_BOUND,
    FindingName.LATENCY_BOUND,
    FindingName.BANDWIDTH_BOUND,
    FindingName.SLOW_PATH,
)


def transfers(record: TrialRecord, around: Around, device: str = "cpu") -> Finding:
    """The one finding on the record's transfers."""
    found = analyse(study(resources={"device": device}), [record], around=around).findings
    (finding,) = (each for each in found if each.name in NAMES)
    return finding


def environment(**variables: str) -> Environment:
    return Environment(
        hostname="a", os="b", kernel="c", cpu_model="d", cores=8, usable_cores=8, memory_bytes=1, python="3",
        variables=variables,
    )  # fmt: skip


def test_a_model_of_one_small_bucket_is_latency_bound_and_no_bucket_size_cures_it() -> None:
    """40 KiB in one message of 2 ms, of which the sweep says that 1.8 are latency."""
    costs = StepCosts(plain_s=0.004, exposed_s=0.002, replay_s=0.002, gradient_bytes=40 << 10)
    latency, rate = Estimate(1.8e-3, 1.7e-3, 1.9e-3, 10), Estimate(1e9, 0.9e9, 1.1e9, 10)
    place = SweptPlace(2, "pack", 1, "gloo")
    link = Link("all_reduce", place, latency, rate, (1.8e-3, 1e-9), ())
    finding = transfers(measured(costs, QUIET), Around({LinkKey("all_reduce", 2, 1): link}))
    assert finding.name is FindingName.LATENCY_BOUND
    assert finding.values["latency_share"] == pytest.approx(0.9, rel=0.02)
    assert "a larger batch or accumulation" in finding.next_step
    assert "bucket_cap_mb" not in (finding.change or {})


def between_nodes(**variables: str) -> Finding:
    """Two ranks on two nodes, whose transfers take a third of the step."""
    record = measured(StepCosts(plain_s=0.010, exposed_s=0.005, replay_s=0.006), QUIET)
    there = record.model_copy(update={"nodes": 2, "hostnames": ("a", "b")})
    return transfers(there, Around(environment=environment(**variables)))


@pytest.mark.parametrize("interface", ["lo", "docker0", "=veth12"])
def test_an_interface_that_is_no_network_between_nodes_is_named(interface: str) -> None:
    finding = between_nodes(GLOO_SOCKET_IFNAME=interface)
    assert finding.name is FindingName.SLOW_PATH
    assert f"GLOO_SOCKET_IFNAME={interface.lstrip('=')} is no network between nodes" in finding.evidence
    assert "raybench doctor" in finding.next_step


def test_a_network_between_nodes_is_not() -> None:
    assert between_nodes(GLOO_SOCKET_IFNAME="eth0").name is FindingName.COMMUNICATION_BOUND
    assert between_nodes().name is FindingName.COMMUNICATION_BOUND


@pytest.mark.parametrize(("nodes", "named"), [(1, False), (2, True)])
def test_a_fast_path_that_is_switched_off_is_named_where_it_would_be_taken(nodes: int, named: bool) -> None:
    costs = StepCosts(plain_s=0.010, exposed_s=0.005, replay_s=0.006)
    record = measured(costs, QUIET, device="cuda", setting=Setting())
    there = record.model_copy(update={"nodes": nodes, "hostnames": ("a", "b")[:nodes] * (2 // nodes)})
    finding = transfers(there, Around(environment=environment(NCCL_IB_DISABLE="1")), "cuda")
    assert (finding.name is FindingName.SLOW_PATH) is named
    assert (finding.change == {"NCCL_IB_DISABLE": "0"}) is named

"""What compute waits for, and what is proposed against it."""

from __future__ import annotations

import pytest

from raybench.analysis.findings.case import Around
from raybench.analysis.findings.finding import Finding, FindingName, Reason
from raybench.machine.environment import Environment
from raybench.report.finding_texts import evidence, next_step
from raybench.spec.knobs import Setting
from tests.support.analysis import analyse
from tests.support.planted import QUIET, StepCosts
from tests.unit.studies import MACHINE, measured, study


def waiting(workers: int, cores: int | None) -> Finding:
    """The finding on two ranks that wait 5 of 20 ms for real input, on one host of so many cores."""
    machine = cores and Environment(
        hostname="a", os="b", kernel="c", cpu_model="d", cores=cores, usable_cores=cores, memory_bytes=1,
        python="3",
    )  # fmt: skip
    workload = {"name": "vision", "input": "real"}
    record = measured(
        StepCosts(plain_s=0.020, data_s=0.005), QUIET, workload=workload, setting=Setting(workers=workers)
    )
    around = Around(environment=machine or None)
    found = analyse(study(workload=workload), [record], around=around).diagnosis
    return next(each for each in found if each.name is FindingName.DATA_BOUND)


@pytest.mark.parametrize(
    ("workers", "cores", "proposed"),
    [(0, 8, 2), (2, 8, 4), (3, 8, 4), (2, None, 4), (12, 64, 16), (12, None, 16), (0, 2, 1)],
)
def test_more_loader_processes_are_proposed_while_there_are_cores(
    workers: int, cores: int | None, proposed: int
) -> None:
    finding = waiting(workers, cores)
    assert finding.change == {"workers": proposed}
    assert next_step(finding) == f"set workers to {proposed}"


@pytest.mark.parametrize(("workers", "cores"), [(16, 64), (24, 64), (16, None), (24, None), (4, 8), (1, 2)])
def test_no_more_of_them_are_proposed_where_there_are_none(workers: int, cores: int | None) -> None:
    finding = waiting(workers, cores)
    assert finding.change is finding.predicted is None
    assert finding.reason is Reason.LOADER


def test_loader_processes_fit_on_each_node() -> None:
    """Three ranks have 12 cores on one node, and one has 4 on the other: four cores each."""
    workload = {"name": "vision", "input": "real"}
    record = measured(
        StepCosts(plain_s=0.020, data_s=0.005),
        QUIET,
        workload=workload,
        world_size=4,
        setting=Setting(workers=2),
    ).model_copy(update={"hostnames": ("a", "a", "a", "b"), "nodes": 2})
    nodes = tuple(
        MACHINE.model_copy(update={"hostname": name, "usable_cores": cores})
        for name, cores in (("a", 12), ("b", 4))
    )
    around = Around(environment=MACHINE.model_copy(update={"nodes": nodes}))
    found = analyse(study(workload=workload), [record], around=around).diagnosis
    finding = next(each for each in found if each.name is FindingName.DATA_BOUND)
    assert finding.change == {"workers": 4}


@pytest.mark.parametrize(
    ("fused_ms", "is_found"),
    [(1.0, True), (8.0, False), (12.0, False)],  # of 10 ms: saved are 7%, 2% and less than none of the step
)
def test_an_optimizer_that_a_fused_one_would_beat_is_to_be_fused(fused_ms: float, is_found: bool) -> None:
    record = measured(StepCosts(plain_s=0.120), QUIET)
    assert record.steps is not None
    told = {"update_s": 0.010, "fused_update_s": fused_ms * 1e-3}
    record = record.model_copy(update={"result": record.steps.model_copy(update=told)})
    every = {each.name: each for each in analyse(study(), [record]).diagnosis}
    assert (FindingName.UNFUSED_OPTIMIZER in every) is is_found
    if is_found:
        finding = every[FindingName.UNFUSED_OPTIMIZER]
        assert finding.change == {"optimizer_kernels": "fused"}
        assert finding.explains is not None
        assert finding.explains.value == pytest.approx(0.08 * 0.120 * 0.9, rel=0.05)
        assert evidence(finding) == "the optimizer takes 9.60 ms, and a fused one 960 µs"


@pytest.mark.parametrize(
    ("device", "has_views", "reason"),
    [
        ("cpu", False, Reason.VIEWS),
        ("cpu", True, None),
        ("cuda", False, Reason.VIEWS),
        ("cuda", True, Reason.COPIES),
    ],
)
def test_views_are_the_fix_of_a_costly_wrapper_and_then_on_gpus_one_copy_for_all(
    device: str, has_views: bool, reason: Reason | None
) -> None:
    setting = Setting(gradient_as_bucket_view=has_views)
    record = measured(StepCosts(plain_s=0.020, wrapper_s=0.005), QUIET, setting=setting, device=device)
    found = analyse(study(resources={"device": device}), [record]).diagnosis
    finding = next(each for each in found if each.name is FindingName.COSTLY_WRAPPER)
    assert finding.reason is reason
    views = {"gradient_as_bucket_view": True}
    assert finding.change == (views if reason is Reason.VIEWS else {"batch_size": 64})

"""What all layers share: where the real data is, which tests may skip, what a run may start."""

from __future__ import annotations

import os
import sys
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support import budget

ROOT = Path(__file__).parent.parent
os.environ.setdefault("HF_HUB_OFFLINE", "1")  # a test downloads nothing, wherever it runs
os.environ.pop("COLUMNS", None)  # piped, a line is as wide as it is for most

BUSY = "the machine is busy"  # by a record of others' load, where it is measured exactly
# Where ``RAYBENCH_CI`` is set any other skip is a failure: what vanishes there vanishes unseen.
MAY_SKIP = (
    "needs a GPU",
    "no Chromium",
    "no program `prometheus`",
    "no pdflatex",
    "no control group of one's own",
    BUSY,
)


@pytest.fixture(scope="session")
def data_dir() -> Path:
    """The real data sets, or a skip with the reason."""
    for place in (os.environ.get("RAYBENCH_DATA"), ROOT.parent / "shared" / "data"):
        if place and Path(place).is_dir():
            return Path(place)
    pytest.skip("no real data: set RAYBENCH_DATA to a directory with the data sets")


@pytest.fixture(autouse=True)
def nothing_goes_on() -> Iterator[None]:
    """A command that a failed test no longer waits for would take the cores from all tests after it."""
    yield
    if (commands := sys.modules.get("tests.support.commands")) is not None:
        commands.Command.end_all()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A skip for a reason that is not in ``MAY_SKIP`` fails, where ``RAYBENCH_CI`` is set."""
    report = yield
    _must_run(report)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """The same of a whole module."""
    report = yield
    _must_run(report)
    return report


def _must_run(report: pytest.TestReport | pytest.CollectReport) -> None:
    if report.skipped and not hasattr(report, "wasxfail") and os.environ.get("RAYBENCH_CI"):
        reason = str(report.longrepr[2]) if isinstance(report.longrepr, tuple) else str(report.longrepr)
        if not any(each in reason for each in MAY_SKIP):
            report.outcome = "failed"
            report.longrepr = f"{report.nodeid} was skipped here, where it must run: {reason}"


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """What was started, and by whom."""
    if lines := budget.counted():
        terminalreporter.section("starts")
        for line in lines:
            terminalreporter.line(line)
    for kind in budget.exceeded():
        terminalreporter.line(f"FAILED: more {kind} than tests/support/budget.py has", red=True)


def pytest_sessionstart(session: pytest.Session) -> None:
    """The sessions of one run share a budget."""
    if not hasattr(session.config, "workerinput"):
        budget.load()


def pytest_sessionfinish(session: pytest.Session) -> None:
    """More starts than the budget has fail the session; one of several hands its starts to that of all."""
    if (handed := getattr(session.config, "workeroutput", None)) is not None:
        handed["starts"] = {kind: dict(by) for kind, by in budget.TAKEN.items()}
        return
    budget.save()
    if budget.exceeded():  # whatever failed besides
        session.exitstatus = budget.EXCEEDED


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """As ``--dist=loadfile``, a file to a session; all files that start Ray to one and the same.

    Two clusters that start at once on two cores take more time than one after the other, and Ray gives a node
    30 s.
    """
    from xdist.scheduler import LoadFileScheduling

    class OneClusterAtATime(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            starts_ray = nodeid.startswith(("tests/ray/", "tests/cluster/"))
            return "clusters" if starts_ray else super()._split_scope(nodeid)

    return OneClusterAtATime(config, log)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any, error: object) -> None:
    """The starts of one of several sessions that ran at once."""
    budget.add(getattr(node, "workeroutput", {}).get("starts", {}))

"""optuna-dashboard shows a search, as a browser draws it: objectives, efficiency, knobs, failures and why."""

from __future__ import annotations

import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from raybench.analysis.scaling import scaling
from raybench.plan.search import Search
from raybench.records.record import State, TrialRecord
from tests.unit.plan.test_search import mixed_runner, plan, searched

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome")
DRAWN_MS = 20_000  # of the page's own time, after which it has drawn what it asked the server for
SERVER = "from optuna_dashboard._cli import main; main()"


@pytest.fixture(scope="module")
def browser() -> str:
    for name in BROWSERS:
        found = shutil.which(name)
        if found:
            return found
    pytest.skip("no Chromium (Debian: apt-get install chromium)")


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, list[TrialRecord]]]:
    """The address of a dashboard on the journal of a search with failures, and the search's records."""
    planned = plan(name="a-search", search={"method": "optuna", "trials": 9})
    journal = tmp_path_factory.mktemp("search") / "optuna.log"
    found = searched(Search(planned, journal), planned, 9, mixed_runner())
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = int(taken.getsockname()[1])
    server = subprocess.Popen(
        [sys.executable, "-c", SERVER, str(journal), "--port", str(port), "--server", "wsgiref"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        deadline = time.monotonic() + 60
        while True:
            assert server.poll() is None, "the dashboard has ended"
            assert time.monotonic() < deadline, "the dashboard does not answer"
            try:
                socket.create_connection(("127.0.0.1", port), timeout=1).close()
            except OSError:
                time.sleep(0.2)
            else:
                break
        yield f"http://127.0.0.1:{port}/dashboard", [record for _, record in found]
    finally:
        server.terminate()
        server.wait(20)


def page(browser: str, address: str, folder: Path) -> str:
    """The page as it is drawn: its document, and `page.png` in ``folder``, for whoever wants to look."""
    common = [
        browser, "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
        f"--user-data-dir={folder / 'profile'}", "--window-size=1600,1400",
        f"--virtual-time-budget={DRAWN_MS}",
    ]  # fmt: skip
    picture = folder / "page.png"
    done = subprocess.run(
        [*common, f"--screenshot={picture}", "--dump-dom", address],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert picture.stat().st_size > 10_000
    return done.stdout


def number(records: list[TrialRecord], state: State) -> int:
    """The first suggestion that ended so."""
    return next(place for place, record in enumerate(records) if record.state == state)


def test_the_study_has_its_objective_its_knobs_and_all_states(
    browser: str, shown: tuple[str, list[TrialRecord]], tmp_path: Path
) -> None:
    address, _ = shown
    drawn = page(browser, f"{address}/studies/0", tmp_path)
    for words in ("throughput (samples/s)", "Best Trial", "Complete", "Fail", "Pruned"):
        assert words in drawn, words
    for knob in ("batch_size", "bucket_cap_mb", "precision"):  # their importance is drawn
        assert knob in drawn, knob
    assert "world_size" in drawn


def test_a_trial_has_its_efficiency_its_throughput_and_its_knobs(
    browser: str, shown: tuple[str, list[TrialRecord]], tmp_path: Path
) -> None:
    address, records = shown
    place = number(records, "complete")
    drawn = page(browser, f"{address}/studies/0/trials?numbers={place}", tmp_path)
    estimate, setting = scaling(records[place]), records[place].config.setting
    assert estimate.efficiency is not None
    assert f"efficiency {estimate.efficiency.value}" in drawn
    assert f"efficiency_low {estimate.efficiency.low}" in drawn
    assert f"throughput_samples_per_s {estimate.throughput_samples_per_s.value}" in drawn
    assert f"batch_size {setting.batch_size}" in drawn
    assert f"precision {setting.precision}" in drawn


def test_a_failed_trial_says_why(browser: str, shown: tuple[str, list[TrialRecord]], tmp_path: Path) -> None:
    address, records = shown
    drawn = page(browser, f"{address}/studies/0/trials?numbers={number(records, 'crashed')}", tmp_path)
    assert "reason bad bucket" in drawn
    assert "state crashed" in drawn
    assert "efficiency" not in drawn

"""Studies from Python, in a notebook's kernel: the shipped one, an interrupt, and what goes on after it."""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Iterator
from pathlib import Path
from queue import Empty
from typing import Any

import pytest
from jupyter_client.blocking.client import BlockingKernelClient
from jupyter_client.manager import KernelManager, start_new_kernel

from raybench.records.store import ResultsDirectory
from tests.conftest import ROOT
from tests.studies.briefly import FIELDS, IN_A_KERNEL
from tests.studies.test_readme import block
from tests.support import budget

NOTEBOOK = ROOT / "notebooks" / "reading_a_study.ipynb"
LIMIT_S = 300.0
SMALLER = FIELDS | {
    "workload.model": "squeezenet1_1",
    "knobs.batch_size": 4,
    "workload.samples": 16,
    "workload.test_samples": 8,
}
STUDY = 'factory="my_model:build", knobs={"batch_size": [256, 32]}, device="cpu", output="out"'


class Kernel:
    """Cells, executed as a notebook does, and what they showed."""

    def __init__(self, manager: KernelManager, client: BlockingKernelClient) -> None:
        self.manager, self._client = manager, client
        self.shown: list[tuple[str, str]] = []  # stdout, stderr, or a type of content; the text

    def start(self, cell: str) -> str:
        self.shown = []
        return str(self._client.execute(cell))

    def finish(self, message: str, until: str | None = None) -> dict[str, Any]:
        """The reply of a cell; with ``until`` as soon as that was printed."""
        deadline = time.monotonic() + LIMIT_S
        while time.monotonic() < deadline:
            if until is not None and until in self.printed:
                return {}
            try:
                heard = self._client.get_iopub_msg(timeout=1.0)
            except Empty:
                continue
            if heard["parent_header"].get("msg_id") != message:
                continue
            kind, content = heard["msg_type"], heard["content"]
            if kind == "stream":
                self.shown.append((content["name"], content["text"]))
            elif kind in ("execute_result", "display_data"):
                self.shown += content["data"].items()
            elif kind == "error":
                return dict(content)
            elif kind == "status" and content["execution_state"] == "idle":
                return {}
        raise AssertionError(f"not done after {LIMIT_S:g} s: {self.printed}")

    def run(self, cell: str) -> str:
        """What a cell showed as text; it must not raise."""
        error = self.finish(self.start(cell))
        assert not error, "\n".join(error["traceback"])
        return self.printed

    @property
    def printed(self) -> str:
        return "".join(text for kind, text in self.shown if kind in ("stdout", "text/plain"))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the kernel works."""
    return tmp_path_factory.mktemp("kernel")


@pytest.fixture(scope="module")
def kernel(folder: Path, data_dir: Path) -> Iterator[Kernel]:
    """One for all cells: it imports torch, and so does what its ranks are forked from."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    environment |= {"RAYBENCH_DATA": str(data_dir), "RAYBENCH_OUTPUT": str(folder / "results")}
    environment.pop("RAY_ADDRESS", None)
    environment.pop("PYTEST_CURRENT_TEST", None)  # which changes what a kernel's streams are
    manager, client = start_new_kernel(env=environment, cwd=str(folder))
    budget.took(budget.STUDIES, 2)
    try:
        kernel = Kernel(manager, client)
        kernel.run(IN_A_KERNEL)
        yield kernel
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)


@pytest.mark.promise("notebook")
def test_the_notebook_runs_its_study_and_reads_it(kernel: Kernel, folder: Path) -> None:
    """From its first cell to its last."""
    kernel.run(f"usual = raybench.run; raybench.run = functools.partial(usual, set={SMALLER!r})")
    shown = list[tuple[str, str]]()
    for cell in json.loads(NOTEBOOK.read_text())["cells"]:
        if cell["cell_type"] == "code":
            kernel.run("".join(cell["source"]))
            shown += kernel.shown
    kernel.run("raybench.run = usual")
    texts = [text for kind, text in shown if kind in ("stdout", "stderr", "text/plain")]
    printed = "\n".join(texts)
    assert "\x1b" not in printed
    assert (folder / "results" / "report" / "report.html").is_file()
    assert re.search(r"2 devices (?:train|are slower) ", printed)
    assert "strategy dp exists on GPUs only" in printed
    table = next(text for text in texts if "Efficiency of a step" in text)
    for mode in ("Single", "DP", "DDP", "FSDP"):
        assert mode in table
    assert re.search(r"DDP +[\d.]+ s +[\d.]+x +\d+% \[\d+%, \d+%\]", table), table
    assert "speed-up" in printed
    assert "MiB buckets" in printed  # what if
    assert len([kind for kind, _ in shown if kind == "image/png"]) == 1
    (page,) = [text for kind, text in shown if kind == "text/html" and "raybench-results" in text]
    assert "Scaling" in page


def test_a_kernels_interrupt_keeps_what_was_measured_and_the_kernel_goes_on(
    kernel: Kernel, folder: Path
) -> None:
    (folder / "my_model.py").write_text(block("python", "class TinyRegression"))
    message = kernel.start(f"results = raybench.run({STUDY})")
    kernel.finish(message, until=" samples/s")
    kernel.manager.interrupt_kernel()
    error = kernel.finish(message)
    assert error["ename"] == "KeyboardInterrupt"
    assert "Measuring 4 trials at world sizes 1, 2\n" in kernel.printed
    assert "SIGINT: the workers are gone, what was measured is kept" in kernel.printed
    assert "\x1b" not in kernel.printed
    assert {kind for kind, _ in kernel.shown} == {"stdout"}
    assert (folder / "out" / "report" / "report.html").is_file()
    with ResultsDirectory.open_readonly(folder / "out") as store:
        measured = len(store.latest())

    # the same kernel: signals are Python's again, and a thread without any goes on
    kernel.run("assert signal.getsignal(signal.SIGINT) is signal.default_int_handler")
    kernel.run('again = {"output": "out", "resume": True, "quiet": True}')
    kernel.run(
        "goes_on = threading.Thread(target=raybench.run, kwargs=again); goes_on.start(); goes_on.join()"
    )
    shown = kernel.run('results = raybench.open("out")\nresults')
    assert "<raybench.Results of out>" in shown
    assert '<div id="raybench-results">' in dict(kernel.shown)["text/html"]
    with ResultsDirectory.open_readonly(folder / "out") as store:
        assert len(store.latest()) > measured
    kernel.run("assert set(results.points.state) == {'complete'}, results.answer")

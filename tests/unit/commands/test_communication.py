"""``communication`` as it is typed, and its results directory with the other commands."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from raybench.commands import measuring
from raybench.commands.options import Options, parse_sizes
from raybench.commands.runs import sweep_of
from raybench.errors import RequestError, StoreError
from raybench.launch.cluster import Cluster
from raybench.machine.environment import capture
from raybench.machine.host import Resources
from raybench.records.store import ResultsDirectory
from raybench.study import app
from tests.support.planted import FakeRunner
from tests.unit.studies import study
from tests.unit.sweeps import KIB, STEADY

SIZES = "1KiB,64KiB,1MiB"


@pytest.fixture(autouse=True)
def two_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted times in the place of processes, on two devices."""
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setattr(Cluster, "resources", lambda self, needs: Resources("cpu", 2, "a CPU"))
    monkeypatch.setattr(Cluster, "prepare", lambda self, needs, **_: None)
    fake = FakeRunner(noise=STEADY, num_devices=2)
    monkeypatch.setattr(measuring, "runner_class", lambda kind: lambda *_, **__: fake)


def typed(*arguments: str | Path):  # type: ignore[no-untyped-def]
    return CliRunner().invoke(app, ["communication", "--device", "cpu", *map(str, arguments)])


@pytest.mark.parametrize(
    ("text", "sizes"),
    [
        ("1024", [1024]),
        ("4B,1KiB,1.5KiB,2MB", [4, 1024, 1536, 2_000_000]),
        ("1KiB,...,8KiB", [1024, 2048, 4096, 8192]),
        ("1KiB,4KiB,...,256KiB", [KIB * 4**power for power in range(5)]),
    ],
)
def test_sizes_with_and_without_dots(text: str, sizes: list[int]) -> None:
    assert list(parse_sizes(text)) == sizes


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--collectives", "all_reduce,reduce"), 'collectives[1]: "all_reduce", "reduce_scatter"'),
        (("--sizes", "0"), "--sizes: sizes such as"),
        (("--sizes", "4.5B"), "--sizes: sizes such as"),
        (("--sizes", "1024 2048"), "--sizes: sizes such as"),
        (("--sizes", "0,...,1KiB"), "--sizes: sizes such as"),
        (("--sizes", "1KiB,1022"), "(received 1022)"),
        (("--sizes", "big"), "--sizes: sizes such as"),
        (("--sizes", "1KiB,1024"), "each value once"),
        (("--sizes", "...,1KiB"), "--sizes: sizes such as"),
        (("--sizes", "1KiB,..."), "--sizes: sizes such as"),
        (("--sizes", "1KiB,...,1KiB"), "to a larger size"),
        (("--sizes", "1KiB,3KiB,4KiB,...,1MiB"), "by a whole ratio"),
        (("--world-sizes", "1"), 'world_sizes: whole numbers of at least 2, each once, or "all"'),
        (
            ("--world-sizes", "two"),
            'world_sizes: whole numbers of at least 2, each once, or "all"',
        ),
        (("--world-sizes", "2,64"), "--world-sizes: at most 2 workers of 1 core"),
        (("--placement", "pack,spred"), '(received "spred"), did you mean "spread"?'),
        (("--placement", "x"), 'placement: "pack" or "spread" (received "x")'),
        (("--max-seconds", "soon"), "--max-seconds: a time above 0"),
        (("--cpus-per-worker", "0"), "resources.cpus_per_worker"),
        (("--seed", "-1"), "seed"),
        (("--resume",), "--resume: needs --output DIR"),
        (("--retry", "crashed"), "--retry: goes with --resume"),
    ],
)
def test_a_wrong_request_is_a_line(arguments: tuple[str, ...], words: str, tmp_path: Path) -> None:
    where = () if "--resume" in arguments else ("--output", tmp_path / "out")
    error = typed(*arguments, *where).exception
    assert isinstance(error, RequestError), error
    assert len(error.problems) == 1
    assert words in error.problems[0]
    assert not (tmp_path / "out").exists()


def test_a_sweep_its_report_again_and_going_on(tmp_path: Path) -> None:
    out = tmp_path / "out"
    done = typed("--sizes", SIZES, "--output", out)
    assert done.exit_code == 0, done.output
    rows = (out / "report" / "communication.csv").read_text().splitlines()
    assert len(rows) == 1 + 4 * 3
    assert (out / "sweep.toml").is_file()
    command = "communication --collectives all_reduce,reduce_scatter,all_gather,broadcast --sizes 1024,65536,"
    assert command in (out / "report" / "report.md").read_text()
    assert not (out / "study.toml").exists()
    before = (out / "trials.jsonl").read_bytes()
    for path in (out / "report").rglob("*.*"):
        path.unlink()
    again = CliRunner().invoke(app, ["report", str(out)])
    assert again.exit_code == 0, again.output
    assert (out / "report" / "communication.csv").read_text().splitlines() == rows
    assert "bus bandwidth" in again.output
    resumed = typed("--resume", "--output", out)
    assert resumed.exit_code == 0, resumed.output
    assert (out / "trials.jsonl").read_bytes() == before


def test_another_sweep_does_not_go_on(tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert typed("--sizes", SIZES, "--output", out).exit_code == 0
    error = typed("--resume", "--output", out, "--sizes", "1KiB").exception
    assert isinstance(error, StoreError)
    assert any(line.startswith("message_bytes: ") for line in error.problems)
    longer = Options(output=out, resume=True, overrides=(("measure.max_seconds", 90.0),))
    assert sweep_of(longer).measure.max_seconds == 90.0


def test_no_part_completed_is_code_1(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    failing = FakeRunner(noise=STEADY, num_devices=2, fail=lambda request: ("oom", "planted"))
    monkeypatch.setattr(measuring, "runner_class", lambda kind: lambda *_, **__: failing)
    done = typed("--output", tmp_path / "out")
    assert done.exit_code == 1
    assert "Nothing was measured: 1 oom (planted)" in done.output
    assert (tmp_path / "out" / "report" / "report.html").is_file()


def test_commands_of_studies_refuse_a_sweep_and_the_other_way_round(tmp_path: Path) -> None:
    out, of_study = tmp_path / "out", tmp_path / "study"
    assert typed("--sizes", SIZES, "--output", out).exit_code == 0
    with ResultsDirectory.create(of_study, study(), capture()):
        pass
    for line in (["compare", str(out), str(of_study)], ["scaling", "--resume", "--output", str(out)]):
        error = CliRunner().invoke(app, line).exception
        assert isinstance(error, RequestError), line
        assert error.problems == (f"{out}: a sweep of collectives (communication), not a study",)
    error = typed("--resume", "--output", of_study).exception
    assert isinstance(error, StoreError)
    assert error.problems == (f"{of_study}: a study, not a sweep of collectives (communication)",)


def test_a_damaged_sweep_is_a_line(tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert typed("--sizes", SIZES, "--output", out).exit_code == 0
    (out / "sweep.toml").write_text("collectives = []\n")
    error = CliRunner().invoke(app, ["report", str(out)]).exception
    assert isinstance(error, RequestError)
    assert "sweep.toml: damaged: collectives" in str(error)

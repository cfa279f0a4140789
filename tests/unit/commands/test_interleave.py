"""The command ``compare --interleave``: what each side's starts are, their order, and the verdict."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from raybench.commands import compare_run
from raybench.commands.compare import CompareOptions, starts
from raybench.commands.compare_run import Source, compare_interleaved, source
from raybench.commands.console import make_console
from raybench.errors import Interrupted, RequestError
from raybench.records.record import SCHEMA_VERSION
from raybench.records.store import ResultsDirectory
from tests.support.planted import QUIET, FakeRunner, StepCosts
from tests.unit.studies import MACHINE, grid, study


class Planted:
    """In the place of the ``scaling`` commands: results directories with steps of a planted length."""

    def __init__(self, step_s: Callable[[str, int], float], **fields: Any) -> None:
        self.step_s, self.fields = step_s, fields
        self.commands: list[tuple[Source, list[str]]] = []
        self.ends: dict[str, int | BaseException] = {}  # by the start's folder, in place of measuring

    @property
    def order(self) -> list[str]:
        return [side.name for side, _ in self.commands]

    def __call__(self, command: Sequence[str], side: Source, log: Path) -> int:
        results = Path(command[command.index("--output") + 1])
        self.commands.append((side, list(command)))
        end = self.ends.get(results.name, 0)
        log.write_text("".join(f"line {number}\n" for number in range(30)))
        if isinstance(end, BaseException):
            raise end
        if end == 0:
            place = len(self.commands)
            spec = study(knobs={"batch_size": [32]}, scaling={"world_sizes": [2]}, **self.fields)
            costs = StepCosts(plain_s=self.step_s(side.name, place), exposed_s=0.0)
            records, _ = grid(spec, (2,), FakeRunner(lambda config, setting: costs, QUIET, seed=place))
            with ResultsDirectory.create(results, spec, MACHINE) as store:
                for record in records:
                    store.append(record)
        return end


def printed(
    folder: Path,
    planted: Any,
    monkeypatch: pytest.MonkeyPatch,
    limit: float | None = 0.03,
    summary: Path | None = None,
    **options: Any,
) -> tuple[int, str]:
    checkouts = [folder / "before", folder / "after"]
    for each in checkouts:
        each.mkdir(exist_ok=True)
    monkeypatch.setattr(compare_run, "run_start", planted)
    console = make_console(io.StringIO())
    given = CompareOptions(
        checkouts,
        fail_if_slower=limit,
        output=folder / "out",
        summary=summary,
        interleave=True,
        **{"set_": ["scaling.world_sizes=[1]"], **options},
    )
    code = compare_interleaved(given, console)
    return code, console.file.getvalue()  # type: ignore[attr-defined]


def test_a_slower_side_is_told_though_the_machine_slows_down(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """B takes 30% longer; every start takes 5% longer than the one before."""
    planted = Planted(lambda side, place: 0.010 * 1.05**place * (1.3 if side == "B" else 1.0))
    code, text = printed(tmp_path, planted, monkeypatch)
    assert code == 1
    assert "".join(planted.order) == "ABBAABBAAB"
    assert [line.split(":")[0] for line in text.splitlines() if line.startswith("pair")] == [
        f"pair {turn} of 5" for turn in range(1, 6)
    ]
    assert "B is slower than A by more than 3%: 0.7" in text
    assert "batch 32, fp32 on 2 devices; 5 pairs of starts" in text
    names = {path.name for path in (tmp_path / "out").iterdir() if path.is_dir()}
    assert names == {f"{side}-{turn}" for side in "ab" for turn in range(1, 6)}


@pytest.mark.promise("gate")
@pytest.mark.parametrize(("limit", "code"), [(0.03, 4), (0.5, 0), (None, 0)])
def test_equal_sides_are_not_known_or_not_slower(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: float | None, code: int
) -> None:
    planted = Planted(lambda side, place: 0.010 * (1.02 if place in (1, 3) else 1.0))
    found, text = printed(tmp_path, planted, monkeypatch, limit, starts=2)
    assert found == code
    assert len(planted.commands) == 4
    said = {0.03: "is not known: ", 0.5: "B is not slower than A by more than 50%: ", None: "B over A: "}
    assert said[limit] in text
    assert "the least difference that pairs of starts show here: 5 pairs " in text


def test_its_lines_are_appended_to_a_summary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    planted = Planted(lambda side, place: 0.010 * (1.3 if side == "B" else 1.0))
    summary = tmp_path / "summary.md"
    code, text = printed(tmp_path, planted, monkeypatch, summary=summary)
    assert code == 1
    heading, _, *lines, _ = summary.read_text().splitlines()
    assert heading.startswith("## ")
    assert [line.removeprefix("- ") for line in lines] == text.splitlines()[: len(lines)]
    assert lines[-1].startswith("- B is slower than A by more than 3%: 0.7")


def test_a_start_is_a_scaling_command_of_the_side(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    planted = Planted(lambda side, place: 0.010)
    printed(tmp_path, planted, monkeypatch, starts=2, smoke=True)
    side, command = planted.commands[1]
    assert (side.name, side.folder) == ("B", tmp_path / "after")
    assert side.variables["PYTHONPATH"].split(":")[0] == str(tmp_path / "after")
    assert command[1:5] == ["-m", "raybench.study", "scaling", "default"]
    assert "--smoke" in command
    sets = [command[place + 1] for place, word in enumerate(command) if word == "--set"]
    assert sets == ["scaling.world_sizes=[1]"] * 2 + ['search.method="optuna"', "search.trials=1"]


def test_an_environment_is_known_by_its_python(tmp_path: Path) -> None:
    python = tmp_path / "env" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.touch(mode=0o755)
    for path in (tmp_path / "env", python):
        side = source("A", path)
        assert (side.python, side.folder) == (str(python), None)
    python.chmod(0o644)
    results = tmp_path / "results"
    results.mkdir()
    for name in ("study.toml", "trials.jsonl"):
        (results / name).touch()
    for path in (python, tmp_path / "nowhere", results):
        with pytest.raises(RequestError, match="a directory of code, a Python environment or its python"):
            source("A", path)


@pytest.mark.parametrize(("ended", "code"), [(2, 2), (1, 1), (3, 1), (-9, 1)])
def test_a_start_that_fails_ends_it_with_its_last_lines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ended: int, code: int
) -> None:
    planted = Planted(lambda side, place: 0.010 * (1.3 if side == "B" else 1.0))
    planted.ends["b-3"] = ended
    found, text = printed(tmp_path, planted, monkeypatch)
    assert found == code
    assert f"start 3 of B: exit code {ended}, its last lines (" in text
    assert "line 29" in text
    assert "line 3\n" not in text
    assert "ended after 2 of 5 pairs of starts" in text
    assert "B over A: 0.7" in text  # what was measured, and no verdict on it


def test_an_interrupt_keeps_what_was_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    planted = Planted(lambda side, place: 0.010)
    planted.ends["b-2"] = Interrupted("SIGINT")
    code, text = printed(tmp_path, planted, monkeypatch)
    assert code == 130
    assert "ended after 1 of 5 pairs of starts" in text
    assert (tmp_path / "out" / "b-1" / "trials.jsonl").is_file()


def test_a_start_without_a_default_says_where_to_look(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    planted = Planted(lambda side, place: 0.010)
    monkeypatch.setattr(compare_run, "resolve", lambda *_: SimpleNamespace(headline=None))
    code, text = printed(tmp_path, planted, monkeypatch)
    assert code == 1
    assert "start 1 of A: the default was not measured" in text


def test_results_of_another_schema_are_refused_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    planted = Planted(lambda side, place: 0.010)

    def older(command: Sequence[str], side: Source, log: Path) -> int:
        planted(command, side, log)
        trials = Path(command[command.index("--output") + 1]) / "trials.jsonl"
        ours, theirs = (f'"schema_version":"{each}"' for each in (SCHEMA_VERSION, "7.0"))
        trials.write_text(trials.read_text().replace(ours, theirs))
        return 0

    with pytest.raises(RequestError, match=r"out/a-1/trials.jsonl: schema_version ") as raised:
        printed(tmp_path, older, monkeypatch)
    assert len(raised.value.problems) == 1


def test_sides_that_measure_different_defaults_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    planted = Planted(lambda side, place: 0.010)

    def other(command: Sequence[str], side: Source, log: Path) -> int:
        planted.fields = {"workload": {"name": "mlp", "hidden_dim": 64 if side.name == "A" else 128}}
        return planted(command, side, log)

    with pytest.raises(RequestError, match="the same default on both sides"):
        printed(tmp_path, other, monkeypatch)


def test_wrong_requests(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    planted = Planted(lambda side, place: 0.010)
    with pytest.raises(RequestError, match="two checkouts or environments"):
        compare_interleaved(CompareOptions([tmp_path], interleave=True), make_console())
    for name, given in {"study": "mine", "starts": 2, "smoke": True, "set_": ["a=1"]}.items():
        with pytest.raises(RequestError, match=f"--{name.rstrip('_')}: goes with --interleave"):
            CompareOptions([], **{name: given})
    with pytest.raises(RequestError, match="unknown study"):
        printed(tmp_path, planted, monkeypatch, study="defualt")
    with pytest.raises(RequestError, match=r"without \[training\]"):
        printed(tmp_path, planted, monkeypatch, study="transformer_ag_news")
    for text in ("1", "x", "1001"):
        with pytest.raises(RequestError, match="--starts: a whole number"):
            starts(text, "--starts")
    assert planted.commands == []


def test_a_study_of_the_checkouts_is_found_in_each(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A path that A has is each side's own; one that only the current directory has is one file for both."""
    text = 'name = "mine"\n[workload]\nname = "mlp"\n'
    here = tmp_path / "here"
    for folder in (tmp_path / "before", here):
        folder.mkdir()
        (folder / "mine.toml").write_text(text)
    monkeypatch.chdir(here)
    planted = Planted(lambda side, place: 0.010)
    printed(tmp_path, planted, monkeypatch, starts=2, study="mine.toml")
    assert planted.commands[0][1][4] == "mine.toml"
    (tmp_path / "before" / "mine.toml").unlink()
    again = Planted(lambda side, place: 0.010)
    (tmp_path / "out").rename(tmp_path / "earlier")
    printed(tmp_path, again, monkeypatch, starts=2, study="mine.toml")
    assert again.commands[0][1][4] == str(here / "mine.toml")


def test_data_are_the_same_for_both_sides(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RAYBENCH_DATA", "sets")
    planted = Planted(lambda side, place: 0.010)
    printed(tmp_path, planted, monkeypatch, starts=2)
    assert f'data="{tmp_path / "sets"}"' in planted.commands[0][1]

"""Whatever is typed ends in an answer or in a few lines: no traceback, no hang, no file touched."""

from __future__ import annotations

import errno
import os
import re
from pathlib import Path
from typing import Any

import pytest

from raybench import study
from raybench.errors import RequestError
from raybench.machine.host import Resources
from raybench.plan.make_plan import make_plan
from raybench.spec.load import resolve
from tests.support.answers import Answer, answer_of, at_most

LIMIT_S = 20.0  # for one input, on a busy machine
TINY: dict[str, Any] = {"name": "tiny", "workload": {"name": "mlp"}}
FORTY = {f"V{number}": ["a", "b"] for number in range(40)}
FIVE_OF_50 = {
    name: list(range(1, 51))
    for name in ("batch_size", "bucket_cap_mb", "gradient_accumulation", "num_threads", "workers")
}


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("RAYBENCH_DATA", "RAY_ADDRESS"):
        monkeypatch.delenv(name, raising=False)


def planned(*words: str) -> Answer:
    return answer_of(study.main, ["scaling", "--dry-run", "--device", "cpu", *words], LIMIT_S)


@pytest.mark.parametrize(
    "words",
    [
        ["a" * 300 + ".toml"],
        ["default", "--resume", "--output", "a" * 5000],
        ["default", "--set", 'workload="a"', "--set", "unknown=1"],
    ],
    ids=lambda words: " ".join(word[:20] for word in words),
)
def test_the_words_of_a_command_are_refused_in_lines(words: list[str]) -> None:
    answer = planned(*words)
    assert answer.code == 2, answer
    assert 1 <= len(answer.errors.splitlines()) <= 21
    assert "Traceback" not in answer.errors


@pytest.mark.parametrize(
    ("tables", "told"),
    [
        ({"environment": FORTY}, "received 1,099,511,627,776 settings"),
        ({"knobs": FIVE_OF_50}, "received 312,500,000 settings"),
        ({"knobs": {**FIVE_OF_50, "batch_size": ["max"]}, "search": {"method": "optuna"}}, None),
        ({"knobs": {**FIVE_OF_50}, "search": {"method": "optuna"}}, None),
        ({"knobs": {**FIVE_OF_50}, "search": {"method": "ablation"}}, None),
        ({"knobs": {**FIVE_OF_50, "strategy": "dp"}, "search": {"method": "optuna"}}, "dp exists on GPUs"),
    ],
)  # fmt: skip
def test_a_plan_is_counted_before_it_is_made(tables: dict[str, Any], told: str | None) -> None:
    data = {**TINY, "resources": {"device": "cpu"}, **tables}
    with at_most(LIMIT_S):
        if told is None:
            plan = make_plan(resolve(data), Resources("cpu", 2, "a CPU"))
            assert plan.study.search.method == "optuna" or len(plan.trials()) < 1000
            return
        with pytest.raises(RequestError) as refused:
            make_plan(resolve(data), Resources("cpu", 2, "a CPU"))
    assert told in str(refused.value)


def test_many_faults_are_counted() -> None:
    Path("typed.toml").write_text(
        'name = "x"\nworkload.name = "mlp"\n' + "".join(f"unknown_{number} = 1\n" for number in range(300))
    )
    errors = planned("typed.toml").errors
    assert errors.splitlines()[-1] == "and 280 more"


@pytest.mark.parametrize(
    "words",
    [
        ["predict", "a" * 5000],
        ["predict", "x.csv", "--output", "a" * 5000],
        ["predict", "x.csv", "--communication", "a" * 5000],
        ["compare", "x", "y", "--output", "a" * 5000],
    ],
    ids=lambda words: " ".join(word[:20] for word in words),
)
def test_a_path_that_no_file_can_have_is_refused(words: list[str]) -> None:
    answer = answer_of(study.main, words, LIMIT_S)
    assert (answer.code, len(answer.errors.splitlines())) == (2, 1), answer


def test_a_working_directory_is_one() -> None:
    answer = planned("default", "--smoke", "--working-dir", "nothing")
    assert answer.code == 2, answer
    assert "--working-dir: a directory" in answer.errors


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["compare", "x", "circle"], "no such directory"),
        (["report", "circle"], "no such directory"),
        (["predict", "circle"], "no such directory or file"),
        (["scaling", "./circle", "--dry-run"], "cannot be read: Too many levels of symbolic links"),
        (["scaling", "--smoke", "--dry-run", "--data", "circle/x"], ""),
        (["scaling", "--smoke", "--dry-run", "--set", "data=circle"], ""),
        (["scaling", "--smoke", "--dry-run", "--working-dir", "circle"], "--working-dir: a directory"),
        (["scaling", "--script", "circle", "--dry-run"], "cannot be read: Too many levels of symbolic links"),
    ],
    ids=lambda words: " ".join(words) if isinstance(words, list) else None,
)
def test_links_in_a_circle_lead_nowhere(words: list[str], told: str, tmp_path: Path) -> None:
    (tmp_path / "circle").symlink_to(tmp_path / "back")
    (tmp_path / "back").symlink_to(tmp_path / "circle")
    answer = answer_of(study.main, words, LIMIT_S)
    assert answer.code == (2 if told else 0), answer
    assert len(answer.errors.splitlines()) == bool(told)
    assert told in answer.errors


@pytest.mark.parametrize(
    ("tables", "told"),
    [
        ({"training": {"seeds": 2 * 10**9}}, "at most 1,000 seeds (received 2000000000)"),
        ({"environment": {"A=B": ["1"]}}, "the name of an environment variable"),
        ({"workload": {"script": "x.py", "links": ["/a/x", "/b/x/"]}}, "names that differ"),
    ],
)
def test_what_no_run_can_have_is_refused_before_it(tables: dict[str, Any], told: str) -> None:
    with pytest.raises(RequestError, match=re.escape(told)):
        resolve({"name": "x", "workload": {"name": "mlp"}} | tables)


@pytest.mark.parametrize("text", ["[" * 3000, "9" * 5000])
def test_what_no_parser_can_read_is_a_line(text: str) -> None:
    Path("deep.toml").write_text(f"x = {text}")
    answer = answer_of(study.main, ["scaling", "deep.toml", "--dry-run"], LIMIT_S)
    assert (answer.code, len(answer.errors.splitlines())) == (2, 1), answer
    typed = answer_of(study.main, ["scaling", "--set", f"measure.steps={text}", "--dry-run"], LIMIT_S)
    assert (typed.code, len(typed.errors.splitlines())) == (2, 1), typed


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EROFS, errno.EIO])
def test_a_disk_that_refuses_is_a_line(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise OSError(number, os.strerror(number), "results/\udcff/x")

    monkeypatch.setattr("raybench.commands.predict_run.run_predict", refuse)
    answer = answer_of(study.main, ["predict", "x.csv"], LIMIT_S)
    assert (answer.code, answer.output) == (2, "")
    assert answer.errors == f"results/\\udcff/x: {os.strerror(number)}\n"


def system_error(number: int, *path: str) -> OSError:
    return OSError(number, os.strerror(number), *path)


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (system_error(errno.EMFILE), "this cannot continue: Too many open files"),
        (system_error(errno.ENOMEM), "this cannot continue: Cannot allocate memory"),
        (system_error(errno.ECONNREFUSED), "this cannot continue: Connection refused"),
        (OSError("no such weights"), "this cannot continue: OSError: no such weights"),
        (system_error(errno.ENOSPC), "this cannot continue: No space left on device"),
        (system_error(errno.EIO), "this cannot continue: Input/output error"),
        (system_error(errno.EACCES, "a/font.ttf"), "a/font.ttf: Permission denied"),
    ],
    ids=str,
)
def test_what_the_system_refuses_is_a_line(
    error: OSError, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise error

    monkeypatch.setattr("raybench.commands.predict_run.run_predict", refuse)
    answer = answer_of(study.main, ["predict", "x.csv"], LIMIT_S)
    assert (answer.code, answer.errors) == (2, f"{said}\n")

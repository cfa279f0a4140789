"""What doctor examines, and how it shows it; tests of the checks themselves are in machine/checks."""

import io

import pytest
import typer
from rich.console import Console

from raybench.commands.doctor import doctor, render
from raybench.machine import checks
from raybench.machine.checks import Check, examine


def printed(found, width=80):
    out = io.StringIO()
    render(found, Console(file=out, width=width))
    return out.getvalue()


def test_a_check_that_fails_hides_no_other(monkeypatch):
    def network():
        raise OSError("no /proc here")
        yield

    monkeypatch.setattr(checks, "network", network)
    found = examine(with_workers=False)
    assert Check("network", "warning", "could not be examined: OSError: no /proc here") in found
    assert found[-1].name == "shared memory"


# --- how it is shown


CHECKS = [
    Check("Python", "ok", "3.12.1"),
    Check(
        "shared memory",
        "warning",
        "64 MiB free of 64 MiB " + "and more words " * 10,
        "docker run " + "--long " * 20,
    ),
    Check("packages", "missing", "ray: [not installed]", 'python -m pip install "ray[default]>=2.55"'),
]


@pytest.mark.promise("doctor")
def test_lines_fit_80_columns_and_commands_stay_whole():
    text = printed(CHECKS)
    lines = text.splitlines()
    assert lines[0] == "ok       Python         3.12.1"
    assert any(line.strip() == "-> " + ("docker run " + "--long " * 20).strip() for line in lines)
    assert all(len(line) <= 80 for line in lines if "->" not in line)
    assert all(line == line.rstrip() for line in lines if "->" not in line)
    assert "ray: [not installed]" in text
    assert '-> python -m pip install "ray[default]>=2.55"' in text
    assert lines[-1] == "1 ok, 1 warning, 1 missing"
    assert "\x1b" not in text


def test_nothing_to_mend_is_said_of_what_is_well():
    assert "->" not in printed([Check("Python", "ok", "3.12", "do this")])
    assert printed([]) == "0 ok, 0 warnings, 0 missing\n"


# --- the exit code


@pytest.mark.parametrize(("status", "code"), [("ok", 0), ("warning", 0), ("missing", 1)])
def test_only_what_is_missing_is_an_exit_code(status, code, monkeypatch):
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setattr(
        checks, "examine", lambda: [Check("Python", "ok", "3.12.1"), Check("Ray", status, "")]
    )
    with pytest.raises(typer.Exit) as ended:
        doctor(address=None)
    assert ended.value.exit_code == code

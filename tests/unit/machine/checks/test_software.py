"""Packages and Python that do not fit."""

from raybench.machine.checks import software
from raybench.machine.checks.check import Check


def test_packages_that_are_missing_or_too_old(monkeypatch):
    from packaging.requirements import Requirement

    wanted = [Requirement("torch>=2.11"), Requirement("raybench-none[x]>=3"), Requirement("rich>=999")]
    monkeypatch.setattr(software, "_requirements", lambda: wanted)
    good, absent, old = software.packages()
    assert good.status == "ok"
    assert good.found.startswith("torch ")
    assert absent == Check(
        "packages", "missing", "raybench-none: not installed", 'python -m pip install "raybench-none[x]>=3"'
    )
    assert "needs >=999" in old.found


def test_the_lower_bounds_are_known():
    names = {requirement.name for requirement in software._requirements()}
    assert {"torch", "ray", "optuna", "pydantic"} <= names
    assert "pytest" not in names


def test_another_python(monkeypatch):
    monkeypatch.setattr(software, "_python_wanted", lambda: ">=3.99")
    (python,) = software.python()
    assert python.status == "missing"

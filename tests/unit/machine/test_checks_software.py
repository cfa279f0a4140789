"""Packages and Python that do not fit."""

from packaging.requirements import Requirement

from raybench.machine import checks
from raybench.machine.checks import Check, Wanted


def test_packages_that_are_missing_or_too_old():
    wanted = ("torch>=2.11", "raybench-none[x]>=3", "rich>=999", 'pytest; extra == "test"')
    good, absent, old = checks.packages(Wanted("", wanted))
    assert good.status == "ok"
    assert good.found.startswith("torch ")
    assert absent == Check(
        "packages", "missing", "raybench-none: not installed", 'python -m pip install "raybench-none[x]>=3"'
    )
    assert "needs >=999" in old.found


def test_the_lower_bounds_are_known():
    names = {Requirement(line).name for line in checks.wanted().packages}
    assert {"torch", "ray", "optuna", "pydantic"} <= names
    assert checks.wanted().python


def test_another_python():
    (python,) = checks.python(Wanted(">=3.99", ()))
    assert python.status == "missing"

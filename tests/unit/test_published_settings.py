"""docs/published.md: the settings of the write-ups, against the studies that repeat them."""

from __future__ import annotations

import re
import tomllib
from operator import attrgetter

import pytest

from raybench.spec.load import find_study, load_study
from tests.conftest import ROOT

ROW = re.compile(r"^\| `(\w+)` \| (`\w+\..*?) \| (.*?) \| (.*?) \|$", re.MULTILINE)
SETTING = re.compile(r"`([\w.]+)` (\[[^\]]*\]|[^,|]+)")
ROWS = ROW.findall((ROOT / "docs/published.md").read_text())


def test_each_study_of_a_write_up_has_a_row() -> None:
    names = {path.stem for path in (ROOT / "studies/published").glob("*.csv")} - {"sources"}
    assert {name for name, *_ in ROWS} == names


@pytest.mark.parametrize(("name", "given", "here"), [row[:3] for row in ROWS])
def test_a_study_has_the_settings_of_its_write_up_or_says_why_not(name: str, given: str, here: str) -> None:
    study = load_study(find_study(name), device="cuda")
    otherwise = re.findall(r"`([\w.]+)`", here)
    for field, value in SETTING.findall(given):
        if field in otherwise:
            continue
        found = attrgetter(field)(study)
        listed = found if isinstance(found, tuple) else (found,)
        try:
            wanted = tomllib.loads(f"value = {value}")["value"]
        except tomllib.TOMLDecodeError:
            wanted = value
        assert set(wanted if isinstance(wanted, list) else [wanted]) <= set(listed), field

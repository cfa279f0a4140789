"""What a forecast means, in sentences that hold."""

from __future__ import annotations

from pathlib import Path

from raybench.analysis.cost import works
from raybench.analysis.prices import Prices
from raybench.analysis.simulate.outlook import Outlook, forecast, outlook, shapes_of
from raybench.report.outlook_words import outlook_sentences
from raybench.report.tables.prediction import tradeoff_table
from tests.unit.analysis.simulate.tables import groups


def of_rows(folder: Path, rows: list[str], **asked: float) -> Outlook:
    (group,) = groups(folder, rows)
    return outlook(forecast(group, shapes_of((8,), 8)), works(1e6, 2), Prices(), **asked)


def test_a_limit_that_nothing_keeps_has_no_chance_where_nobody_said_how_sure(tmp_path: Path) -> None:
    found = of_rows(tmp_path, ["1,1,32,0.1", "1,2,32,0.1"], within_s=1e-3)
    (told,) = (line for line in outlook_sentences(found, costs=False) if line.startswith("cheapest"))
    assert told.startswith("cheapest within ")
    assert "(without restarts of the loader): none of what was measured or predicted; nearest is " in told
    assert told.endswith("(nobody said how sure that is)")
    assert "likely" not in told


def test_rows_of_the_front_that_do_not_fit_are_counted_as_such(tmp_path: Path) -> None:
    """Each number of devices is on the front: twice as many are not twice as fast."""
    rows = [f"1,{size},32,{0.1 * size**0.5}" for size in (1, 2, 4, 6, 8)]
    found = of_rows(tmp_path, rows)
    best = sum(way.on_front for way in found.ways)
    assert best >= 4
    table = tradeoff_table(found, most_rows=2)
    assert len(table.rows) == 2
    assert f"{best - 2} more that are" in table.caption
    both = len(found.ways) - best
    assert (f"{both} that are not" in table.caption) == bool(both)

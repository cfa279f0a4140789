"""Strategies in the table of settings."""

from __future__ import annotations

from raybench.report.sections.settings import settings_table
from tests.support.analysis import analyse
from tests.unit.strategies import STUDY, strategy_record
from tests.unit.studies import study


def test_a_study_of_several_strategies_says_what_each_takes_of_memory() -> None:
    results = analyse(STUDY, [strategy_record(*each) for each in (("single", 1), ("ddp", 2), ("fsdp", 2))])
    table = settings_table(results)
    memory = [each.heading for each in table.columns].index("peak memory, MiB")
    assert [row[memory] for row in table.rows] == ["1,024", "1,024"]


def test_where_dataparallel_was_measured_the_report_says_what_it_does_in_a_step():
    strategies = study(
        knobs={"strategy": ["single", "dp", "ddp"], "batch_size": 64}, scaling={"mode": "strong"}
    )
    records = [strategy_record("single", 1), strategy_record("ddp", 2)]
    assert "DataParallel" not in settings_table(analyse(strategies, records)).caption
    caption = settings_table(analyse(strategies, [*records, strategy_record("dp", 2)])).caption
    assert "gathers the outputs on the first, and sums the gradients there" in caption
    timed = {"scatter": 0.0012, "replicate": 0.0034, "gather": 0.0005}
    dp = strategy_record("dp", 2)
    assert dp.steps is not None
    dp = dp.model_copy(update={"result": dp.steps.model_copy(update={"data_parallel_s": timed})})
    caption = settings_table(analyse(strategies, [*records, dp])).caption
    assert "it spent 1.20 ms scattering, 3.40 ms copying, 500 µs gathering outputs; gradients are" in caption

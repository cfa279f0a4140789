"""Strategies side by side, and the error of compressed gradients."""

from __future__ import annotations

from raybench.analysis import analyse
from raybench.analysis.strategies import compare_strategies
from raybench.report.sections.settings import strategies_table
from tests.unit.strategies import STUDY, strategy_record
from tests.unit.studies import study


def test_a_study_of_several_strategies_has_a_row_for_each():
    results = analyse(
        STUDY,
        [
            strategy_record("single", 1),
            strategy_record("ddp", 2),
            strategy_record("fsdp", 2, off=0.5, gradient=0.1),
        ],
    )
    assert [
        (each.config.world_size, each.config.setting.strategy) for each in compare_strategies(results)
    ] == [
        (1, "single"),
        (2, "ddp"),
        (2, "fsdp"),
    ]
    one, ddp, fsdp = strategies_table(results).rows
    assert (one[1], one[4]) == ("single", "")
    assert ddp[4] == "agrees: 0 of 0.001 in 3 steps"
    assert fsdp[4] == "differs: 0.3 of 0.001 in 3 steps, gradient 0.1 of 0.001"
    assert all(row[3] == "1,024" for row in (one, ddp, fsdp))


def test_where_dataparallel_was_measured_the_report_says_what_it_does_in_a_step():
    strategies = study(
        knobs={"strategy": ["single", "dp", "ddp"], "batch_size": 64}, scaling={"mode": "strong"}
    )
    records = [strategy_record("single", 1), strategy_record("ddp", 2)]
    assert "DataParallel" not in strategies_table(analyse(strategies, records)).caption
    caption = strategies_table(analyse(strategies, [*records, strategy_record("dp", 2)])).caption
    assert "gathers the outputs on the first, and sums the gradients there" in caption
    assert "On 2 devices its step takes 1.00 times that of DDP, which sends gradients alone." in caption
    timed = {"scatter": 0.0012, "replicate": 0.0034, "gather": 0.0005}
    dp = strategy_record("dp", 2)
    assert dp.steps is not None
    dp = dp.model_copy(update={"result": dp.steps.model_copy(update={"data_parallel_s": timed})})
    caption = strategies_table(analyse(strategies, [*records, dp])).caption
    assert "it spent 1.20 ms scattering, 3.40 ms copying, 500 µs gathering outputs; gradients are" in caption
    alone = study(knobs={"strategy": "dp", "batch_size": 64}, scaling={"mode": "strong"})
    assert "1.20 ms scattering" in strategies_table(analyse(alone, [records[0], dp])).caption


def test_a_study_of_one_strategy_has_no_such_table():
    results = analyse(
        study(knobs={"batch_size": 64}, scaling={"mode": "strong"}), [strategy_record("ddp", 2)]
    )
    assert compare_strategies(results) == ()
    assert strategies_table(results).rows == ()


def test_compression_is_told_with_its_error():
    spec = study(knobs={"gradient_compression": ["none", "fp16"]}, scaling={"mode": "strong"})
    (row,) = strategies_table(
        analyse(spec, [strategy_record("ddp", 2, gradient=0.002, gradient_compression="fp16")])
    ).rows
    assert row[1] == "ddp, fp16 compression"
    assert "gradient 0.002 of " in row[4]

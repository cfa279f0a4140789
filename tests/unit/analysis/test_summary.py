"""One row a record: numbers where there are any, and the phases that the report shows."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from raybench.analysis.labels import label
from raybench.analysis.phases import PHASES, phase_times
from raybench.analysis.scaling import scaling
from raybench.analysis.summary import datasheet_flops_per_s, frame_of, summarize
from raybench.records.record import TrialRecord
from raybench.records.results import PhaseBlock
from raybench.spec.knobs import Setting
from tests.support.analysis import analyse
from tests.support.planted import QUIET, FakeLearning
from tests.unit.studies import SIXTEEN_TENTHS, asked, failed, grid, measured, planted, study, trained_study


def test_failed_rows_have_no_numbers() -> None:
    spec = study(knobs={"batch_size": [64]})
    row = (
        analyse(spec, [failed(asked(spec, "scaling", Setting(batch_size=64), 2), "oom", "no room")])
        .summaries[0]
        .row()
    )
    assert row["state"] == "oom"
    assert row["step_time_s"] is None
    assert row["status"] is None


def test_the_rows_as_a_data_frame() -> None:
    spec = study(knobs={"batch_size": [64]})
    frame = frame_of(summarize(grid(spec, [1, 2, 4])[0]))
    assert frame["world_size"].tolist() == [1, 2, 4]
    assert frame["efficiency"].is_monotonic_decreasing
    assert frame["status"][0] == "baseline"  # as the report calls it
    assert not (frame["status"][1:] == "baseline").any()


@pytest.mark.parametrize("mode", ["weak", "strong"])
def test_the_batch_is_the_one_that_labels_say(mode: str) -> None:
    """256 is a device's in weak scaling and everybody's in strong: the report's label and the row agree."""
    spec = study(knobs={"batch_size": [64, 256], "gradient_accumulation": 2}, scaling={"mode": mode})
    records, _ = grid(spec, [1, 2, 4])
    rows = {row.trial_id: row for row in analyse(spec, records).summaries}
    assert len(rows) == 6
    for record in records:
        row = rows[record.trial_id]
        assert row.batch_size in (64, 256)
        assert f"batch {row.batch_size}" in label(spec, record.config)
        of_all = row.batch_size * (row.world_size * 2 if mode == "weak" else 1)
        assert row.global_batch_size == of_all


def with_phases(record: TrialRecord, variant: str, *forward_shares: float) -> TrialRecord:
    """The record with blocks of this variant's phases in which forward takes these shares of 10 ms."""
    assert record.steps is not None
    others = tuple(block for block in record.steps.phases if block.variant != variant)
    blocks = tuple(
        PhaseBlock(
            variant=variant,  # type: ignore[arg-type]
            seconds={"data": 0.0, "forward": 0.01 * share, "backward": 0.01 * (1 - share)},
            num_steps=5,
        )
        for share in forward_shares
    )
    return record.model_copy(
        update={"result": record.steps.model_copy(update={"phases": (*others, *blocks)})}
    )


def test_phases_are_those_of_the_report() -> None:
    results = planted({(32,): SIXTEEN_TENTHS, (64,): SIXTEEN_TENTHS}, "batch_size")
    assert results.headline is not None
    assert results.phases is not None
    row = next(row for row in results.summaries if row.trial_id == results.headline.trial_id)
    shown = {each.name: each.many_s for each in results.phases.rows}
    for name in PHASES:
        estimate = shown[name]
        assert estimate is not None
        assert getattr(row, f"{name}_s") == estimate.value
    assert row.forward_s == pytest.approx(0.3 * 0.0115)  # of the level without transfers


def test_phases_are_an_estimate_over_all_blocks_and_not_the_last_one() -> None:
    record = measured(SIXTEEN_TENTHS, QUIET)
    spec = study(knobs={"batch_size": [32]})
    for last in (0.3, 0.9):
        found = analyse(spec, [with_phases(record, "local", 0.3, 0.3, 0.3, 0.3, last)])
        assert found.summaries[0].forward_s == pytest.approx(0.3 * 0.0115)
        assert found.phases is not None


def test_phases_of_one_device_add_up_to_its_step_time() -> None:
    results = planted({(32,): SIXTEEN_TENTHS}, "batch_size")
    row = next(row for row in results.summaries if row.world_size == 1)
    total = sum(getattr(row, f"{name}_s") for name in PHASES)
    assert total == pytest.approx(row.step_time_s)


def test_without_a_level_without_transfers_phases_add_up_to_the_step() -> None:
    """``fsdp`` has its phases timed as it is, in blocks of ddp."""
    fields: dict[str, Any] = {"setting": Setting(strategy="fsdp"), "variants": ("plain", "ddp")}
    record = measured(SIXTEEN_TENTHS, QUIET, **fields)
    assert record.steps is not None
    assert phase_times(record, scaling(record).step_time_s, None) == {}
    timed = with_phases(record, "ddp", 0.3, 0.3, 0.3)
    (row,) = analyse(study(knobs={"strategy": ["fsdp"]}), [timed]).summaries
    assert row.forward_s == pytest.approx(0.3 * 0.0125)
    assert row.backward_s == pytest.approx(0.7 * 0.0125)


def test_without_one_device_to_compare_with_phases_add_up_to_the_level_without_transfers() -> None:
    """As where one device has no memory for the batch: the report has no table of them."""
    costs = replace(SIXTEEN_TENTHS, missing={"plain": "out of memory"})
    results = analyse(study(knobs={"batch_size": [32]}), [measured(costs, QUIET)])
    assert results.phases is None
    (row,) = results.summaries
    assert row.forward_s == pytest.approx(0.3 * 0.0115)


def test_a_search_has_no_phases() -> None:
    spec = study(knobs={"batch_size": [32]})
    (row,) = analyse(spec, [measured(SIXTEEN_TENTHS, QUIET, role="search")]).summaries
    assert [getattr(row, f"{name}_s") for name in PHASES] == [None] * 5


def test_the_summary_has_the_training_columns() -> None:
    plan, records = trained_study(FakeLearning(spread=0.0))
    rows = [row for row in analyse(plan.study, records).summaries if row.role == "training"]
    assert len(rows) == 6
    for row in rows:
        assert row.accuracy == pytest.approx(0.7853, abs=1e-4)  # 0.8 (1 - e^-4)
        assert row.epoch_time_s is not None
        assert row.time_to_target_s is not None
        assert row.time_to_target_s > 3 * row.epoch_time_s  # 0.8 (1 - e^-3) is the first above 0.7
        assert row.step_time_s is None


def test_flops_are_shares_of_what_matrix_products_reach_and_of_the_data_sheet() -> None:
    """Half of the H100's 989 TFLOP/s, of which large products reach 700, in a step of 10 ms."""
    setting = Setting(batch_size=32, precision="bf16")
    spec = study(knobs={"batch_size": [32], "precision": ["bf16"]})
    record = measured(SIXTEEN_TENTHS, QUIET, device="cuda", setting=setting, world_size=1)
    assert record.steps is not None
    step_s = analyse(spec, [record]).summaries[0].step_time_s
    assert step_s is not None
    told = {"flops_per_step": 494.5e12 * step_s, "matrix_peak_flops_per_s": 700e12}
    result = record.steps.model_copy(update=told)
    record = record.model_copy(update={"result": result, "device_name": "NVIDIA H100 80GB HBM3"})
    row = analyse(spec, [record]).summaries[0]
    assert row.mfu == pytest.approx(494.5 / 700)
    assert row.mfu_datasheet == pytest.approx(0.5)
    default = setting.model_copy(update={"precision": "default"})
    config = record.config.model_copy(update={"setting": default})
    asked = record.model_copy(update={"request": record.request.model_copy(update={"config": config})})
    row = analyse(spec, [asked]).summaries[0]
    assert row.flops_per_s is not None
    assert (row.mfu, row.mfu_datasheet) == (None, None)  # of which precision its operations are is not known


@pytest.mark.parametrize(
    ("name", "precision", "tera"),
    [
        ("NVIDIA A100-SXM4-80GB", "bf16", 312),
        ("NVIDIA A100 80GB PCIe", "fp32", 19.5),
        ("A100-PCIE-40GB", "tf32", 156),
        ("Tesla V100-SXM2-16GB", "fp16", 125),
        ("Tesla T4", "bf16", None),  # its tensor cores have neither
        ("Tesla T4", "tf32", None),
        ("NVIDIA A100-SXM4-80GB", "default", None),  # tf32 or not, as torch has it
        ("NVIDIA A100-SXM4-40GB MIG 1g.5gb", "bf16", None),  # a part of one
        ("NVIDIA A10G", "bf16", None),  # another than A10
        (None, "bf16", None),
    ],
)
def test_data_sheets_are_of_whole_gpus_by_their_names(
    name: str | None, precision: str, tera: float | None
) -> None:
    found = datasheet_flops_per_s(name, precision)
    assert found == (None if tera is None else pytest.approx(tera * 1e12))


@pytest.mark.parametrize("gradient_bytes", [None, 1000])
def test_the_strategy_of_a_script_is_known_by_its_ddp_alone(gradient_bytes: int | None) -> None:
    """It may be FSDP, or send by hand."""
    spec = study(workload={"script": "train.py"})
    record = measured(SIXTEEN_TENTHS, QUIET, workload=spec.workload, variants=("ddp",))
    assert record.steps is not None
    counted = {"gradient_bytes": gradient_bytes, "global_batch_size": 7}
    changed = record.model_copy(update={"result": record.steps.model_copy(update=counted)})
    (row,) = analyse(spec, [changed]).summaries
    assert row.strategy == ("ddp" if gradient_bytes else None)
    assert row.global_batch_size == 7
    (row,) = analyse(spec, [failed(record.request)]).summaries  # type: ignore[arg-type]
    assert row.strategy is None


def test_phases_that_a_script_does_not_show_are_empty() -> None:
    spec = study(workload={"script": "train.py"})
    record = measured(SIXTEEN_TENTHS, QUIET, workload=spec.workload, variants=("ddp",))
    assert record.steps is not None
    blocks = tuple(
        PhaseBlock(variant="ddp", seconds={"optimizer": 0.001, "other": 0.004}, num_steps=5) for _ in range(3)
    )
    changed = record.model_copy(update={"result": record.steps.model_copy(update={"phases": blocks})})
    (row,) = analyse(spec, [changed]).summaries
    assert row.data_s is row.forward_s is row.backward_s is None
    assert row.optimizer_s == pytest.approx(0.2 * 0.0125)

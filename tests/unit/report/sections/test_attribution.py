"""What each knob changes."""

from __future__ import annotations

from raybench.report.sections.configurations import attribution_table
from tests.unit.studies import exactly, planted


def test_knobs_changed_together_are_counted() -> None:
    costs = {(8, 1): exactly(0.4), (8, 4): exactly(0.5), (128, 1): exactly(0.6), (128, 4): exactly(0.9)}
    table = attribution_table(planted(costs, "batch_size", "gradient_accumulation"))
    assert table.rows[2][1].startswith("2 knobs")

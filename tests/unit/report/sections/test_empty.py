"""Tables that have nothing to say have no rows."""

from __future__ import annotations

from raybench.report.sections.cost import cost_table
from raybench.report.sections.scaling import overheads_table
from raybench.report.sections.settings import settings_table
from raybench.report.sections.waterfall import phases_table
from raybench.spec.knobs import Setting
from tests.support.analysis import analyse
from tests.unit.studies import SIXTEEN_TENTHS, measured, study


def test_one_device_or_nothing_has_no_such_table() -> None:
    for records in ([], [measured(SIXTEEN_TENTHS, world_size=1, setting=Setting(strategy="single"))]):
        found = analyse(study(knobs={"batch_size": [32]}), records)
        tables = (
            phases_table(found),
            overheads_table(found),
            cost_table(found),
            settings_table(found),
        )
        assert [table.rows for table in tables] == [()] * 4

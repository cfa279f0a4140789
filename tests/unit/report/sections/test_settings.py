"""Each setting against the default: one row, one figure for one thing."""

from __future__ import annotations

import pytest

from raybench.analysis.results import StudyResults
from raybench.report.sections.settings import settings_table
from raybench.report.table import NONE
from raybench.spec.knobs import Setting
from tests.support.analysis import analyse
from tests.support.planted import FakeRunner, StepCosts
from tests.unit.studies import exactly, grid, planted, study


def cells(results: StudyResults, heading: str) -> dict[str, str]:
    """A column by the settings' names."""
    table = settings_table(results)
    place = [each.heading for each in table.columns].index(heading)
    return {row[0]: row[place] for row in table.rows}


def test_every_setting_has_one_row_with_its_verdict_the_fastest_first(results: StudyResults) -> None:
    gains, verdicts, visits = (cells(results, each) for each in ("gain", "verdict", "visits"))
    assert len(settings_table(results).rows) == len(results.rivals) == len(results.gains) + 1
    for record in results.rivals:
        gain, name = results.gain(record), results.label(record)
        assert visits[name] == str(len(results.fit.visits(record)))
        assert verdicts[name] == (str(gain.verdict) if gain else "the default")
        assert (gains[name] == NONE) == (gain is None)
    rates = [float(each.split()[0].replace(",", "")) for each in cells(results, "samples/s").values()]
    assert rates == sorted(rates, reverse=True)


def test_several_objectives_have_their_front_and_memory_its_column() -> None:
    spec = study(knobs={"batch_size": [32, 64, 128]}, search={"objectives": ["throughput", "peak_memory"]})

    def costs(request: object, setting: Setting) -> StepCosts:
        step_s = {32: 0.010, 64: 0.012, 128: 0.040}[setting.batch_size]
        return StepCosts(plain_s=step_s, memory_bytes=setting.batch_size << 20)

    found = analyse(spec, grid(spec, (2,), FakeRunner(costs))[0])
    assert cells(found, "Pareto front") == {
        "batch 64": "yes",
        "batch 32": "yes",
        "batch 128": "",
    }
    assert cells(found, "peak memory, MiB")["batch 64"] == "64.0"


def test_equal_settings_share_the_chance_to_be_the_fastest_and_the_regret_is_said() -> None:
    spec = study(knobs={"precision": ["fp32", "bf16", "fp16", "tf32"]})
    equal = FakeRunner(lambda config, setting: StepCosts(plain_s=0.01, exposed_s=0.002), seed=5)
    results = analyse(spec, grid(spec, (2,), equal)[0])
    chances = [float(each.rstrip("%")) for each in cells(results, "fastest").values()]
    assert sum(chances) == pytest.approx(100, abs=2)
    assert max(chances) < 90
    assert results.default is not None
    lost = results.regret(results.default)
    assert lost is not None
    caption = settings_table(results).caption
    assert f"it beats the setting to use by {100 * lost.value:.1f}% on average, and by at most " in caption


def test_one_setting_has_no_such_table() -> None:
    assert settings_table(planted({(32,): exactly(0.8)}, "batch_size")).rows == ()

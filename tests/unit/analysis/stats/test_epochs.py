"""What an epoch takes by the steps of a trial."""

from __future__ import annotations

import pytest

from raybench.analysis.stats.efficiency import epochs_time, restart_time, steps_time
from raybench.records.record import TrialRecord
from raybench.records.results import Restart
from tests.support.planted import QUIET
from tests.unit.studies import SIXTEEN_TENTHS, measured


def with_restarts(*waited_s: float) -> TrialRecord:
    """Of 64 samples in 12.5 ms, each usual wait 50 ms."""
    record = measured(SIXTEEN_TENTHS, QUIET)
    assert record.steps is not None
    restarts = tuple(
        Restart(first_batch_s=0.4, num_batches=4, waited_s=seconds, usual_s=0.05) for seconds in waited_s
    )
    return record.model_copy(update={"result": record.steps.model_copy(update={"restarts": restarts})})


def test_a_restart_costs_what_is_waited_for_beyond_the_usual():
    found = restart_time(with_restarts(0.9, 1.0, 1.1))
    assert found is not None
    assert (found.value, found.n) == (pytest.approx(0.8), 3)
    # Student's t of 2 degrees at 97.5%, a standard deviation of 0.1
    assert found.half_width == pytest.approx(4.3027 * 0.1 / 3**0.5, rel=1e-4)


def test_without_two_restarts_nothing_is_said():
    assert restart_time(with_restarts()) is None
    assert restart_time(with_restarts(1.0)) is None


def test_epochs_take_their_steps_and_a_restart_in_each():
    record, batch = with_restarts(0.9, 1.0, 1.1), SIXTEEN_TENTHS.plain_s + 0.0025
    samples = 1000 * record.config.global_batch_size
    assert steps_time(record, samples).value == pytest.approx(1000 * batch)
    found = epochs_time(record, samples, 5)
    assert found.value == pytest.approx(1000 * batch + 5 * 0.8)
    half = 5 * 4.3027 * 0.1 / 3**0.5  # on a logarithmic scale: a time is above 0
    assert found.log_half_width == pytest.approx(half / found.value, rel=1e-4)
    assert epochs_time(with_restarts(), samples, 5).value == pytest.approx(1000 * batch)

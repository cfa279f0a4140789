"""What the sums of all ranks say."""

import math

import pytest

from raybench.errors import InvalidTrialError
from raybench.worker.training.passes import Sums, correct_predictions, mean_loss


def test_every_sample_counts_the_same_whichever_rank_has_it():
    sums = [Sums(samples=3, loss=6.0, correct=2), Sums(samples=1, loss=4.0, correct=1)]
    assert mean_loss(sums) == 2.5
    assert correct_predictions(sums) == 3


def test_without_a_metric_nothing_is_correct_or_wrong():
    assert correct_predictions([Sums(samples=3, loss=6.0), Sums(samples=1, loss=4.0)]) is None


def test_a_loss_that_is_not_finite_ends_the_trial():
    with pytest.raises(InvalidTrialError, match="not finite"):
        mean_loss([Sums(samples=1, loss=math.nan), Sums(samples=1, loss=1.0)])

"""The gradient noise scale against a problem whose noise is known, and goodput against its closed form."""

import numpy as np
import pytest

from raybench.analysis.training import (
    NoiseScale,
    mean_efficiency,
    mean_scale,
    two_batch,
)
from raybench.records.results import Epoch, GradientNorms


def norms(small: float, big: float) -> GradientNorms:
    return GradientNorms(small_batch=8, small_square=small, big_batch=32, big_square=big)


def epoch(*noise: GradientNorms) -> Epoch:
    return Epoch(epoch=1, steps=1, samples=(1,), learning_rate=1, train_loss=1, train_s=1, noise=noise)


def test_expected_norms_give_the_truth():
    """E|G_b|^2 = |G|^2 + S / b (McCandlish et al. 2018, appendix A.1)."""
    found = two_batch(norms(2.0 + 96 / 8, 2.0 + 96 / 32))
    assert (found.squared_gradient, found.variance) == (pytest.approx(2.0), pytest.approx(96.0))
    assert found.samples == pytest.approx(48.0)


def test_both_estimates_are_unbiased():
    """A quadratic loss |w - x|^2 / 2 with x ~ N(m, C): the gradient is w - m, its covariance C."""
    random = np.random.default_rng(0)
    gradient, deviations = np.array([0.5, -1.0, 0.25, 0.0]), np.array([1.0, 2.0, 0.5, 3.0])
    truth_squared, truth_variance = float(gradient @ gradient), float((deviations**2).sum())
    found = []
    for _ in range(4000):
        parts = gradient + deviations * random.standard_normal((4, 8, 4))  # 4 small batches of 8
        small = parts.mean(axis=1)
        one = GradientNorms(
            small_batch=8,
            small_square=float((small**2).sum(axis=1).mean()),
            big_batch=32,
            big_square=float((small.mean(axis=0) ** 2).sum()),
        )
        estimate = two_batch(one)
        found.append((estimate.squared_gradient, estimate.variance))
    means, errors = np.mean(found, axis=0), np.std(found, axis=0, ddof=1) / len(found) ** 0.5
    # four standard errors: a wrong formula is further off, chance one time in 16,000
    assert abs(means[0] - truth_squared) < 4 * errors[0]
    assert abs(means[1] - truth_variance) < 4 * errors[1]
    assert errors[0] < 0.02 * truth_squared
    assert errors[1] < 0.02 * truth_variance


def test_the_scale_of_an_epoch_is_the_ratio_of_means():
    """|G|^2 of 2 and 1, S of 96 and 72: 84 over 1.5, not the mean of 48 and 72."""
    found = mean_scale([norms(14.0, 5.0), norms(10.0, 3.25)])
    assert found is not None
    assert (found.squared_gradient, found.variance) == (pytest.approx(1.5), pytest.approx(84.0))
    assert found.samples == pytest.approx(56.0)
    assert mean_scale([]) is None


def test_noise_that_hides_the_gradient_gives_no_number():
    assert NoiseScale(-0.1, 5.0).samples is None
    assert NoiseScale(0.1, -5.0).samples is None


@pytest.mark.parametrize(
    ("scale", "batch", "efficiency"), [(1000, 32, 1.0), (968, 64, 1000 / 1032), (96, 224, 0.4)]
)
def test_statistical_efficiency_has_its_closed_form(scale, batch, efficiency):
    """(phi + B0) / (phi + B) with B0 = 32, of norms from which the noise scale follows without noise."""
    found = mean_efficiency([epoch(norms(1 + scale / 8, 1 + scale / 32))], 32, batch)
    assert found == pytest.approx(efficiency, rel=1e-6)


def test_without_a_measurement_there_is_none():
    assert mean_efficiency([], 32, 192) is None
    assert mean_efficiency([epoch()], 32, 192) is None


def test_the_reference_batch_is_as_efficient_as_itself():
    assert mean_efficiency([epoch(norms(14.0, 5.0))], 32, 32) == 1.0


def test_an_epoch_whose_gradient_is_hidden_counts_as_all_noise():
    """Left out, the mean would be that of the epochs that favour small batches."""
    known, hidden = norms(14.0, 5.0), norms(12.0, 2.0)  # 4 |G|^2 / 3 = (32 big - 8 small) / 24 < 0
    assert two_batch(hidden).squared_gradient < 0
    assert mean_efficiency([epoch(known), epoch(hidden)], 32, 192) == pytest.approx((80 / 240 + 1) / 2)

"""Resamples of subjects, and the t test of correlated folds."""

import numpy as np
import pytest
from scipy import stats

from sstorch.exceptions import DataError
from sstorch.metrics.comparison import bootstrap, corrected_resampled_t_test, percentiles


def of_means(first, second, n_resamples=1000):
    """Percentile limits of the difference of means of two samples of the same rows."""
    drawn = bootstrap(lambda rows: first[rows].mean() - second[rows].mean(), len(first), n_resamples, 0)
    return percentiles(drawn[:, 0], 0.95)


def test_bootstrap_of_a_mean_equals_its_normal_theory():
    first, second = np.random.default_rng(0).normal([[0.15], [0.0]], 1.0, (2, 400))
    result, difference = of_means(first, second, 4000), first - second
    error = difference.std(ddof=1) / np.sqrt(400)
    expected = difference.mean() + np.array([-1.96, 1.96]) * error
    assert result[:2] == pytest.approx(tuple(expected), abs=0.15 * error)
    assert result.p_value == pytest.approx(2 * stats.norm.sf(abs(difference.mean()) / error), abs=0.02)
    swapped = of_means(second, first, 4000)
    assert (swapped.lower, swapped.upper) == pytest.approx((-result.upper, -result.lower))
    assert swapped.p_value == result.p_value
    same = of_means(first[:8], first[:8])  # the rows of both models are the same
    assert (same.lower, same.upper, same.p_value) == (0.0, 0.0, 1.0)


def test_most_resamples_must_be_defined():
    def rarely(rows):
        if len(np.unique(rows)) < 4:
            raise DataError("not today")
        return 0.0

    found = percentiles(bootstrap(rarely, 4, 50, 0)[:, 0], 0.95)
    assert np.isnan(found[:3]).all()
    assert f"not defined in {found.n_undefined} of 50 resamples" in found.reason
    finite = percentiles(bootstrap(lambda rows: 1.0 if (rows == 0).any() else np.inf, 30, 200, 0)[:, 0], 0.95)
    assert finite.n_undefined > 0
    assert finite[:2] == (1.0, 1.0)


def test_corrected_t_test_by_hand():
    first, second = np.array([0.7, 0.8, 0.75, 0.72, 0.71]), np.array([0.69, 0.74, 0.73, 0.73, 0.68])
    difference = first - second
    result = corrected_resampled_t_test(first, second, n_train=80, n_test=20)
    error = np.sqrt(difference.var(ddof=1) * (1 / 5 + 20 / 80))
    t, half = difference.mean() / error, stats.t.ppf(0.975, 4) * error
    ends = difference.mean() - half, difference.mean() + half
    assert result == pytest.approx((difference.mean(), *ends, t, 4, 2 * stats.t.sf(t, 4)))


@pytest.mark.parametrize(
    ("first", "second", "p_value"),
    [
        ([0.5, 0.6], [0.5, 0.6], 1.0),
        ([0.75, 0.5], [0.5, 0.25], np.nan),
        ([0.713, 0.722], [0.712, 0.721], np.nan),
    ],
)
def test_equal_differences_have_no_variance(first, second, p_value):
    result = corrected_resampled_t_test(first, second, n_train=8, n_test=2)
    assert result.difference == pytest.approx(first[0] - second[0])
    assert result.p_value == pytest.approx(p_value, nan_ok=True)
    assert np.isnan(result.lower) == np.isnan(p_value)

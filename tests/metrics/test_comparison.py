import numpy as np
import pytest
from scipy import stats

from sstorch.exceptions import ConfigError, DataError
from sstorch.metrics.comparison import bootstrap, corrected_resampled_t_test, percentiles


def of_means(first, second, n_resamples=1000):
    """Percentile limits of the difference of means of two samples of the same rows."""
    drawn = bootstrap(lambda rows: first[rows].mean() - second[rows].mean(), len(first), n_resamples, 0)
    return percentiles(drawn[:, 0], 0.95)


def test_bootstrap_of_a_mean_equals_its_normal_theory():
    rng = np.random.default_rng(0)
    n = 400
    first, second = rng.normal(0.15, 1.0, n), rng.normal(0.0, 1.0, n)
    result = of_means(first, second, 4000)
    difference = first - second
    error = difference.std(ddof=1) / np.sqrt(n)
    assert result.lower == pytest.approx(difference.mean() - 1.96 * error, abs=0.15 * error)
    assert result.upper == pytest.approx(difference.mean() + 1.96 * error, abs=0.15 * error)
    assert result.p_value == pytest.approx(2 * stats.norm.sf(abs(difference.mean()) / error), abs=0.02)
    swapped = of_means(second, first, 4000)
    assert (swapped.lower, swapped.upper) == pytest.approx((-result.upper, -result.lower))
    assert swapped.p_value == result.p_value


def test_p_values_under_no_difference_are_uniform():
    rng = np.random.default_rng(1)
    p_values = [of_means(*rng.normal(size=(2, 60)), 99).p_value for _ in range(120)]
    assert stats.kstest(p_values, "uniform").pvalue > 0.01


def test_the_rows_of_both_models_are_the_same():
    prediction = np.random.default_rng(0).normal(size=8)
    result = of_means(prediction, prediction)
    assert (result.lower, result.upper, result.p_value) == (0.0, 0.0, 1.0)


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
    t = difference.mean() / error
    assert result.statistic == pytest.approx(t)
    assert result.p_value == pytest.approx(2 * stats.t.sf(t, 4))
    half = stats.t.ppf(0.975, 4) * error
    assert (result.lower, result.upper) == pytest.approx((difference.mean() - half, difference.mean() + half))
    assert result.p_value > stats.ttest_rel(first, second).pvalue
    assert result.degrees_of_freedom == 4


def test_equal_differences_have_no_variance():
    same = corrected_resampled_t_test([0.5, 0.6], [0.5, 0.6], n_train=8, n_test=2)
    assert (same.statistic, same.p_value, same.lower, same.upper) == (0.0, 1.0, 0.0, 0.0)
    shifted = corrected_resampled_t_test([0.75, 0.5], [0.5, 0.25], n_train=8, n_test=2)
    assert shifted.difference == 0.25
    assert np.isnan([shifted.statistic, shifted.p_value, shifted.lower, shifted.upper]).all()


def test_equal_differences_of_rounded_scores_have_no_p_value():
    result = corrected_resampled_t_test([0.713, 0.722, 0.701], [0.712, 0.721, 0.7], n_train=80, n_test=40)
    assert result.difference == pytest.approx(0.001)
    assert np.isnan([result.p_value, result.lower, result.upper]).all()


def test_refusals():
    with pytest.raises(DataError, match="scores of at least two splits, got 1"):
        corrected_resampled_t_test([0.5], [0.5], n_train=8, n_test=2)
    with pytest.raises(DataError, match="second: NaN in 1 row"):
        corrected_resampled_t_test([0.5, 0.6], [0.5, np.nan], n_train=8, n_test=2)
    with pytest.raises(DataError, match="must be finite scores"):
        corrected_resampled_t_test([0.5, np.inf], [0.5, 0.1], n_train=8, n_test=2)
    with pytest.raises(ConfigError, match="n_test must be at least 1, an integer, got 0"):
        corrected_resampled_t_test([0.5, 0.6], [0.5, 0.1], n_train=8, n_test=0)

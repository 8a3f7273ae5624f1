import numpy as np
import pytest
from scipy import stats

from sstorch.exceptions import ConfigError, DataError
from sstorch.metrics import corrected_resampled_t_test
from sstorch.validation.paired import bootstrap_difference


def bootstrap(first, second, statistic=np.mean, n_resamples=1000, level=0.95):
    """The difference of a statistic of two samples of the same rows."""

    def difference(rows):
        return float(statistic(first[rows]) - statistic(second[rows]))

    return bootstrap_difference(difference, len(first), n_resamples, level, random_state=0)


def test_bootstrap_of_a_mean_equals_its_normal_theory():
    rng = np.random.default_rng(0)
    n = 400
    first, second = rng.normal(0.15, 1.0, n), rng.normal(0.0, 1.0, n)
    result = bootstrap(first, second, n_resamples=4000)
    difference = first - second
    error = difference.std(ddof=1) / np.sqrt(n)
    assert result.value == pytest.approx(difference.mean(), abs=1e-12)
    assert result.lower == pytest.approx(difference.mean() - 1.96 * error, abs=0.15 * error)
    assert result.upper == pytest.approx(difference.mean() + 1.96 * error, abs=0.15 * error)
    assert result.p_value == pytest.approx(2 * stats.norm.sf(abs(difference.mean()) / error), abs=0.02)
    swapped = bootstrap(second, first, n_resamples=4000)
    assert (swapped.lower, swapped.upper) == pytest.approx((-result.upper, -result.lower))
    assert swapped.p_value == result.p_value


def test_p_values_under_no_difference_are_uniform():
    rng = np.random.default_rng(1)
    p_values = [bootstrap(*rng.normal(size=(2, 60)), n_resamples=99).p_value for _ in range(120)]
    assert stats.kstest(p_values, "uniform").pvalue > 0.01


def test_the_rows_of_both_models_are_the_same():
    prediction = np.random.default_rng(0).normal(size=8)
    result = bootstrap(prediction, prediction)
    assert (result.lower, result.upper, result.p_value) == (0.0, 0.0, 1.0)


def test_most_resamples_must_be_defined():
    def rarely(rows):
        if len(np.unique(rows)) < 4:
            raise DataError("not today")
        return 0.0

    with pytest.raises(DataError, match=r"of 50 resamples leave the metric undefined.*not today"):
        bootstrap_difference(rarely, 4, 50, 0.95, 0)


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
    rows = np.arange(3.0)
    with pytest.raises(ConfigError, match="n_resamples must be at least 20, an integer, got 5"):
        bootstrap(rows, rows, n_resamples=5)
    with pytest.raises(ConfigError, match=r"level must be a number in \(0, 1\), got 95"):
        bootstrap(rows, rows, level=95)
    with pytest.raises(DataError, match="scores of at least two splits, got 1"):
        corrected_resampled_t_test([0.5], [0.5], n_train=8, n_test=2)
    with pytest.raises(DataError, match="second: NaN in 1 row"):
        corrected_resampled_t_test([0.5, 0.6], [0.5, np.nan], n_train=8, n_test=2)
    with pytest.raises(DataError, match="must be finite scores"):
        corrected_resampled_t_test([0.5, np.inf], [0.5, 0.1], n_train=8, n_test=2)
    with pytest.raises(ConfigError, match="n_test must be at least 1, an integer, got 0"):
        corrected_resampled_t_test([0.5, 0.6], [0.5, 0.1], n_train=8, n_test=0)


def test_differences_that_are_not_finite():
    rows = np.arange(1.0, 31.0)
    with pytest.raises(DataError, match="must have a finite difference on the rows, got nan"):
        bootstrap(rows, rows, lambda values: np.nan)

    def infinite_without_the_first_row(rows):
        return 1.0 if (rows == 0).any() else np.inf

    result = bootstrap_difference(infinite_without_the_first_row, 30, np.int64(200), 0.95, 0)
    assert (result.value, result.lower, result.upper) == pytest.approx((1.0, 1.0, 1.0))

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from sstorch.bench.report import Results
from sstorch.bench.report.comparisons import (
    compare_folds,
    fold_section,
    friedman_test,
    holm,
    nemenyi_critical_difference,
    ranks,
    wilcoxon_pairs,
)
from sstorch.document import Section
from sstorch.exceptions import DataError

from .studies import results_of, rows, study


def _scores(n: int, k: int, decimals: int) -> pd.DataFrame:
    values = np.random.default_rng(n + k).normal(0.7, 0.05, (n, k)).round(decimals)
    return pd.DataFrame(values, columns=[f"m{j}" for j in range(k)])


def test_ranks_against_scipy() -> None:
    scores = _scores(9, 5, decimals=2)
    for sign in (1.0, -1.0):
        expected = np.apply_along_axis(stats.rankdata, 1, sign * scores.to_numpy())
        np.testing.assert_array_equal(ranks(scores, higher_is_better=sign < 0), expected)
    with pytest.raises(DataError, match="NaN"):
        ranks(scores.mask(scores == scores.max().max()), higher_is_better=True)


@pytest.mark.parametrize("decimals", [1, 2, 8])  # many ties, few, none
def test_friedman_is_scaled_by_the_spread_of_the_ranks(decimals: int) -> None:
    n, k = 15, 6
    table = ranks(_scores(n, k, decimals), higher_is_better=True)
    spread = ((table - (k + 1) / 2) ** 2).to_numpy().sum()
    between = ((table.mean() - (k + 1) / 2) ** 2).sum()
    chi_squared = n * n * (k - 1) * between / spread
    test = friedman_test(table)
    expected = [chi_squared, stats.chi2.sf(chi_squared, k - 1)]
    np.testing.assert_allclose([test.chi_squared, test.p_value], expected)


def test_iman_davenport_of_demsar() -> None:
    # Demšar (2006), section 3.2.2: N = 14, k = 4, chi-squared 9.28, F 3.69 with 3 and 39 degrees of freedom.
    c45 = [0.763, 0.599, 0.954, 0.628, 0.882, 0.936, 0.661, 0.583, 0.775, 1.000, 0.940, 0.619, 0.972, 0.957]
    m = [0.768, 0.591, 0.971, 0.661, 0.888, 0.931, 0.668, 0.583, 0.838, 1.000, 0.962, 0.666, 0.981, 0.978]
    cf = [0.771, 0.590, 0.968, 0.654, 0.886, 0.916, 0.609, 0.563, 0.866, 1.000, 0.965, 0.614, 0.9751, 0.946]
    both = [0.798, 0.569, 0.967, 0.657, 0.898, 0.931, 0.685, 0.625, 0.875, 1.000, 0.962, 0.669, 0.975, 0.970]
    table = ranks(pd.DataFrame({"c45": c45, "m": m, "cf": cf, "both": both}), higher_is_better=True)
    np.testing.assert_allclose(table.mean(), [3.143, 2.000, 2.893, 1.964], atol=5e-4)
    test = friedman_test(table)
    n, k = table.shape
    assert test.f_statistic == pytest.approx((n - 1) * test.chi_squared / (n * (k - 1) - test.chi_squared))
    assert test.f_p_value == pytest.approx(stats.f.sf(test.f_statistic, 3, 39))
    # The paper's statistic is not corrected for ties.
    plain = 12 * n / (k * (k + 1)) * ((table.mean() ** 2).sum() - k * (k + 1) ** 2 / 4)
    assert plain == pytest.approx(9.28, abs=0.01)
    assert test.chi_squared > plain


def test_friedman_of_ties_and_of_agreement() -> None:
    tied = friedman_test(pd.DataFrame(np.full((5, 3), 2.0)))
    assert (tied.p_value, tied.f_p_value) == (1.0, 1.0)
    agreed = friedman_test(pd.DataFrame([[1.0, 2.0, 3.0]] * 4))
    assert agreed.chi_squared == pytest.approx(8.0)
    assert (agreed.f_statistic, agreed.f_p_value) == (np.inf, 0.0)
    with pytest.raises(DataError, match="3 models"):
        friedman_test(pd.DataFrame([[1.0, 2.0], [2.0, 1.0]]))


@pytest.mark.parametrize(("k", "q"), [(2, 1.960), (5, 2.728), (10, 3.164)])  # Demšar (2006), table 5
def test_nemenyi_against_the_published_table(k: int, q: float) -> None:
    expected = q * np.sqrt(k * (k + 1) / (6 * 15))
    assert nemenyi_critical_difference(k, 15) == pytest.approx(expected, rel=5e-4)


def test_holm_by_hand() -> None:
    p_values = {("a", "b"): 0.001, ("a", "c"): 0.3, ("b", "c"): 0.02, ("c", "d"): 0.019}
    adjusted = holm(p_values)
    assert list(adjusted) == list(p_values)
    np.testing.assert_allclose(list(adjusted.values()), [0.004, 0.3, 0.057, 0.057])


def test_wilcoxon_pairs() -> None:
    scores = _scores(12, 3, decimals=8)
    scores["m2"] = scores["m0"]
    adjusted = wilcoxon_pairs(scores)
    p = float(stats.wilcoxon(scores["m0"], scores["m1"]).pvalue)
    assert adjusted["m0", "m1"] == pytest.approx(min(1.0, 3 * p))
    assert adjusted["m0", "m2"] == 1.0


def test_variance_is_corrected_for_shared_training_rows() -> None:
    one, two = pd.Series([0.70, 0.74, 0.69, 0.75, 0.71]), pd.Series([0.68, 0.70, 0.70, 0.71, 0.70])
    test = compare_folds(one, two)
    assert test is not None
    difference = one - two
    t = difference.mean() / np.sqrt(difference.var(ddof=1) * (1 / 5 + 1 / 4))
    assert test.difference == pytest.approx(0.02)
    assert test.p_value == pytest.approx(2 * stats.t.sf(t, 4))
    undefined, infinite = (pd.Series([0.7, value, 0.6, 0.7, 0.7]) for value in (np.nan, -np.inf))
    for other in (two[:4], undefined, infinite):
        assert compare_folds(one, other) is None
    assert compare_folds(one, one) is not None


def test_wins_ties_and_losses() -> None:
    tables = []
    for dataset, gain in (("aids", 0.05), ("gbsg2", 0.0), ("veterans", -0.05)):
        # The start that is chosen, the second, is the better one.
        other = gain + 1e-4  # in the second fold: equal differences have no variance to test with
        soft = [[0.70 + gain - 0.02, 0.70 + gain + 0.02], [0.72 + other - 0.02, 0.72 + other + 0.02]]
        tables += [
            rows(dataset, "sst_llog", 2, {"c_harrell": soft}, chosen=1),
            rows(dataset, "cox", None, {"c_harrell": [[0.70], [0.72]]}),
        ]
    section = fold_section(results_of(pd.concat(tables)))
    assert section is not None
    inner = section.blocks[1]
    assert isinstance(inner, Section)
    (counts,) = inner.blocks[0].to_numpy()
    # Folds that all but agree leave no doubt.
    assert list(counts) == ["1 / 1 / 1", "1 / 1 / 1", "2 / 0 / 1", "2 / 0 / 1"]


def test_folds_of_other_seeds_are_not_compared() -> None:
    table, records = study({("aids", "sst_llog", 2): 0.7, ("aids", "cox", None): 0.6})
    assert fold_section(Results(table, [record | {"seed": 1} for record in records])) is not None
    assert fold_section(Results(table, [record | {"seed": k} for k, record in enumerate(records)])) is None
    without = {("aids", "sst_llog", 2): 0.7, ("aids", "ctree", 2): 0.6}
    assert fold_section(Results(*study(without))) is None

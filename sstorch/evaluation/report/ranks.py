"""Several models on several data sets: average ranks, and which differences are more than chance.

The procedure of Demšar (2006), Journal of Machine Learning Research 7, 1-30.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import combinations

import numpy as np
import pandas as pd
from scipy import stats

from sstorch.exceptions import DataError


@dataclass(frozen=True)
class FriedmanTest:
    """Result of `friedman_test`.

    Attributes:
        chi_squared: Friedman's statistic, corrected for ties, with n_models - 1 degrees of freedom.
        p_value: of no difference between the models.
        f_statistic: the form of Iman and Davenport, which is less conservative.
        f_p_value: of that form.
    """

    chi_squared: float
    p_value: float
    f_statistic: float
    f_p_value: float


def ranks(scores: pd.DataFrame, *, higher_is_better: bool) -> pd.DataFrame:
    """Ranks of the models on each data set, 1 the best, ties sharing the mean of their ranks.

    Args:
        scores: a row a data set, a column a model, no NaN.
        higher_is_better: direction of the score.

    Raises:
        DataError: a score is NaN.
    """
    if scores.isna().to_numpy().any():
        raise DataError("scores: expected a value for every model on every data set; some are NaN.")
    return scores.rank(axis=1, method="average", ascending=not higher_is_better)


def friedman_test(table: pd.DataFrame) -> FriedmanTest:
    """Friedman's test that all models have the same average rank.

    Args:
        table: ranks, a row a data set, a column a model, as of `ranks`.

    Returns:
        Both forms of the statistic with their p-values. Where all models tie everywhere the p-values are 1.

    Raises:
        DataError: fewer than three models or fewer than two data sets.

    References:
        Friedman (1937); Iman and Davenport (1980), Communications in Statistics 9, 571-595.
    """
    n, k = table.shape
    if k < 3 or n < 2:
        raise DataError(f"table: expected at least 3 models on 2 data sets; got {k} on {n}.")
    values = table.to_numpy(dtype=float)
    spread = float(((values - 0.5 * (k + 1)) ** 2).sum())
    between = float(((values.mean(axis=0) - 0.5 * (k + 1)) ** 2).sum())
    if spread == 0.0:
        return FriedmanTest(0.0, 1.0, 0.0, 1.0)
    # Ties shrink the spread of the ranks, so the statistic is scaled by the spread that is there.
    chi_squared = n * n * (k - 1) * between / spread
    rest = n * (k - 1) - chi_squared
    f = np.inf if rest <= 1e-12 * n * k else (n - 1) * chi_squared / rest
    return FriedmanTest(
        chi_squared,
        float(stats.chi2.sf(chi_squared, k - 1)),
        float(f),
        float(stats.f.sf(f, k - 1, (k - 1) * (n - 1))),
    )


def nemenyi_critical_difference(n_models: int, n_datasets: int, level: float = 0.05) -> float:
    """The difference of two average ranks beyond which it is significant, all pairs considered.

    Args:
        n_models: number of models, at least 2.
        n_datasets: number of data sets, at least 1.
        level: family-wise error.

    References:
        Nemenyi (1963); Demšar (2006), section 3.2.2.

    Examples:
        >>> round(nemenyi_critical_difference(4, 14), 2)
        1.25
    """
    q = float(stats.studentized_range.ppf(1.0 - level, n_models, np.inf)) / np.sqrt(2.0)
    return float(q * np.sqrt(n_models * (n_models + 1) / (6.0 * n_datasets)))


def holm(p_values: Mapping[tuple[str, str], float]) -> dict[tuple[str, str], float]:
    """Holm's adjusted p-values, in the order given.

    References:
        Holm (1979), Scandinavian Journal of Statistics 6, 65-70.

    Examples:
        >>> holm({("a", "b"): 0.01, ("a", "c"): 0.04, ("b", "c"): 0.03})
        {('a', 'b'): 0.03, ('a', 'c'): 0.06, ('b', 'c'): 0.06}
    """
    largest = 0.0
    adjusted = {}
    for position, pair in enumerate(sorted(p_values, key=lambda pair: p_values[pair])):
        largest = max(largest, min(1.0, (len(p_values) - position) * p_values[pair]))
        adjusted[pair] = largest
    return {pair: adjusted[pair] for pair in p_values}


def wilcoxon_pairs(scores: pd.DataFrame) -> dict[tuple[str, str], float]:
    """Holm-adjusted p-values of Wilcoxon's signed-rank test between all pairs of models.

    Differences of 0 are split between both signs.

    Args:
        scores: a row a data set, a column a model, no NaN.
    """
    p_values = {}
    for one, two in combinations(scores.columns, 2):
        difference = (scores[one] - scores[two]).to_numpy(dtype=float)
        if not difference.any():
            p_values[one, two] = 1.0
            continue
        p_values[one, two] = float(stats.wilcoxon(difference, zero_method="zsplit").pvalue)
    return holm(p_values)

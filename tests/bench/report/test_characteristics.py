"""Descriptions of the rows of a run."""

import numpy as np
import pandas as pd
import pytest

from sstorch.bench.report.characteristics import columns_table, standardised_difference


def test_standardised_differences() -> None:
    draws = np.random.default_rng(0)
    a, b = pd.Series(draws.normal(size=50)), pd.Series(draws.normal(0.5, 2.0, size=70))
    expected = abs(a.mean() - b.mean()) / np.sqrt((a.var() + b.var()) / 2)
    assert standardised_difference(a, b) == pytest.approx(expected, rel=1e-12)
    words = pd.CategoricalDtype(["x", "y", "z"])
    one, two = (
        pd.Series(draws.choice(["x", "y"], n, p=[p, 1 - p])).astype(words) for n, p in ((80, 0.3), (90, 0.6))
    )
    p, q = (one == "x").mean(), (two == "x").mean()
    expected = abs(p - q) / np.sqrt((p * (1 - p) + q * (1 - q)) / 2)
    assert standardised_difference(one, two) == pytest.approx(expected, rel=1e-9)
    # Shares .5, .3, .2 and .2, .3, .5: the distance by an inverse of the mean covariance of two categories.
    one, two = (pd.Series(["x"] * i + ["y"] * 3 + ["z"] * k).astype(words) for i, k in ((5, 2), (2, 5)))
    covariance = np.array([[0.205, -0.105], [-0.105, 0.21]])
    gap = np.array([0.3, 0.0])
    expected = float(np.sqrt(gap @ np.linalg.inv(covariance) @ gap))
    assert standardised_difference(one, two) == pytest.approx(expected, rel=1e-9)
    assert standardised_difference(a, a) == 0
    assert standardised_difference(pd.Series([1.0, 1.0]), pd.Series([2.0, 2.0])) == np.inf
    assert np.isnan(standardised_difference(a, pd.Series([np.nan])))


def test_shares_of_categories_are_of_known_values_and_one_other_is_named() -> None:
    words = pd.Series([*"aabcdefg", None, None]).astype("category")
    table = columns_table(pd.DataFrame({"g": words}), np.zeros(10, dtype=int), ["g"], "")
    assert [cell.text for cell in table.iloc[:, 0]] == ["2 (25 %)", *["1 (12 %)"] * 6]
    assert table.index[-1].text == "g = g"

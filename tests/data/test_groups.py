"""Sensitive groups at the gate."""

import numpy as np
import pandas as pd
import pytest

from sstorch.data import SurvivalData
from sstorch.data.target import parse_groups
from sstorch.exceptions import ConfigError, DataError

Y = ([5.0, 3.0, 7.0, 8.0], [1, 0, 1, 0])
X = pd.DataFrame({"age": [50, 60, 70, 40], "sex": ["f", "m", "m", "f"], "old": [0, 0, 1, 0]})


def test_a_named_column_is_taken_out_of_the_features() -> None:
    data = SurvivalData(X, Y, sensitive="sex")
    assert data.feature_names == ["age", "old"]
    assert data.groups is not None
    assert (data.groups.name, data.groups.labels) == ("sex", ("f", "m"))
    assert data.groups.codes.tolist() == [0, 1, 1, 0]
    assert data.groups.counts.tolist() == [2, 2]
    part = data.subset([1, 2])
    assert part.groups is not None
    assert part.groups.labels == ("f", "m")
    assert part.groups.counts.tolist() == [0, 2]


def test_values_beside_the_features_leave_these_alone() -> None:
    data = SurvivalData(X, Y, sensitive=X["sex"])
    assert data.feature_names == ["age", "sex", "old"]
    assert data.groups is not None
    assert data.groups.name == "sex"
    stays = SurvivalData(X, Y).with_sensitive("sex", feature=True)
    assert stays.feature_names == ["age", "sex", "old"]
    other = SurvivalData(X, Y).with_sensitive([True, False, True, True])
    assert other.groups is not None
    assert other.groups.labels == ("False", "True")
    numbers = SurvivalData(X, Y).with_sensitive("old")
    assert numbers.groups is not None
    assert numbers.groups.labels == ("0", "1")
    assert SurvivalData(X, Y).groups is None


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (["f", None, "m", None], r"sensitive is missing in 2 rows \(.*1, 3\); drop these"),
        (pd.Series(["f", None, "m", "m"], name="sex"), r"'sex' is missing in 1 row \(0-based position 1\)"),
        (np.array([1.0, np.nan, 2.0, 2.0]), "is missing in 1 row"),
        (["f"] * 4, "is f in every row; two groups"),
        (["f", "m"], r"must have one label for each of 4 rows, got shape \(2,\)"),
        ([["f"], ["m"], ["m"], ["f"]], r"shape \(4, 1\)"),
    ],
)
def test_what_cannot_be_groups_is_refused(values: object, message: str) -> None:
    with pytest.raises(DataError, match=message):
        SurvivalData(X, Y, sensitive=values)


def test_a_measurement_is_no_group() -> None:
    with pytest.raises(DataError, match=r"21 different values; at most 20 groups.*pd\.cut"):
        parse_groups(np.arange(21.0), 21, "age")


def test_columns_that_do_not_fit_are_refused() -> None:
    with pytest.raises((DataError, ConfigError), match="gender"):
        SurvivalData(X, Y, sensitive="gender")
    with pytest.raises(DataError, match="no feature column is left apart from the sensitive column 'sex'"):
        SurvivalData(X[["sex"]], Y, sensitive="sex")
    with pytest.raises(DataError, match="different order"):
        SurvivalData(X, Y, sensitive=X["sex"].iloc[::-1])


def test_one_group_with_weight_cannot_be_compared() -> None:
    groups = parse_groups(["f", "m", "m"], 3, "sex")
    groups.check_pairs(np.ones(3), "the rows")
    with pytest.raises(DataError, match="the rows are all of one group, sex=m"):
        groups.check_pairs(np.array([0.0, 1.0, 1.0]), "the rows")

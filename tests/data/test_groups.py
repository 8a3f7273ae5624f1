"""Sensitive groups at the gate."""

import pandas as pd

from sstorch.data import SurvivalData

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

"""Columns of a frame as target, weights and entry times, in the words of lifelines."""

from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest

from sstorch import (
    OptimalSurvivalTree,
    OptimalSurvivalTreeCV,
    SoftSurvivalTree,
    SoftSurvivalTreeCV,
    SurvivalData,
)
from sstorch.data.named_columns import split_columns
from sstorch.exceptions import ConfigError, DataError
from sstorch.soft import CompetingRisksTree

NOTHING: dict[str, Any] = {"duration_col": None, "event_col": None}


@pytest.fixture
def frame(small_data: SurvivalData) -> pd.DataFrame:
    columns = {"days": small_data.time, "died": small_data.event}
    return small_data.frame.assign(**columns, times_counted=1.0 + small_data.event, start=0.25)


def test_columns_stand_for_the_arguments(frame: pd.DataFrame) -> None:
    named = {"weights_col": "times_counted", "entry_col": "start"}
    for given in (frame, pl.from_pandas(frame)):
        X, y, weight, entry, _ = split_columns(given, None, duration_col="days", event_col="died", **named)
        assert list(X.columns) == ["x0", "x1", "x2"]
        for found, name in zip((*y, weight, entry), ("days", "died", "times_counted", "start"), strict=True):
            assert found.tolist() == frame[name].tolist()


def test_where_none_is_named_all_stays() -> None:
    given = ("X", "y", "weights", "entry", "id")
    assert split_columns(*given, **NOTHING) == given


def test_without_a_column_of_events_every_row_has_one(frame: pd.DataFrame) -> None:
    _, (_, event), *_ = split_columns(frame, None, duration_col="days", event_col=None)
    assert event.all()
    assert event.index is frame.index


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"duration_col": None}, ConfigError, "event_col names a column of X, and duration_col does not"),
        ({"y": ([1.0], [1])}, ConfigError, "duration_col and y say the same"),
        ({"sample_weight": [1.0], "weights_col": "x0"}, ConfigError, "weights_col and sample_weight say"),
        ({"entry": [1.0], "entry_col": "x0"}, ConfigError, "entry_col and entry say the same"),
        ({"id": [1], "id_col": "x0"}, ConfigError, "id_col and id say the same"),
        ({"event_col": "days"}, ConfigError, "column 'days' is named for two things"),
        ({"event_col": "die"}, DataError, "no column 'die'.*Did you mean 'died'"),
        ({"X": np.ones((2, 2))}, DataError, "X is a ndarray; with duration_col give a DataFrame"),
        ({"X": pd.DataFrame({"days": [1.0], "died": [1]})}, DataError, "no feature column is left"),
    ],
)
def test_what_contradicts_itself_is_refused(
    frame: pd.DataFrame, arguments: dict[str, Any], error: type[Exception], message: str
) -> None:
    given = {"X": frame, "y": None, "duration_col": "days", "event_col": "died"} | arguments
    with pytest.raises(error, match=message):
        split_columns(**given)


@pytest.mark.parametrize(
    "estimator",
    [
        SoftSurvivalTree(depth=0),
        SoftSurvivalTreeCV(depth=0, leaf="weibull", ridge=1e-3, numeric="linear", cv=2),
        OptimalSurvivalTree(1),
        OptimalSurvivalTreeCV(1, n_folds=2),
    ],
    ids=lambda estimator: type(estimator).__name__,
)
def test_every_survival_estimator_reads_them(estimator: Any, frame: pd.DataFrame) -> None:
    features = frame[["x0", "x1", "x2"]]
    expected = estimator.fit(features, (frame["days"], frame["died"])).predict(features)
    rows = frame.drop(columns=["times_counted", "start"])
    fitted = estimator.fit(rows, duration_col="days", event_col="died")
    assert fitted.feature_names_in_.tolist() == ["x0", "x1", "x2"]
    np.testing.assert_array_equal(fitted.predict(frame), expected)
    with pytest.raises(DataError, match="to name columns of X, write duration_col='days'"):
        estimator.fit(rows, "days")


def test_weights_and_entry_times_reach_the_fit(frame: pd.DataFrame) -> None:
    features, y = frame[["x0", "x1", "x2"]], (frame["days"], frame["died"])
    tree = SoftSurvivalTree(depth=0)
    expected = tree.fit(features, y, frame["times_counted"], frame["start"]).predict(features)
    columns = {"weights_col": "times_counted", "entry_col": "start"}
    fitted = tree.fit(frame, duration_col="days", event_col="died", **columns)
    np.testing.assert_array_equal(fitted.predict(features), expected)
    assert not np.allclose(tree.fit(features, y).predict(features), expected, rtol=1e-3)


def test_the_column_of_events_holds_causes(frame: pd.DataFrame) -> None:
    rows = frame[["x0", "x1", "x2", "days"]].assign(cause=frame["died"] * (1 + (frame["x0"] > 0.5)))
    tree = CompetingRisksTree(depth=0)
    expected = tree.fit(rows[["x0", "x1", "x2"]], (rows["days"], rows["cause"])).predict(rows)
    np.testing.assert_array_equal(
        tree.fit(rows, duration_col="days", event_col="cause").predict(rows), expected
    )

"""Columns of a frame as the outcome of every estimator: Surv.of."""

from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest

from sstorch import (
    Columns,
    OptimalSurvivalTree,
    OptimalSurvivalTreeCV,
    Surv,
    SurvivalData,
    SurvivalRegression,
)
from sstorch.exceptions import DataError

REGRESSION = SurvivalRegression("weibull", columns=Columns(numeric="linear"))


@pytest.fixture
def frame(small_data: SurvivalData) -> pd.DataFrame:
    columns = {"days": small_data.time, "died": small_data.event}
    return small_data.frame.assign(**columns, times_counted=1.0 + small_data.event, start=0.25)


def test_columns_are_the_parts_of_the_outcome(frame: pd.DataFrame) -> None:
    for given in (frame, pl.from_pandas(frame)):
        y = Surv.of(given, "days", "died", entry="start", weight="times_counted")
        for part, name in (
            ("time", "days"),
            ("event", "died"),
            ("entry", "start"),
            ("weight", "times_counted"),
        ):
            assert getattr(y, part).tolist() == frame[name].tolist()


@pytest.mark.parametrize(
    "estimator",
    [
        REGRESSION,
        OptimalSurvivalTree(1),
        OptimalSurvivalTreeCV(1, n_folds=2),
    ],
    ids=lambda estimator: type(estimator).__name__,
)
def test_columns_of_the_outcome_are_no_features(estimator: Any, frame: pd.DataFrame) -> None:
    features = frame[["x0", "x1", "x2"]]
    expected = estimator.fit(features, (frame["days"], frame["died"])).predict(features)
    rows = frame.drop(columns=["times_counted", "start"])
    fitted = estimator.fit(rows, Surv.of(rows, time="days", event="died"))
    assert fitted.feature_names_in_.tolist() == ["x0", "x1", "x2"]
    np.testing.assert_array_equal(fitted.predict(frame), expected)
    with pytest.raises(DataError, match=r"give Surv\.of\(frame, time='days', event=\.\.\.\)"):
        estimator.fit(rows, "days")


def test_weights_and_entry_times_reach_the_fit(frame: pd.DataFrame) -> None:
    features, tree = frame[["x0", "x1", "x2"]], REGRESSION
    y = Surv(frame["days"], frame["died"], entry=frame["start"])
    expected = tree.fit(features, y, frame["times_counted"]).predict(features)
    fitted = tree.fit(frame, Surv.of(frame, "days", "died", entry="start", weight="times_counted"))
    np.testing.assert_array_equal(fitted.predict(features), expected)
    plain = tree.fit(features, (frame["days"], frame["died"]))
    assert not np.allclose(plain.predict(features), expected, rtol=1e-3)


@pytest.mark.parametrize("role", ["days", "died", "start", "times_counted"])
@pytest.mark.parametrize("kind", ["numbers", "text"])
def test_another_column_of_the_name_of_a_role_raises(frame: pd.DataFrame, role: str, kind: str) -> None:
    # A feature called as the weights was dropped in silence; text called as the times ended in ValueError.
    y = Surv.of(frame, "days", "died", entry="start", weight="times_counted")
    values = np.random.default_rng(0).normal(70, 10, len(frame))
    other = values if kind == "numbers" else np.where(values > 70, "high", "low")
    with pytest.raises(DataError, match=f"column {role!r} of X is not the column of the"):
        SurvivalData(frame[["x0"]].assign(**{role: other}), y)


def test_equal_columns_of_roles_are_dropped(frame: pd.DataFrame) -> None:
    words = frame.assign(state=np.where(frame["died"], "dead", "alive"))
    y = Surv.of(words, "days", "state", event_value="Dead", entry="start", weight="times_counted")
    for given in (words, words.astype({"state": "category", "days": "float32"}), pl.from_pandas(words)):
        X = given.drop("died") if isinstance(given, pl.DataFrame) else given.drop(columns="died")
        assert set(SurvivalData(X, y).feature_names) == {"x0", "x1", "x2"}
    part = words.drop(columns="died").iloc[5:60]
    assert set(SurvivalData(part, y[5:60]).feature_names) == {"x0", "x1", "x2"}

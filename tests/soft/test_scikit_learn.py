"""The estimators inside scikit-learn: its own checks, its tools, and its routing of metadata."""

from typing import Any

import numpy as np
import pandas as pd
import pytest
import sklearn
from sklearn.base import clone
from sklearn.exceptions import UnsetMetadataPassedError
from sklearn.model_selection import GridSearchCV, cross_validate

from sstorch import (
    OptimalSurvivalTree,
    SoftSurvivalTree,
    Surv,
    SurvivalData,
)
from sstorch.optim import Nodec
from tests.flat import soft_tree


def _quick(**values: Any) -> SoftSurvivalTree:
    settings = {"depth": 1, "n_starts": 1, "init": "random", "trainer": Nodec(macro_iterations=1)}
    return soft_tree(**settings | values)


def test_metadata_is_routed_to_fit_and_score(gbsg2: SurvivalData) -> None:
    rng = np.random.default_rng(3)
    extra = {
        "sample_weight": rng.integers(1, 4, len(gbsg2)).astype(float),
        "sensitive": gbsg2.frame["menostat"],
    }
    y = Surv(gbsg2.time, gbsg2.event, entry=0.3 * gbsg2.time * rng.uniform(size=len(gbsg2)))
    tree = _quick(fairness="l2", rho=0.01)
    with sklearn.config_context(enable_metadata_routing=True):
        asked = clone(tree).set_fit_request(sample_weight=True, sensitive=True)
        with pytest.raises(UnsetMetadataPassedError, match=r"\[sample_weight\] are passed but are not"):
            cross_validate(asked, gbsg2.frame, y, params=extra)
        asked.set_score_request(sample_weight=True)
        found = cross_validate(asked, gbsg2.frame, y, cv=2, params=extra, return_indices=True)
        search = GridSearchCV(asked, {"depth": [1]}, cv=2).fit(gbsg2.frame, y, **extra)
    np.testing.assert_allclose(search.cv_results_["mean_test_score"][0], found["test_score"].mean())
    train, test = found["indices"]["train"][0], found["indices"]["test"][0]
    by_hand = clone(tree).fit(
        gbsg2.frame.iloc[train],
        y[train],
        sample_weight=extra["sample_weight"][train],
        sensitive=extra["sensitive"].iloc[train],
    )
    rows = gbsg2.frame.iloc[test], y[test]
    weight = extra["sample_weight"][test]
    score = by_hand.score(*rows, sample_weight=weight)
    assert found["test_score"][0] == pytest.approx(score, rel=1e-12)
    from_zero = Surv(y.time[test], y.event[test], entry=np.zeros(len(test)))  # type: ignore[index]
    assert len({score, by_hand.score(*rows), by_hand.score(rows[0], from_zero, weight)}) == 3


def test_frames_of_polars_are_read(gbsg2: SurvivalData) -> None:
    pl = pytest.importorskip("polars")
    frame = gbsg2.frame.copy()
    frame.loc[::7, "age"] = np.nan
    frame["old"] = frame["age"] > 50
    X = pl.DataFrame(
        {
            name: pl.Series(name, frame[name].astype(str).to_list(), dtype=pl.Categorical)
            if frame[name].dtype == "category"
            else pl.Series(name, frame[name].to_numpy(), nan_to_null=True)
            for name in frame
        }
    )
    assert X["age"].null_count() > 50
    y = pl.DataFrame({"time": gbsg2.time, "event": gbsg2.event})
    ours, theirs = _quick().fit(frame, (gbsg2.time, gbsg2.event)), _quick().fit(X, y)
    # Categories come in another order, and so do the starts: the encoded rows are the same.
    encoded = pd.DataFrame(theirs.preprocessor_.transform(X), columns=theirs.preprocessor_.feature_names_out)
    same = pd.DataFrame(ours.preprocessor_.transform(frame), columns=ours.preprocessor_.feature_names_out)
    pd.testing.assert_frame_equal(encoded[list(same)], same)
    np.testing.assert_array_equal(theirs.predict(frame), theirs.predict(X))
    assert list(theirs.feature_names_in_) == list(frame)
    pair = _quick().fit(X, (y["time"], y["event"]), sample_weight=pl.Series([1.0] * len(X)))
    np.testing.assert_array_equal(pair.predict(X), theirs.predict(X))
    exact = OptimalSurvivalTree(1).fit(X, y)
    np.testing.assert_array_equal(exact.apply(X), exact.apply(frame))
    assert theirs.score(X, y) > 0.6

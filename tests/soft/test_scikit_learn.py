"""The estimators inside scikit-learn and with polars: routing of metadata, frames of other packages."""

import numpy as np
import pandas as pd
import pytest
import sklearn
from sklearn.base import clone
from sklearn.exceptions import UnsetMetadataPassedError
from sklearn.model_selection import GridSearchCV, cross_validate

from sstorch import Surv, SurvivalData
from sstorch.optim import Nodec
from tests.flat import soft_tree

QUICK = {"depth": 1, "n_starts": 1, "init": "random", "trainer": Nodec(macro_iterations=1)}


def test_metadata_is_routed_to_fit_and_score(gbsg2: SurvivalData) -> None:
    X, rng, weight = gbsg2.frame, np.random.default_rng(3), "sample_weight"
    weights = rng.integers(1, 4, len(gbsg2)).astype(float)
    extra = {weight: weights, "sensitive": X["menostat"]}
    y = Surv(gbsg2.time, gbsg2.event, entry=0.3 * gbsg2.time * rng.uniform(size=len(gbsg2)))
    tree = soft_tree(**QUICK, fairness="l2", rho=0.01)
    with sklearn.config_context(enable_metadata_routing=True):
        asked = clone(tree).set_fit_request(sample_weight=True, sensitive=True)
        with pytest.raises(UnsetMetadataPassedError, match=r"\[sample_weight\] are passed but are not"):
            cross_validate(asked, X, y, params=extra)
        asked.set_score_request(sample_weight=True)
        found = cross_validate(asked, X, y, cv=2, params=extra, return_indices=True)
        search = GridSearchCV(asked, {"depth": [1]}, cv=2).fit(X, y, **extra)
    np.testing.assert_allclose(search.cv_results_["mean_test_score"][0], found["test_score"].mean())
    train, test = found["indices"]["train"][0], found["indices"]["test"][0]
    groups = X["menostat"].iloc[train]
    by_hand = clone(tree).fit(X.iloc[train], y[train], sample_weight=weights[train], sensitive=groups)
    rows = X.iloc[test], y[test]
    score = by_hand.score(*rows, sample_weight=weights[test])
    assert found["test_score"][0] == pytest.approx(score, rel=1e-12)
    from_zero = Surv(y.time[test], y.event[test], entry=np.zeros(len(test)))  # type: ignore[index]
    assert len({score, by_hand.score(*rows), by_hand.score(rows[0], from_zero, weights[test])}) == 3


def test_frames_of_polars_are_read(gbsg2: SurvivalData) -> None:
    pl = pytest.importorskip("polars")
    frame = gbsg2.frame.assign(age=gbsg2.frame["age"].where(np.arange(686) % 7 > 0))
    frame["old"] = frame["age"] > 50
    series = {
        name: pl.Series(name, frame[name].astype(str).to_list(), dtype=pl.Categorical)
        if frame[name].dtype == "category"
        else pl.Series(name, frame[name].to_numpy(), nan_to_null=True)
        for name in frame
    }
    X, y = pl.DataFrame(series), pl.DataFrame({"time": gbsg2.time, "event": gbsg2.event})
    assert X["age"].null_count() > 50
    ours = soft_tree(**QUICK).fit(frame, (gbsg2.time, gbsg2.event))
    theirs = soft_tree(**QUICK).fit(X, y)
    # Categories come in another order, and so do the starts: the encoded rows are the same.
    encoded, same = (
        pd.DataFrame(tree.preprocessor_.transform(rows), columns=tree.preprocessor_.feature_names_out)
        for tree, rows in ((theirs, X), (ours, frame))
    )
    pd.testing.assert_frame_equal(encoded[list(same)], same)
    np.testing.assert_array_equal(theirs.predict(frame), theirs.predict(X))
    assert list(theirs.feature_names_in_) == list(frame)
    pair = soft_tree(**QUICK).fit(X, (y["time"], y["event"]), sample_weight=pl.Series([1.0] * len(X)))
    np.testing.assert_array_equal(pair.predict(X), theirs.predict(X))
    assert theirs.score(X, y) > 0.6

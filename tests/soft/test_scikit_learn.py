"""The estimators inside scikit-learn and with polars: routing of metadata, frames of other packages."""

import numpy as np
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

"""The estimators inside scikit-learn: its own checks, its tools, and its routing of metadata."""

import pickle
from typing import Any

import numpy as np
import pandas as pd
import pytest
import sklearn
from sklearn.base import BaseEstimator, clone
from sklearn.compose import ColumnTransformer
from sklearn.exceptions import UnsetMetadataPassedError
from sklearn.model_selection import GridSearchCV, cross_validate
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from sklearn.utils.estimator_checks import check_estimator

from sstorch import (
    OptimalSurvivalTree,
    OptimalSurvivalTreeCV,
    SoftSurvivalTree,
    Surv,
    SurvivalData,
)
from sstorch.optim import Nodec
from tests.conftest import nightly
from tests.flat import soft_tree

_PLAIN_Y = "y of this check is one plain column, which does not say what is time and what is an event"
_NEEDS_FIT = (
    "check_all_zero_sample_weights_error",
    "check_dict_unchanged",
    "check_dont_overwrite_parameters",
    "check_dtype_object",
    "check_estimator_sparse_array",
    "check_estimator_sparse_matrix",
    "check_estimator_sparse_tag",
    "check_estimators_dtypes",
    "check_estimators_fit_returns_self",
    "check_estimators_overwrite_params",
    "check_estimators_pickle",
    "check_f_contiguous_array_estimator",
    "check_fit2d_1feature",
    "check_fit2d_1sample",
    "check_fit2d_predict1d",
    "check_fit_check_is_fitted",
    "check_fit_idempotent",
    "check_fit_score_takes_y",
    "check_methods_sample_order_invariance",
    "check_methods_subset_invariance",
    "check_n_features_in",
    "check_n_features_in_after_fitting",
    "check_pipeline_consistency",
    "check_positive_only_tag_during_fit",
    "check_readonly_memmap_input",
    "check_sample_weight_equivalence_on_dense_data",
    "check_sample_weight_equivalence_on_sparse_data",
    "check_sample_weights_list",
    "check_sample_weights_not_an_array",
    "check_sample_weights_not_overwritten",
    "check_sample_weights_pandas_series",
    "check_sample_weights_shape",
)
_OBJECTS = {
    "check_parameters_default_constructible": "penalties, columns, trainers are objects, which tools see "
    "into by get_params, and defaults of plain types are asked for"
}
EXPECTED_FAILED_CHECKS = dict.fromkeys(_NEEDS_FIT, _PLAIN_Y) | _OBJECTS
# With times and events in its place two checks are left, and these for the soft tree alone.
EXPECTED_WITH_SURVIVAL_TARGET = _OBJECTS | {
    "check_sample_weight_equivalence_on_dense_data": "weighted and repeated rows have one objective, whose "
    "minimum the optimiser stops near, within its tolerance and not within rounding"
}


def _quick(**values: Any) -> SoftSurvivalTree:
    settings = {"depth": 1, "n_starts": 1, "init": "random", "trainer": Nodec(macro_iterations=1)}
    return soft_tree(**settings | values)


def _survival(y: Any) -> Any:
    """Times and events in place of the plain y of scikit-learn's checks, some of them censored."""
    if y is None:
        return None
    size = np.abs(np.asarray(y).ravel()).astype(float)
    return 1.0 + size, np.floor(7 * size) % 4 != 3


class PlainTarget:
    def fit(self, X: Any, y: Any = None) -> Any:
        return super().fit(X, _survival(y))  # type: ignore[misc]

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        return super().score(X, _survival(y), sample_weight)  # type: ignore[misc,no-any-return]


class SoftTreeOfPlainTarget(PlainTarget, SoftSurvivalTree):
    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Any:
        return SoftSurvivalTree.fit(self, X, _survival(y), sample_weight)


class ExactTreeOfPlainTarget(PlainTarget, OptimalSurvivalTree):
    pass


class ExactTreeCVOfPlainTarget(PlainTarget, OptimalSurvivalTreeCV):
    pass


for _kind in (SoftTreeOfPlainTarget, ExactTreeOfPlainTarget, ExactTreeCVOfPlainTarget):
    # The parameters are those of the class itself: only the form of y differs.
    _kind.__init__ = _kind.__bases__[-1].__init__  # type: ignore[misc]


@pytest.mark.filterwarnings("ignore::sstorch.exceptions.DataWarning")
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.SkipTestWarning")
@pytest.mark.parametrize(
    "estimator",
    [
        nightly(SoftTreeOfPlainTarget(1, n_starts=1, init="random", trainer=Nodec(macro_iterations=1))),
        ExactTreeOfPlainTarget(1),
        ExactTreeCVOfPlainTarget(1, n_folds=2),
    ],
    ids=lambda estimator: type(estimator).__name__,
)
def test_with_a_survival_target_the_checks_of_scikit_learn_pass(estimator: BaseEstimator) -> None:
    is_soft = isinstance(estimator, SoftSurvivalTree)
    expected = EXPECTED_WITH_SURVIVAL_TARGET if is_soft else _OBJECTS
    results = check_estimator(estimator, expected_failed_checks=expected)
    assert len(results) >= 40
    other = {result["check_name"]: result["status"] for result in results if result["status"] != "passed"}
    other.pop("check_array_api_input", None)  # skipped without array API support
    assert set(other.values()) == {"xfail"}
    # The optimiser may also stop where both are.
    assert set(_OBJECTS) <= set(other) <= set(expected)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.SkipTestWarning")
def test_without_one_exactly_the_checks_that_fit_fail() -> None:
    results = check_estimator(_quick(), expected_failed_checks=EXPECTED_FAILED_CHECKS)
    failed = {result["check_name"] for result in results if result["status"] == "xfail"}
    # Another version of scikit-learn may not have all of them.
    assert failed == set(EXPECTED_FAILED_CHECKS) & {result["check_name"] for result in results}
    assert len(failed) > 20


@pytest.fixture(scope="module")
def structured(gbsg2: SurvivalData) -> np.ndarray:
    pairs = list(zip(gbsg2.event, gbsg2.time, strict=True))
    return np.array(pairs, dtype=[("event", "?"), ("time", "f8")])


@pytest.mark.nightly
def test_pipeline_with_columns_and_grid_search_over_two_processes(
    gbsg2: SurvivalData, structured: np.ndarray
) -> None:
    categorical = [name for name in gbsg2.frame if gbsg2.frame[name].dtype == "category"]
    columns = ColumnTransformer(
        [("words", OneHotEncoder(sparse_output=False), categorical)],
        remainder=StandardScaler(),
        verbose_feature_names_out=False,
    )
    columns.set_output(transform="pandas")
    model = make_pipeline(columns, _quick())
    parameter = "softsurvivaltree__depth"
    search = GridSearchCV(model, {parameter: [0, 1]}, cv=2, n_jobs=2).fit(gbsg2.frame, structured)
    assert search.best_score_ > 0.6
    best = search.best_estimator_
    assert best[-1].get_params()["depth"] == search.best_params_[parameter]
    assert "age" in best[-1].feature_names_in_
    assert best.predict(gbsg2.frame).shape == (686,)
    again = clone(model).set_params(**search.best_params_).fit(gbsg2.frame, structured)
    np.testing.assert_array_equal(again.predict(gbsg2.frame), best.predict(gbsg2.frame))


@pytest.mark.parametrize("kind", ["soft", "exact"])
def test_pickled_trees_predict_alike(gbsg2: SurvivalData, kind: str) -> None:
    tree: Any = _quick(leaf="spline_po") if kind == "soft" else OptimalSurvivalTree(2)
    tree.fit(gbsg2.frame, (gbsg2.time, gbsg2.event))
    again = pickle.loads(pickle.dumps(tree))
    for name in ("predict", "apply", "predict_survival_function", "predict_quantile"):
        np.testing.assert_array_equal(getattr(again, name)(gbsg2.frame), getattr(tree, name)(gbsg2.frame))
    assert again.summary() == tree.summary()


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

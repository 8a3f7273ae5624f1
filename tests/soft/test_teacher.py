"""Teachers of prognostic trees: models of other packages, functions, models that are not fitted yet."""

from types import SimpleNamespace
from unittest.mock import patch

import numpy as np
import pandas as pd
import pytest
from sksurv.ensemble import RandomSurvivalForest

from sstorch import PrognosticTree, Surv, SurvivalData, SurvivalRegression
from sstorch.exceptions import ConfigError, DataError
from sstorch.validation import stability, validate_groups
from tests.causes import simulated

Rows = tuple[pd.DataFrame, Surv]


@pytest.fixture(scope="module")
def rows(small_data: SurvivalData) -> Rows:
    return small_data.frame, Surv(small_data.time, small_data.event)


def explained(tree: PrognosticTree, X: pd.DataFrame, survival: np.ndarray) -> float:
    """R^2 of group means of the log cumulative hazard."""
    target = pd.Series(np.log(-np.log(survival)))
    means = target.groupby(tree.apply(X)).transform("mean")
    return float(((means - target.mean()) ** 2).sum() / ((target - target.mean()) ** 2).sum())


def test_forest_of_scikit_survival(rows: Rows) -> None:
    X, y = rows
    forest = RandomSurvivalForest(n_estimators=30, min_samples_leaf=10, random_state=0)
    tree = PrognosticTree(teacher=forest.fit(X, y.to_structured())).fit(X, y)
    curves = forest.predict_survival_function(X)
    assert explained(tree, X, np.array([step(tree.horizon_) for step in curves])) > 0.4
    assert "RandomSurvivalForest 4" in tree.choice_.evidence


def test_function_divides_by_what_it_says_and_cannot_be_trained_anew(rows: Rows) -> None:
    X, y = rows

    def by_one_column(X: pd.DataFrame, times: np.ndarray) -> np.ndarray:
        return np.exp(-np.outer(np.exp(3 * X["x1"] - 2), np.asarray(times) / 30))

    tree = PrognosticTree(depth=1, teacher=by_one_column).fit(X, y)
    group = tree.apply(X)
    assert X["x1"][group == 1].max() < X["x1"][group == 2].min()
    for again in (stability, validate_groups):
        with pytest.raises(ConfigError, match="by_one_column cannot be retrained on folds or resamples"):
            again(tree, X, y)


def test_teacher_is_trained_anew_on_every_fold(rows: Rows) -> None:
    X, y = rows
    tree = PrognosticTree(depth=1, teacher=SurvivalRegression("weibull").fit(X, y)).fit(X, y)
    with patch.object(SurvivalRegression, "fit", autospec=True, side_effect=SurvivalRegression.fit) as fit:
        validate_groups(tree, X, y, n_folds=3)
    assert [len(call.args[1]) for call in fit.call_args_list] == [80, 80, 80]


def test_regression_of_causes_teaches() -> None:
    """The gate is that of the squared differences of log hazards, each cause weighted by its events."""
    X, y = simulated(300)
    teacher = SurvivalRegression("weibull").fit(X, y)
    tree = PrognosticTree(depth=1, leaf="weibull", teacher=teacher).fit(X, y)
    incidence = teacher.predict_cumulative_incidence(X, [tree.horizon_])[..., 0]
    n_events = [(y.cause == k).sum() for k in (1, 2)]
    targets = np.sqrt(n_events) * np.log(-np.log(1 - incidence))

    def within(left: np.ndarray) -> float:
        return sum(((part - part.mean(0)) ** 2).sum() for part in (targets[left], targets[~left]))

    (place,) = tree.module_.gate(1).weight.detach().numpy().nonzero()[0]
    found = within(tree.apply(X) == 1)
    ordered = np.sort(X[tree.preprocessor_.gate_features[place].columns[0]].unique())
    assert len(ordered) > 2
    best = min(
        within((X[column] <= value).to_numpy())
        for column in X.select_dtypes("number")
        for value in np.unique(X[column])[:-1]
        if 0.1 <= (X[column] <= value).mean() <= 0.9
    )
    assert found == pytest.approx(best, rel=1e-9)


def test_predictions_that_are_no_curves_raise(rows: Rows) -> None:
    n = len(rows[0])
    for wrong in (np.full((3, 1), 0.5), np.full(n, 0.5), np.full((n, 1), 2.0), np.full((n, 1), np.nan)):
        with pytest.raises(DataError, match=r"must give probabilities of shape \(\d+, 1\)"):
            PrognosticTree(teacher=lambda X, times, wrong=wrong: wrong).fit(*rows)
    with pytest.raises(ConfigError, match=r"teacher must have a method .*, got <class"):
        PrognosticTree(teacher=SurvivalRegression).fit(*rows)
    timeless = SimpleNamespace(predict_survival_function=lambda X: np.ones((len(X), 1)))
    with pytest.raises(DataError, match=r"^teacher must have .* got .*\(X\): add times"):
        PrognosticTree(teacher=timeless).fit(*rows)
    with pytest.raises(ConfigError, match="teacher must be 'residuals', 'predictor'"):
        PrognosticTree(teacher="forest").fit(*rows)

"""Teachers of prognostic trees: models of other packages, functions, models that are not fitted yet."""

import numpy as np
import pandas as pd
import pytest
from scipy.stats import spearmanr
from sksurv.ensemble import RandomSurvivalForest

from sstorch import PrognosticTree, Surv, SurvivalData, SurvivalRegression
from sstorch.exceptions import ConfigError, DataError
from sstorch.validation import stability, validate_groups
from tests.causes import simulated

Rows = tuple[pd.DataFrame, Surv]


@pytest.fixture(scope="module")
def rows(small_data: SurvivalData) -> Rows:
    return small_data.frame, Surv(small_data.time, small_data.event)


def by_hand(tree: PrognosticTree, X: pd.DataFrame, survival: np.ndarray) -> tuple[float, float]:
    """R^2 of group means of the log cumulative hazard, and its rank correlation with the tree's own."""
    target = pd.Series(np.log(-np.log(survival)))
    means = target.groupby(tree.apply(X)).transform("mean")
    explained = ((means - target.mean()) ** 2).sum() / ((target - target.mean()) ** 2).sum()
    own = tree.predict_cumulative_hazard_function(X, [tree.horizon_])[:, 0]
    return float(explained), float(spearmanr(target, own).statistic)


def check_fidelity(tree: PrognosticTree, X: pd.DataFrame, survival: np.ndarray) -> None:
    found, (explained, rank) = tree.fidelity_, by_hand(tree, X, np.asarray(survival))
    assert found is not None
    assert (found.explained, found.rank_correlation) == pytest.approx((explained, rank), rel=1e-9)
    assert found.horizon == tree.horizon_
    assert f"groups explain {explained:.0%}" in tree.summary()


def test_forest_of_scikit_survival(rows: Rows) -> None:
    X, y = rows
    forest = RandomSurvivalForest(n_estimators=30, min_samples_leaf=10, random_state=0)
    forest.fit(X, y.to_structured())
    tree = PrognosticTree(teacher=forest).fit(X, y)
    at = tree.horizon_
    check_fidelity(tree, X, np.array([step(at) for step in forest.predict_survival_function(X)]))
    assert tree.fidelity_ is not None
    assert tree.fidelity_.teacher == "RandomSurvivalForest"
    assert tree.fidelity_.explained > 0.4


def test_function_divides_by_what_it_says_and_cannot_be_trained_anew(rows: Rows) -> None:
    X, y = rows

    def by_one_column(X: pd.DataFrame, times: np.ndarray) -> np.ndarray:
        return np.exp(-np.outer(np.exp(3 * X["x1"] - 2), np.asarray(times) / 30))

    tree = PrognosticTree(depth=1, teacher=by_one_column).fit(X, y)
    group = tree.apply(X)
    assert X["x1"][group == 1].max() < X["x1"][group == 2].min()
    check_fidelity(tree, X, by_one_column(X, np.array([tree.horizon_]))[:, 0])
    for again in (stability, validate_groups):
        with pytest.raises(ConfigError, match="by_one_column cannot be retrained on folds or resamples"):
            again(tree, X, y)


def test_teacher_is_trained_anew_on_every_fold(rows: Rows, monkeypatch: pytest.MonkeyPatch) -> None:
    X, y = rows
    sizes: list[int] = []
    fit = SurvivalRegression.fit

    def counted(self: SurvivalRegression, X: pd.DataFrame, *given: object) -> SurvivalRegression:
        sizes.append(len(X))
        return fit(self, X, *given)

    tree = PrognosticTree(depth=1, teacher=SurvivalRegression("weibull").fit(X, y)).fit(X, y)
    monkeypatch.setattr(SurvivalRegression, "fit", counted)
    validate_groups(tree, X, y, n_folds=3)
    assert sizes == [80, 80, 80]


def test_regression_of_causes_teaches() -> None:
    X, y = simulated(300)
    teacher = SurvivalRegression("weibull").fit(X, y)
    tree = PrognosticTree(depth=1, leaf="weibull", teacher=teacher).fit(X, y)
    incidence = teacher.predict_cumulative_incidence(X, [tree.horizon_])[..., 0]
    within = total = 0.0
    for k in range(2):  # each cause with the weight of its number of events
        n_events, target = (y.cause == k + 1).sum(), np.log(-np.log(1 - incidence[:, k]))
        spread = n_events * ((target - target.mean()) ** 2).sum()
        within += spread * by_hand(tree, X, 1 - incidence[:, k])[0]
        total += spread
    assert tree.fidelity_ is not None
    assert tree.fidelity_.explained == pytest.approx(within / total, rel=1e-9)


def test_predictions_that_are_no_curves_raise(rows: Rows) -> None:
    n = len(rows[0])
    for wrong in (np.full((3, 1), 0.5), np.full(n, 0.5), np.full((n, 1), 2.0), np.full((n, 1), np.nan)):
        with pytest.raises(DataError, match=r"must give probabilities of shape \(\d+, 1\)"):
            PrognosticTree(teacher=lambda X, times, wrong=wrong: wrong).fit(*rows)
    with pytest.raises(ConfigError, match=r"teacher must have a method .*, got <class"):
        PrognosticTree(teacher=SurvivalRegression).fit(*rows)
    for name in ("forest", "residual"):
        with pytest.raises(
            ConfigError, match=f"teacher must be 'residuals', 'predictor', None .*, or a model, got '{name}'"
        ):
            PrognosticTree(teacher=name).fit(*rows)

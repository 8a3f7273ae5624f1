"""What exact searches, tasks and estimators raise: class, argument and remedy."""

import math
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.exceptions import NotFittedError

from sstorch import (
    OptimalPolicyTree,
    OptimalSurvivalTree,
    OptimalSurvivalTreeCV,
    OptimalTreeClassifier,
    OptimalTreeRegressor,
    Search,
    Surv,
)
from sstorch.exact import (
    Binarizer,
    Classification,
    DecisionCosts,
    FeatureCosts,
    IntegratedBrier,
    LeastSquares,
    LogLikelihood,
    horizon_labels,
    policy_scores,
    solve,
)
from sstorch.exact.fronts import confusion_front, group_fairness, solve_areas, solve_front
from sstorch.exceptions import ConfigError, DataError
from sstorch.reading import export_text
from tests.exact.problems import Rates

N, RNG = 60, np.random.default_rng(0)
FEATURES = RNG.random((N, 8)) < 0.5
TIME, EVENT = RNG.exponential(2.0, N).round(1) + 0.1, RNG.random(N) < 0.7
SURVIVAL = LogLikelihood(TIME, EVENT)
X = pd.DataFrame({"age": RNG.normal(60, 9, N), "dose": RNG.normal(size=N)})
X = X.assign(sex=np.tile(["f", "m"], N // 2), site=np.tile(["a", "b", "c"], N // 3))
THREE, TWO = np.tile(["low", "mid", "high"], N // 3), np.where(X["age"] > 60, "yes", "no")
ONES, ONE, LATE = np.ones(N), Surv(TIME, EVENT), Surv(TIME, EVENT, entry=0.5 * TIME)
CAUSES = Surv(TIME, EVENT * (1 + (np.arange(N) % 2)), causes=("relapse", "death"))
SCORES = pd.DataFrame({"diet": X["dose"], "drug": 0.1 * X["age"], "none": 1.0})
FOUR = FeatureCosts.of(["a", "b"], {"a": 0.1})
PRICED = Classification(TWO, feature_costs=FeatureCosts.of(["x"] * 8, {"x": 1.0}))
EIGHT = np.array([[0, 1], [1, 0], [1, 1], [0, 0]] * 2)
DARK = [0, 1, 1, 1] * 2


class WithLists(Rates):
    @staticmethod
    def leaf_cost(sums: Any, i: int) -> Any:
        return str(sums)[i]


class Faulty(Rates):
    @staticmethod
    def leaf_cost(sums: Any, i: int) -> float:
        return math.nan if sums[1, i] > 0 else 0.0


def search(task: Any = SURVIVAL, features: Any = FEATURES, **settings: Any) -> Any:
    return partial(solve, features, task, **{"max_depth": 2} | settings)


def tree(**settings: Any) -> Any:
    return lambda: search(max_nodes=2)().tree(**settings)


def front(features: Any = EIGHT, **settings: Any) -> Any:
    return partial(solve_front, features, confusion_front(DARK), **settings)


def areas(features: Any = EIGHT, **settings: Any) -> Any:
    return partial(solve_areas, features, DARK, **settings)


def scores(method: str, treatment: Any = (0, 1), **given: Any) -> Any:
    given = {"outcome": np.ones(len(treatment))} | given
    return partial(policy_scores, method, treatment=list(treatment), **given)


def classes(y: Any = THREE, frame: Any = X, given: Any = None, **settings: Any) -> Any:
    return lambda: OptimalTreeClassifier(**settings).fit(frame, y, **given or {})


def fair(y: Any = TWO, frame: Any = X, parity: str = "demographic_parity", **given: Any) -> Any:
    given = {"sensitive": "sex"} | given
    return lambda: OptimalTreeClassifier(2, fairness=parity).fit(frame, y, **given)


def survival(y: Any = ONE, **settings: Any) -> Any:
    return lambda: OptimalSurvivalTree(**settings).fit(X, y)


def folds(**settings: Any) -> Any:
    return lambda: OptimalSurvivalTreeCV(**settings).fit(X, ONE)


def fitted(call: Any) -> Any:
    return lambda: call(OptimalSurvivalTree(3).fit(X, ONE))


def policy(frame: Any = X, y: Any = SCORES) -> Any:
    return lambda: OptimalPolicyTree(1).fit(X, SCORES).score(frame, y)


SEARCHES = [
    (ConfigError, r"leaf_cost must be a function \(sums, i\) that numba", search(WithLists(TIME, TIME))),
    (ConfigError, "cost of Faulty is NaN or -infinity", search(Faulty(TIME, TIME))),
    (ConfigError, "has no events", search(Classification(TWO), min_events=1)),
    (ConfigError, "max_depth must be at most 5 with costs of tests", search(PRICED, max_depth=6)),
    (ConfigError, "too many for depth 1", search(PRICED, max_depth=1, memory=1)),
    (ConfigError, r"2000 .* too many for depth 3.*GiB.*binarize='quantiles'",
     search(features=RNG.random((N, 2000)) < 0.5, max_depth=3, memory=2**20)),
    (ConfigError, "too many for depth 6", search(max_depth=6, memory=1 << 12)),
    (ConfigError, "max_depth must be 0 to 9, got 10", search(max_depth=10)),
    (ConfigError, "max_depth must be .* got -1", search(max_depth=-1)),
    (ConfigError, "max_nodes must be .* got -1", search(max_nodes=-1)),
    (ConfigError, "max_nodes must be None for trees deeper than 5", search(max_depth=6, max_nodes=9)),
    (ConfigError, "leaf_penalty must be .* got -0.1", search(leaf_penalty=-0.1)),
    (ConfigError, "leaf_penalty must be .* got nan", search(leaf_penalty=math.nan)),
    (ConfigError, "min_leaf must be .* got 0", search(min_leaf=0)),
    (DataError, "there are 60", search(min_leaf=61)),
    (DataError, "not even a single leaf has that many events", search(min_events=61)),
    (ConfigError, "time_limit must be .* got 0", search(time_limit=0.0)),
    (ConfigError, "n_threads must be at least 1", search(n_threads=0)),
    (DataError, "guess must have 60 rows", search(guess=[1.0])),
    (ConfigError, "guess does not go with max_nodes", search(guess=np.zeros(N), max_nodes=3)),
    (DataError, "59 rows, but the task has 60", search(features=FEATURES[1:])),
    (DataError, r"column 'age' holds .*7.* in row 0.*Binarizer",
     search(features=pd.DataFrame({"ok": 0 * ONES, "age": np.arange(N) + 7.0}))),
    *((ConfigError, next(iter(given)), tree(**given)) for given in (
        {"depth": 3}, {"nodes": 3}, {"nodes": -1}, {"leaf_penalty": -1.0})),
    *(
        (error, words, call)
        for solver in (front, areas)
        for error, words, call in (
            (ConfigError, "max_depth", solver(max_depth=4)),
            (ConfigError, "max_nodes", solver(max_nodes=-1)),
            (ConfigError, "min_leaf", solver(min_leaf=0)),
            (DataError, "not even a single leaf", solver(min_leaf=9)),
            (DataError, "3 rows", solver(np.eye(3))),
        )
    ),
    (ConfigError, "time_limit", front(time_limit=0.0)),
    (ConfigError, "fewer thresholds", front(memory=100)),
    (ConfigError, "max_fpr must be above 0", areas(max_fpr=0.0)),
    (ConfigError, "no weight", areas(sample_weight=[0.0, 1.0, 1.0, 1.0] * 2)),
]  # fmt: skip
TASKS = [
    (DataError, "one class per row", lambda: Classification([[0], [1]])),
    (DataError, "labels is missing in 1 row .*position 1", lambda: Classification([0.0, math.nan])),
    (DataError, "1 is none of the classes", lambda: Classification([0, 1], classes=[0, 2])),
    (DataError, "sample_weight is negative", lambda: Classification([0, 1], sample_weight=[1.0, -1.0])),
    (DataError, "costs >= 0", lambda: Classification([0, 1], cost_matrix=[[0, -1], [1, 0]])),
    (ConfigError, "class 0", lambda: Classification([0, 1], sample_weight=[0, 1], balanced=True)),
    (ConfigError, "together", lambda: Classification([0, 1], sample_weight=[1, 2], feature_costs=FOUR)),
    (DataError, "got inf in 1 row", lambda: LeastSquares([1.0, math.inf])),
    (DataError, "one weight for each of 2 rows", lambda: LeastSquares([1.0, 2.0], sample_weight=[1.0])),
    (DataError, "y is infinite or larger", lambda: LeastSquares(np.arange(5.0) * 1e200)),
    (DataError, "y differs by at", lambda: LeastSquares(np.arange(5.0) * 1e-200)),
    (DataError, "must be a matrix", lambda: DecisionCosts([1.0, 2.0])),
    (DataError, "row 1 holds nan in column 0", lambda: DecisionCosts([[1.0], [math.nan]])),
    *(
        (DataError, "sample_weight", partial(task, [1.0, 2.0, 3.0], [1, 0, 1], sample_weight=weight))
        for task in (LogLikelihood, IntegratedBrier)
        for weight in ([1.0, -1.0, 1.0], [0.0, 0.0, 0.0], [1.0, math.inf, 1.0], [1.0, 1.0])
    ),
    *(
        (DataError, "has an event", partial(task, [1.0, 2.0, 3.0], event, sample_weight=[0.0, 1.0, 0.0]))
        for task in (LogLikelihood, IntegratedBrier)
        for event in ([1, 0, 1], [0, 0, 0])
    ),
    (DataError, "no row has cause 2", lambda: LogLikelihood([1.0, 2.0], [1, 0], n_causes=2)),
    (DataError, "entry is not before the time in 2", lambda: LogLikelihood([1, 2], [1, 0], entry=[1, 2])),
    (ConfigError, "n_buckets must be", lambda: IntegratedBrier([1.0, 2.0], [1, 1], n_buckets=1)),
    (DataError, "all rows have the time 2", lambda: IntegratedBrier([2.0, 2.0], [1, 1])),
    (DataError, "no row was observed so long", lambda: horizon_labels([1.0, 2.0], [1, 0], 5.0)),
    (DataError, "no row has an event up to then", lambda: horizon_labels([1.0, 2.0], [0, 1], 1.5)),
    (DataError, "must be a time > 0", lambda: horizon_labels([1.0, 2.0], [1, 0], -1.0)),
    (DataError, "got 0 for the treatment of 1 row", scores("ipw", propensity=[0.5, 0.0])),
    (DataError, "2 rows and 3 columns", scores("direct", [0, 2], predicted=np.ones((2, 2)))),
    (DataError, "positions 0, 1", scores("ipw", [0, 0.5], propensity=[1, 1])),
    # Else one that no row had, with a score of zero, would be the best where outcomes are costs.
    (DataError, "no row got 0; number the treatments from 0", scores("ipw", [1, 2], propensity=[1, 1])),
    (ConfigError, "method must be one of", scores("dm")),
    (ConfigError, "'ipw' needs propensity", scores("ipw")),
    (ConfigError, "'b' is no attribute", lambda: FeatureCosts.of(["a"], {"b": 1.0})),
    (ConfigError, "0 <= discounted <= price", lambda: FeatureCosts.of(["a"], {"a": -1.0})),
    (ConfigError, "discounted <=", lambda: FeatureCosts.of(["a"], {"a": 1.0}, {"g": ["a"]}, {"a": 2.0})),
    (ConfigError, "in two groups", lambda: FeatureCosts.of(["a", "b"], {}, {"g": ["a"], "h": ["a"]})),
    (ConfigError, "is in no group", lambda: FeatureCosts.of(["a"], {"a": 1.0}, None, {"a": 0.5})),
    (DataError, "y must be 0 and 1", lambda: confusion_front([0, 2])),
    (DataError, "all rows are 1", lambda: confusion_front([1, 1])),
    (DataError, "shape", lambda: confusion_front([[0, 1]])),
    (ConfigError, "got 'g'", lambda: confusion_front([0, 1], metric="g")),
    (DataError, "sample_weight", lambda: confusion_front([0, 1], sample_weight=[1.0, -1.0])),
    (ConfigError, "whole numbers", lambda: confusion_front([0, 1], sample_weight=[1.0, 0.1])),
    (ConfigError, "weight 0", lambda: confusion_front([0, 1], sample_weight=[1.0, 0.0])),
    (ConfigError, "got 'parity'", lambda: group_fairness([0, 1], [0, 1], "parity")),
    (ConfigError, "max_disparity must be", lambda: group_fairness([0, 1], [0, 1], max_disparity=1.5)),
    (DataError, "group must have 2 rows", lambda: group_fairness([0, 1], [0, 1, 1])),
    (DataError, "no row of group 0", lambda: group_fairness([0, 1], [0, 1], "equal_opportunity")),
    (DataError, "group must be 0 and 1", lambda: group_fairness([0, 1], [0, 2])),
]
ESTIMATORS = [
    (ConfigError, "preset", lambda: Binarizer("best").fit(X)),
    (ConfigError, "n_thresholds", lambda: Binarizer(n_thresholds=0).fit(X)),
    (ConfigError, "n_categories", lambda: Binarizer(n_categories=1).fit(X)),
    (ConfigError, "n_bins", lambda: Binarizer(n_bins=1).fit(X)),
    (DataError, "sample_weight", lambda: Binarizer().fit(X, sample_weight=ONES[1:])),
    (ConfigError, "max_depth must be at least 0", survival(max_depth=1.5)),
    (ConfigError, "objective must be one of", survival(objective="cox")),
    (ConfigError, "min_events", survival(min_events=-1)),
    (ConfigError, "binarize must be one of", survival(binarize="median")),
    (ConfigError, "time_limit must be one finite time > 0", survival(search=Search(time_limit=0))),
    (ConfigError, "n_buckets is for objective='integrated_brier'", survival(search=Search(n_buckets=10))),
    (ConfigError, r"search must be Search\(...\), got 60.0", survival(search=60.0)),
    (DataError, "no event to learn from", survival((TIME, 0 * EVENT))),
    (ConfigError, "does not support left truncation", survival(LATE, objective="integrated_brier")),
    (ConfigError, "does not support competing causes", survival(CAUSES, objective="integrated_brier")),
    (ConfigError, "choose must be one of nodes, budget", folds(choose="leaves")),
    (ConfigError, "n_folds must be at least 2", folds(n_folds=1)),
    (ConfigError, "random_state must be at least 0", folds(random_state=None)),
    (ConfigError, "max_depth must be 0 to 5, got 6", folds(max_depth=6)),
    (DataError, "too few for 200 folds", folds(n_folds=200)),
    (DataError, "give a DataFrame with the columns 'age'", fitted(lambda t: t.predict(FEATURES))),
    (DataError, "X has 2 features, but Schema is expecting 8",
     lambda: OptimalTreeRegressor(1).fit(FEATURES, TIME).predict(FEATURES[:, :2])),
    (DataError, "column 'age' holds 'much'", fitted(lambda t: t.predict(X.assign(age="much")))),
    (DataError, "no row has an event", fitted(lambda t: t.score(X[:3], (TIME[:3], np.zeros(3))))),
    (ConfigError, "there is one event", fitted(lambda t: t.predict(X, cause="relapse"))),
    (ConfigError, "q must be a number in", fitted(lambda t: t.predict_quantile(X, 0.0))),
    (ConfigError, "q must be a number in", fitted(lambda t: t.predict_quantile(X, 1.0))),
    (ConfigError, "extrapolate must be False", fitted(lambda t: t.predict_quantile(X, extrapolate=True))),
    (ConfigError, "tau must be one positive number", fitted(lambda t: t.predict_rmst(X, 0.0))),
    *(
        (NotFittedError, "fit", call)
        for kind in (OptimalSurvivalTree, OptimalTreeClassifier, OptimalTreeRegressor, OptimalPolicyTree)
        for call in (kind().summary, partial(export_text, kind()))
    ),
    (ConfigError, "objective must be one of misclassification, balanced", classes(objective="f2")),
    (DataError, "must have 3 x 3 costs", classes(cost_matrix=[[0, 1], [1, 0]])),
    (DataError, "cost_matrix must be", classes(cost_matrix=[[0, 1], [1]])),
    (ConfigError, "'height' is no attribute", classes(feature_costs={"height": 1.0})),
    (ConfigError, "must be numbers by name", classes(feature_costs={"age": "dear"})),
    (ConfigError, "need objective='misclassification'", classes(feature_costs={}, objective="balanced")),
    (ConfigError, "do not go together", classes(given={"sample_weight": 2 * ONES}, feature_costs={})),
    (DataError, "X has 60 rows but y has 59", classes(THREE[1:])),
    (DataError, "Unknown label type", classes(np.linspace(0, 1, N))),
    (DataError, r"y is missing in 1 row .*position 3", classes(np.where(np.arange(N) == 3, None, THREE))),
    (DataError, "y: NaN in 60 rows", lambda: OptimalTreeRegressor().fit(X, np.nan * ONES)),
    (DataError, "no column", policy(y=SCORES[["diet", "drug"]])),
    (DataError, "no column", policy(y=SCORES.rename(columns=str.upper))),
    (DataError, "y must have the shape", policy(y=SCORES.assign(more=1.0))),
    (DataError, "same row labels in a different order", policy(y=SCORES[::-1])),
    (ConfigError, "leaf_penalty does not go with", classes(TWO, objective="f1", leaf_penalty=0.1)),
    (ConfigError, "cost_matrix does not go with", classes(TWO, objective="mcc", cost_matrix=1 - np.eye(2))),
    (ConfigError, "max_depth must be 0 to 2", classes(TWO, objective="auc", max_depth=3)),
    (ConfigError, "time_limit is", classes(TWO, objective="auc", max_depth=2, search=Search(time_limit=1))),
    (ConfigError, "max_depth must be 0 to 3", classes(TWO, objective="f1", max_depth=4)),
    (DataError, "needs two classes, y has 3", classes(THREE, objective="f1", max_depth=2)),
    (ConfigError, "fairness must be one of", fair(parity="parity")),
    (ConfigError, "needs objective='misclass", classes(TWO, fairness="demographic_parity", objective="f1")),
    (ConfigError, "sensitive=...", fair(sensitive=None)),
    *(
        (ConfigError, "max_disparity must be",
         classes(TWO, given={"sensitive": "sex"}, fairness="demographic_parity", max_disparity=wrong))
        for wrong in (-1.0, "0.1")
    ),
    (DataError, "site=a: no row of the positive class with weight; merge",
     fair(np.where(X["site"] == "a", "no", "yes"), X.assign(site=np.where(X["site"] == "a", "a", "other")),
          "equal_opportunity", sensitive="site")),
    (DataError, "fairness compares two groups, sex has 3; merge some", fair(frame=X.assign(sex=X["site"]))),
    (ConfigError, "whole numbers", fair(sample_weight=0.3 * ONES)),
    (DataError, "different order", fair(sensitive=X["sex"][::-1])),
    (DataError, "no feature column is left", fair(frame=X[["sex"]])),
]  # fmt: skip


@pytest.mark.filterwarnings("ignore::sstorch.exceptions.DataWarning")
@pytest.mark.parametrize(("error", "words", "call"), [*SEARCHES, *TASKS, *ESTIMATORS])
def test_what_cannot_be_found_raises(error: type[Exception], words: str, call: Any) -> None:
    with pytest.raises(error, match=words):
        call()

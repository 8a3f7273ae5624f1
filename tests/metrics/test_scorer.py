"""Scorers of scikit-learn are `evaluate` with the given rows as training rows, higher is better."""

import pickle

import numpy as np
import pytest
from sklearn.model_selection import KFold, cross_val_score

from sstorch import Surv
from sstorch.exceptions import ConfigError, DataError
from sstorch.metrics import SurvivalScorer, evaluate

from .cohorts import CauseRates, Rates, rows_of_causes

RNG = np.random.default_rng(0)
X = RNG.gamma(3.0, 0.02, (150, 1))
LIFE, CENSORING = RNG.exponential(1 / X[:, 0]), RNG.uniform(5, 60, 150)
TIME, EVENT = np.ceil(np.minimum(LIFE, CENSORING)), LIFE <= CENSORING  # ties
Y = Surv(TIME, EVENT)
WEIGHT = RNG.integers(1, 4, 150).astype(float)
RATES, (CAUSE_TIME, CAUSE) = rows_of_causes(150, 1)
CAUSES = Surv(CAUSE_TIME, np.array(["censored", "death", "relapse"])[CAUSE], causes="auto")
FOLDS = KFold(3, shuffle=True, random_state=0)


@pytest.mark.parametrize(
    ("model", "X", "y", "metric", "cause"),
    [
        (Rates(), X, Y, "ibs_graf", None),
        (Rates(), X, Y.weighted(WEIGHT), "c_uno", None),
        (CauseRates(), RATES, CAUSES, "ibs", None),
        (CauseRates(), RATES, CAUSES, "auc", "relapse"),
    ],
)
def test_scores_are_those_of_evaluate(model, X, y, metric, cause):
    def expected(test):
        table = evaluate(model, (X, y), (X[test], y[test]), metrics=[metric])
        value = table["value"].mean() if cause is None else table.loc[("relapse", metric), "value"]
        return value * (1 if table["higher_is_better"].iloc[0] else -1)

    scorer = pickle.loads(pickle.dumps(SurvivalScorer(metric, y, cause=cause)))
    found = cross_val_score(model, X, y, cv=FOLDS, scoring=scorer)
    np.testing.assert_allclose(found, [expected(test) for _, test in FOLDS.split(X)], rtol=1e-12)


@pytest.mark.parametrize(
    ("error", "words", "options"),
    [
        (ConfigError, "'d_calibration_p'", {"metric": "d_calibration_p"}),
        (ConfigError, "tau", {"tau": 0.0}),
        (ConfigError, "unknown cause 3", {"metric": "ibs", "train": CAUSES, "cause": 3}),
        (ConfigError, "one event", {"cause": 2}),
        (DataError, "train: y .*got int", {"train": 3}),
    ],
)
def test_wrong_arguments_raise_at_once(error, words, options):
    with pytest.raises(error, match=words):
        SurvivalScorer(**{"metric": "c_uno", "train": Y} | options)

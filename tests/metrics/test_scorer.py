"""Scorers of scikit-learn weigh by the training rows of each fold."""

import pickle

import numpy as np
import pandas as pd
import pytest
from sklearn.model_selection import GridSearchCV, KFold, ShuffleSplit, cross_val_score

from sstorch import OptimalSurvivalTree, Surv, SurvivalRegression
from sstorch.exceptions import ConfigError, DataError
from sstorch.metrics import SurvivalScorer, concordance_harrell, evaluate

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
        *((Rates(), X, Y, name, None) for name in ("c_uno", "ibs_graf", "ibs_sksurv", "ibs_surtree")),
        (Rates(), X, Y.weighted(WEIGHT), "c_uno", None),
        *(
            (CauseRates(), RATES, CAUSES, *part)
            for part in (("ibs", None), ("c_wolbers", 2), ("auc", "relapse"))
        ),
    ],
)
def test_training_rows_are_those_of_the_fold(model, X, y, metric, cause):
    def expected(train, test):
        table = evaluate(model, (X[train], y[train]), (X[test], y[test]), metrics=[metric])
        value = table["value"].mean() if cause is None else table.loc[("relapse", metric), "value"]
        return value * (1 if table["higher_is_better"].iloc[0] else -1)

    scorer = SurvivalScorer(metric, all_rows=y, cause=cause)
    parts = [expected(*fold) for fold in FOLDS.split(X)]
    np.testing.assert_allclose(cross_val_score(model, X, y, cv=FOLDS, scoring=scorer), parts, rtol=1e-12)
    some = np.arange(60)
    again = pickle.loads(pickle.dumps(SurvivalScorer(metric, train=y[60:], cause=cause)))
    assert again(model, X[:60], y[:60]) == pytest.approx(expected(np.arange(60, 150), some), rel=1e-12)


def test_entry_and_subjects_go_along_with_the_rows():
    entry = np.where(np.arange(150) % 2, 0.0, np.floor(0.5 * TIME))
    late = Surv(TIME, EVENT, entry=entry, id=np.arange(150), weight=WEIGHT)
    got = cross_val_score(Rates(), X, late, cv=FOLDS, scoring=SurvivalScorer("c_harrell", all_rows=late))
    expected = [concordance_harrell(late[test], X[test, 0]) for _, test in FOLDS.split(X)]
    np.testing.assert_allclose(got, expected, rtol=1e-12)
    with pytest.raises(DataError, match="ibs_graf: it takes every row as at risk from time zero"):
        SurvivalScorer("ibs_graf", train=late)(Rates(), X, late)


def test_forms_of_y_are_equal():
    train, test = np.arange(100), np.arange(100, 150)
    frame = pd.DataFrame({"time": TIME, "event": EVENT})
    structured = np.array(list(zip(EVENT, TIME, strict=True)), dtype=[("event", bool), ("time", float)])
    values = [
        SurvivalScorer("ibs_graf", train=known)(Rates(), X[test], y)
        for known, y in (
            (structured[train], structured[test]),
            (frame.iloc[train], frame.iloc[test]),
            ((TIME[train], EVENT[train]), (TIME[test], EVENT[test])),
        )
    ]
    values.append(SurvivalScorer("ibs_graf", all_rows=structured)(Rates(), X[test], structured[test]))
    assert np.ptp(values) < 1e-14
    assert max(values) < 0
    assert (
        repr(SurvivalScorer("ibs_graf", all_rows=Y))
        == "SurvivalScorer(metric='ibs_graf', cause=None, tau=None)"
    )


@pytest.mark.parametrize(
    ("error", "words", "options"),
    [
        (ConfigError, "'d_calibration_p'", {"metric": "d_calibration_p", "all_rows": Y}),
        (ConfigError, "neither", {"metric": "ibs_graf"}),
        (ConfigError, "both", {"metric": "c_uno", "train": Y, "all_rows": Y}),
        (ConfigError, "tau", {"metric": "c_uno", "all_rows": Y, "tau": 0.0}),
        (ConfigError, "unknown cause 3", {"metric": "ibs", "all_rows": CAUSES, "cause": 3}),
        (ConfigError, "one event", {"metric": "c_uno", "all_rows": Y, "cause": 1}),
        (DataError, "train: y is a int", {"metric": "ibs_graf", "train": 3}),
        (DataError, "all_rows: y is a plain array", {"metric": "c_uno", "all_rows": np.ones(3)}),
    ],
)
def test_wrong_arguments_raise_at_once(error, words, options):
    with pytest.raises(error, match=words):
        SurvivalScorer(**options)


def test_rows_that_are_not_among_all_raise():
    with pytest.raises(DataError, match="time 999 and event 1 is not among all_rows"):
        SurvivalScorer("c_uno", all_rows=Y)(Rates(), X[:2], ([1.0, 999.0], [1, 1]))
    with pytest.raises(DataError, match="time 77 and cause 1 is not among all_rows"):
        SurvivalScorer("ibs", all_rows=CAUSES)(
            CauseRates(), RATES[:1], Surv([77.0], [1], causes=("death", "relapse"))
        )
    with pytest.raises(DataError, match="all of all_rows are scored"):
        SurvivalScorer("ibs_graf", all_rows=Y)(Rates(), X, Y)
    with pytest.raises(DataError, match="ici_pseudo of death: it is not defined for competing causes"):
        SurvivalScorer("ici_pseudo", train=CAUSES)(CauseRates(), RATES, CAUSES)


class Remembers(Rates):
    """Keeps the event times that it was fitted on."""

    def fit(self, X, y):
        self.event_times_ = np.unique(y.time[y.event])
        return self


def test_rows_that_the_estimator_was_not_fitted_on_raise():
    scorer = SurvivalScorer("ibs_graf", all_rows=Y)
    plain = cross_val_score(Rates(), X, Y, cv=FOLDS, scoring=scorer)
    np.testing.assert_array_equal(cross_val_score(Remembers(), X, Y, cv=FOLDS, scoring=scorer), plain)
    inner = ShuffleSplit(2, train_size=0.3, test_size=0.3, random_state=0)
    with pytest.raises(DataError, match="has seen no event"):
        cross_val_score(Remembers(), X, Y, cv=inner, scoring=scorer, error_score="raise")
    train, test = next(inner.split(X))
    given = SurvivalScorer("ibs_graf", train=Y[train])
    assert np.isfinite(given(Remembers().fit(X[train], Y[train]), X[test], Y[test]))
    fixed = SurvivalScorer("c_harrell", train=Y)
    grid = GridSearchCV(Remembers(), {"factor": [1.0]}, cv=FOLDS, scoring=fixed).fit(X[train], Y[train])
    with pytest.raises(DataError, match="has seen no event"):
        scorer(grid, X[test], Y[test])


@pytest.mark.parametrize("model", [OptimalSurvivalTree(max_depth=1), SurvivalRegression("exponential")])
def test_rows_without_weight_are_those_that_were_left_out(model):
    """Estimators were taken for fitted on other rows."""
    y, train = Y.weighted(np.arange(150) % 5), np.arange(150) < 100
    fitted = model.fit(X[train], y[train])
    scorers = SurvivalScorer("ibs_graf", all_rows=y), SurvivalScorer("ibs_graf", train=y[train])
    found, expected = (scorer(fitted, X[~train], y[~train]) for scorer in scorers)
    assert found == pytest.approx(expected, rel=1e-12)


def test_times_and_events_in_another_order_raise():
    time, event = pd.Series([3.0, 1.0, 4.0, 2.0]), pd.Series([True, False, True, True])
    rate, turned = pd.DataFrame({"rate": [0.4, 0.9, 0.1, 0.6]}), event.iloc[::-1]
    scorer = SurvivalScorer("c_harrell", train=(time, event))
    for y, x in (((time, turned), rate), ((time, event), rate.iloc[::-1])):
        with pytest.raises(DataError, match="row labels"):
            scorer(Rates(), x, y)
    with pytest.raises(DataError, match="row labels"):
        SurvivalScorer("ibs_graf", train=(time, turned))


@pytest.mark.nightly
def test_a_grid_search_over_trees_with_causes_takes_the_scorer():
    x = RNG.normal(size=(120, 1))
    y = Surv(RNG.exponential(np.exp(-x[:, 0])), RNG.integers(0, 3, 120), causes=("a", "b"))
    scorer = SurvivalScorer("ibs", all_rows=y, cause="b")
    search = GridSearchCV(SurvivalRegression(), {"leaf": ["weibull", "exponential"]}, scoring=scorer, cv=2)
    assert np.isfinite(search.fit(x, y).cv_results_["mean_test_score"]).all()

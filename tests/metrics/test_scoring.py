import pickle

import numpy as np
import pandas as pd
import pytest
from sklearn.model_selection import GridSearchCV, KFold, ShuffleSplit, cross_val_score

from sstorch import OptimalSurvivalTree, Surv, SurvivalRegression, metrics
from sstorch.exceptions import ConfigError, DataError
from sstorch.metrics import SurvivalScorer

from .cohorts import Rates


def rows(n=150):
    rng = np.random.default_rng(0)
    rate = rng.gamma(3.0, 0.02, n)
    life, censoring = rng.exponential(1 / rate), rng.uniform(5, 60, n)
    y = np.empty(n, dtype=[("event", bool), ("time", float)])
    y["event"], y["time"] = life <= censoring, np.ceil(np.minimum(life, censoring))  # ties
    return rate[:, None], y


X, Y = rows()
FOLDS = KFold(4, shuffle=True, random_state=0)


@pytest.mark.parametrize("metric", ["c_uno", "ibs_graf", "ibs_sksurv", "ibs_surtree"])
def test_cross_validation_uses_the_training_rows_of_each_fold(metric):
    got = cross_val_score(Rates(), X, Y, cv=FOLDS, scoring=SurvivalScorer(metric, all_rows=Y))
    expected = []
    for train, test in FOLDS.split(X):
        table = metrics.evaluate(
            Rates(),
            (X[train], (Y["time"][train], Y["event"][train])),
            (X[test], (Y["time"][test], Y["event"][test])),
            metrics=[metric],
        )
        expected.append(table.loc[metric, "value"] * (1 if table.loc[metric, "higher_is_better"] else -1))
    np.testing.assert_allclose(got, expected, rtol=1e-12)


def test_a_fixed_split_and_the_forms_of_y():
    train, test = np.arange(100), np.arange(100, 150)
    frame = pd.DataFrame({"time": Y["time"], "event": Y["event"]})
    values = {
        SurvivalScorer("ibs_graf", train=y_train)(Rates(), X[test], y_test)
        for y_train, y_test in (
            (Y[train], Y[test]),
            (frame.iloc[train], frame.iloc[test]),
            ((Y["time"][train], Y["event"][train]), (Y["time"][test], Y["event"][test])),
        )
    }
    values.add(SurvivalScorer("ibs_graf", all_rows=Y)(Rates(), X[test], Y[test]))
    assert max(values) - min(values) < 1e-14
    assert max(values) < 0


def test_scorers_travel_to_other_processes():
    scorer = pickle.loads(pickle.dumps(SurvivalScorer("c_uno", all_rows=Y)))
    assert scorer(Rates(), X[:50], Y[:50]) == SurvivalScorer("c_uno", all_rows=Y)(Rates(), X[:50], Y[:50])


def test_refusals():
    with pytest.raises(ConfigError, match="got 'd_calibration_p'"):
        SurvivalScorer("d_calibration_p", all_rows=Y)
    with pytest.raises(ConfigError, match=r"give either train.*got neither"):
        SurvivalScorer("ibs_graf")
    with pytest.raises(ConfigError, match="got both"):
        SurvivalScorer("c_uno", train=Y, all_rows=Y)
    with pytest.raises(ConfigError, match="tau must be one finite time"):
        SurvivalScorer("c_uno", all_rows=Y, tau=0.0)
    with pytest.raises(DataError, match="a scored row with time 999 and event 1 is not among all_rows"):
        SurvivalScorer("c_uno", all_rows=Y)(Rates(), X[:2], ([1.0, 999.0], [1, 1]))
    with pytest.raises(DataError, match="all of all_rows are scored"):
        SurvivalScorer("ibs_graf", all_rows=Y)(Rates(), X, Y)


class Remembers(Rates):
    """Keeps the event times that it was fitted on, or the number of rows."""

    def fit(self, X, y):
        self.event_times_ = np.unique(y["time"][y["event"]])
        self.n_samples_fit_ = len(y)
        return self


class Times(Remembers):
    def fit(self, X, y):
        super().fit(X, y)
        del self.n_samples_fit_
        return self


def test_rows_that_the_estimator_was_not_fitted_on_are_refused_where_it_tells():
    scorer = SurvivalScorer("ibs_graf", all_rows=Y)
    plain = cross_val_score(Rates(), X, Y, cv=FOLDS, scoring=scorer)
    for model, match in ((Remembers(), "fitted on 45"), (Times(), "has seen no event")):
        np.testing.assert_array_equal(cross_val_score(model, X, Y, cv=FOLDS, scoring=scorer), plain)
        inner = ShuffleSplit(2, train_size=0.3, test_size=0.3, random_state=0)
        with pytest.raises(DataError, match=match):
            cross_val_score(model, X, Y, cv=inner, scoring=scorer, error_score="raise")
    train, test = next(ShuffleSplit(1, train_size=0.3, test_size=0.3, random_state=0).split(X))
    given = SurvivalScorer("ibs_graf", train=Y[train])
    assert np.isfinite(given(Remembers().fit(X[train], Y[train]), X[test], Y[test]))
    grid = GridSearchCV(
        Times(), {"factor": [1.0]}, cv=FOLDS, scoring=SurvivalScorer("c_harrell", train=Y)
    ).fit(X[train], Y[train])
    with pytest.raises(DataError, match="has seen no event"):
        scorer(grid, X[test], Y[test])


def test_scorers_do_not_print_the_data_and_check_it_at_once():
    assert (
        repr(SurvivalScorer("ibs_graf", all_rows=Y))
        == "SurvivalScorer(metric='ibs_graf', cause=None, tau=None)"
    )
    with pytest.raises(DataError, match="train: y is a int"):
        SurvivalScorer("ibs_graf", train=3)
    with pytest.raises(DataError, match="all_rows: y is a plain array"):
        SurvivalScorer("c_uno", all_rows=np.ones(3))


def test_times_and_events_in_another_order_are_refused():
    time, event = pd.Series([3.0, 1.0, 4.0, 2.0]), pd.Series([True, False, True, True])
    rate = pd.DataFrame({"rate": [0.4, 0.9, 0.1, 0.6]})
    scorer = SurvivalScorer("c_harrell", train=(time, event))
    turned = event.iloc[::-1]
    for y, x in (((time, turned), rate), ((time, event), rate.iloc[::-1])):
        with pytest.raises(DataError, match="row labels"):
            scorer(Rates(), x, y)
    with pytest.raises(DataError, match="time and event: the same row labels"):
        SurvivalScorer("ibs_graf", train=(time, turned))


@pytest.mark.parametrize("model", [OptimalSurvivalTree(max_depth=1), SurvivalRegression("exponential")])
def test_rows_without_weight_are_those_that_were_left_out(model):
    """Estimators were taken for fitted on other rows."""
    y = Surv(Y["time"], Y["event"], weight=np.arange(150) % 5)
    train = np.arange(150) < 100
    fitted = model.fit(X[train], y[train])
    scorers = SurvivalScorer("ibs_graf", all_rows=y), SurvivalScorer("ibs_graf", train=y[train])
    found, expected = (scorer(fitted, X[~train], y[~train]) for scorer in scorers)
    assert found == pytest.approx(expected, rel=1e-12)

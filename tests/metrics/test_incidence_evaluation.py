"""Scores of incidences by name: each is the function of its name at the stated times; scorers; refusals."""

import numpy as np
import pandas as pd
import pytest
from sklearn.base import BaseEstimator
from sklearn.model_selection import KFold, cross_val_score

from sstorch import SurvivalData, metrics
from sstorch.exceptions import ConfigError, DataError
from sstorch.metrics import IncidenceScorer, evaluate_incidence, incidence_times

NAMES = {1: "relapse", 2: "death"}


class Rates(BaseEstimator):
    """Constant hazards of two causes, the columns."""

    def fit(self, X, y):
        self.fitted_ = True
        return self

    def predict_cumulative_incidence(self, X, times):
        rate = np.asarray(X)
        total = rate.sum(axis=1)
        share = (rate / total[:, None])[:, :, None]
        return share * (1 - np.exp(-np.outer(total, times)))[:, None]


def draw(n, seed):
    rng = np.random.default_rng(seed)
    rate = rng.gamma(3.0, 0.02, (n, 2))
    each, censored = rng.exponential(1 / rate), rng.uniform(5, 60, n)
    time = np.minimum(each.min(axis=1), censored)
    cause = np.where(censored < each.min(axis=1), 0, 1 + each.argmin(axis=1))
    return rate, (np.ceil(time), cause)  # ties


TRAIN, TEST = draw(200, 0), draw(150, 1)
(TIME, CAUSE), KNOWN = TEST[1], TRAIN[1]


def named(rows):
    return SurvivalData(*rows, causes=NAMES, require_events=False)


@pytest.mark.parametrize("tau", [None, 20.0])
def test_each_score_is_the_function_of_its_name(tau):
    table = evaluate_incidence(Rates(), named(TRAIN), named(TEST), tau=tau)
    assert table.index.unique("cause").tolist() == ["relapse", "death"]
    assert (table["reason"] == "").all()
    times = incidence_times(KNOWN, tau)
    last = tau or np.quantile(KNOWN[0][KNOWN[1] > 0], 0.9)
    assert times[-1] == last
    assert len(times) <= 101
    incidence = Rates().predict_cumulative_incidence(TEST[0], times)
    for k, name in NAMES.items():
        curves, rows = incidence[:, k - 1], (TIME, CAUSE)
        risk, options = curves[:, -1], {"train": KNOWN}
        ibs = metrics.integrated_brier_score_incidence(rows, curves, times, k, **options)
        same = np.broadcast_to(metrics.aalen_johansen(KNOWN, times)[k - 1], curves.shape)
        of_all = metrics.integrated_brier_score_incidence(rows, same, times, k, **options)
        at = curves[:, -1:], times[-1:], k
        expected = {
            "c_cause_specific": metrics.concordance_cause_specific(rows, risk, k, tau=last),
            "c_wolbers": metrics.concordance_wolbers(rows, risk, k, tau=last, **options),
            "auc": metrics.cumulative_dynamic_auc_incidence(rows, *at, **options)[0],
            "brier": metrics.brier_score_incidence(rows, *at, **options)[0],
            "ibs": ibs,
            "scaled_ibs": 1 - ibs / of_all,
            "aj_calibration": metrics.aalen_johansen_calibration(rows, curves, times, k),
        }
        assert table.loc[name, "value"].to_dict() == pytest.approx(expected, rel=1e-14)
    better = {"c_cause_specific", "c_wolbers", "auc", "scaled_ibs"}
    assert set(table.loc["death"].query("higher_is_better").index) == better


def test_curves_that_are_given_and_the_forms_of_rows():
    times = incidence_times(KNOWN)
    incidence = Rates().predict_cumulative_incidence(TEST[0], times)
    expected = evaluate_incidence(Rates(), named(TRAIN), named(TEST))
    for test in (TEST, (TEST[0], pd.DataFrame({"time": TIME, "cause": CAUSE}))):
        got = evaluate_incidence((incidence, times), TRAIN, test)
        np.testing.assert_array_equal(got["value"], expected["value"])
        assert got.index.unique("cause").tolist() == ["1", "2"]
    got = evaluate_incidence((incidence, times), named(TRAIN), TEST)
    pd.testing.assert_frame_equal(got, expected)
    early = evaluate_incidence((incidence, times), TRAIN, TEST, tau=float(times[20]))
    same = evaluate_incidence((incidence[..., :21], times[:21]), TRAIN, TEST)
    pd.testing.assert_frame_equal(early, same)


def test_what_is_not_defined_is_nan_with_a_reason():
    rows = TEST[0], (TIME, np.minimum(CAUSE, 1))
    table = evaluate_incidence(Rates(), named(TRAIN), named(rows))
    assert np.isnan(table.loc[("death", "c_wolbers"), "value"])
    assert table.loc[("death", "c_wolbers"), "reason"].startswith("no comparable pair")
    assert table.loc[("death", "auc"), "reason"].startswith("times: up to")
    assert np.isfinite(table.loc["relapse", "value"]).all()
    with pytest.raises(DataError, match=r"^c_wolbers of death: no comparable pair"):
        evaluate_incidence(Rates(), named(TRAIN), named(rows), metrics=["c_wolbers"])


def test_what_is_refused():
    times = np.array([5.0, 20.0])
    incidence = Rates().predict_cumulative_incidence(TEST[0], times)
    survival = 1 - incidence.sum(axis=1, keepdims=True)
    with pytest.raises(DataError, match="Where the first curve is survival, leave it out"):
        evaluate_incidence((np.concatenate([survival, incidence], axis=1), times), TRAIN, TEST)
    with pytest.raises(DataError, match="expected curves that do not fall"):
        evaluate_incidence((incidence[..., ::-1], times), TRAIN, TEST)
    with pytest.raises(
        DataError, match=r"model: expected a fitted model with predict_cumulative_incidence.*got int"
    ):
        evaluate_incidence(3, TRAIN, TEST)
    with pytest.raises(DataError, match="test: the data tell no causes"):
        evaluate_incidence(Rates(), named(TRAIN), SurvivalData(TEST[0], (TIME, CAUSE > 0)))
    with pytest.raises(DataError, match="expected the causes of the training rows, relapse, death; got 1, 2"):
        evaluate_incidence(Rates(), named(TRAIN), SurvivalData(*TEST, causes="auto"))
    with pytest.raises(DataError, match="train: expected SurvivalData or the pair"):
        evaluate_incidence(Rates(), [1, 2, 3], TEST)
    with pytest.raises(ConfigError, match="metrics: 'c_uno' is unknown"):
        evaluate_incidence(Rates(), TRAIN, TEST, metrics=["c_uno"])
    with pytest.raises(DataError, match="tau: expected a time within the observed ones"):
        evaluate_incidence(Rates(), TRAIN, TEST, tau=1e4)
    with pytest.raises(DataError, match="times: expected some up to tau=1"):
        evaluate_incidence((incidence, times), TRAIN, TEST, tau=1.0)
    with pytest.raises(DataError, match="no row has an event"):
        incidence_times(([1.0, 2.0], [0, 0]))


@pytest.mark.parametrize(("metric", "cause"), [("ibs", None), ("c_wolbers", 2), ("auc", "relapse")])
def test_scorers_weigh_by_the_training_rows_of_each_fold(metric, cause):
    y = pd.DataFrame({"time": KNOWN[0], "cause": np.array(["censored", "death", "relapse"])[KNOWN[1]]})
    data, folds = SurvivalData(TRAIN[0], y, causes="auto"), KFold(3, shuffle=True, random_state=0)

    def expected(train, test):
        table = evaluate_incidence(Rates(), train, test, metrics=[metric])["value"]
        return -table.mean() if cause is None else table["relapse", metric]

    scorer = IncidenceScorer(metric, all_rows=y, cause=cause)
    got = cross_val_score(Rates(), TRAIN[0], y, cv=folds, scoring=scorer)
    parts = [expected(data.subset(train), data.subset(test)) for train, test in folds.split(TRAIN[0])]
    np.testing.assert_allclose(got, parts, rtol=1e-12)
    fixed = IncidenceScorer(metric, train=y, cause=cause)(Rates(), TRAIN[0], y)
    assert fixed == pytest.approx(expected(data, data), rel=1e-12)


def test_scorers_refuse():
    y = pd.DataFrame({"time": TIME, "cause": CAUSE})
    with pytest.raises(ConfigError, match="metric: 'ici' is unknown"):
        IncidenceScorer("ici", all_rows=y)
    with pytest.raises(ConfigError, match="there is no cause 3"):
        IncidenceScorer("ibs", all_rows=y, cause=3)
    with pytest.raises(ConfigError, match="got both"):
        IncidenceScorer("ibs", train=y, all_rows=y)
    other = pd.DataFrame({"time": [77.0], "cause": [1]})
    with pytest.raises(DataError, match="with time 77 and cause 1 is not among all_rows"):
        IncidenceScorer("ibs", all_rows=y)(Rates(), TEST[0][:1], other)

"""Metrics by name, of one event and of competing causes: each is the function of its name, or says why."""

import pickle
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from lifelines import CoxPHFitter
from sklearn.model_selection import KFold, cross_val_score

import sstorch
from sstorch import Surv, SurvivalData, metrics, validate
from sstorch.exceptions import ConfigError, DataError
from sstorch.metrics import SurvivalScorer, evaluate
from sstorch.metrics.grids import incidence_times
from sstorch.metrics.registry import METRICS, declare, metric, names_of
from sstorch.metrics.scored import Scored

from .cohorts import CauseRates, Rates, rows_of_causes

CAUSES = ("relapse", "death")


class Exponential(Rates):
    """Rates with a likelihood; counts how often it is asked."""

    asked = 0

    def predict_survival_function(self, X, times):
        self.asked += 1
        return super().predict_survival_function(X, times)

    def log_likelihood(self, X, y):
        rate = np.asarray(X)[:, 0]
        return float(np.mean(y.event * np.log(rate) - rate * y.time))


class CurvesOnly(Rates):
    log_likelihood = -3.0  # no method


def rows(n, seed, scale=20.0):
    rng = np.random.default_rng(seed)
    rate = rng.gamma(3.0, 1 / 3.0, n) / scale
    life, censoring = rng.exponential(1 / rate), rng.uniform(0.5 * scale, 3 * scale, n)
    return rate[:, None], (np.minimum(life, censoring), life <= censoring)


TRAIN, TEST = rows(300, 0), rows(120, 1)
(X, (TIME, EVENT)), KNOWN = TEST, TRAIN[1]
KNOWN_RATES, (CAUSE_TIME, KNOWN_CAUSE) = rows_of_causes(200, 0)
RATES, CAUSE_ROWS = rows_of_causes(150, 1)
OF_CAUSES = [
    (rate, Surv(*y, causes=CAUSES))
    for rate, y in ((KNOWN_RATES, (CAUSE_TIME, KNOWN_CAUSE)), (RATES, CAUSE_ROWS))
]


def test_every_metric_of_an_estimator_that_is_asked_once():
    model = Exponential()
    table = evaluate(model, TRAIN, TEST)
    assert model.asked == 1
    assert table.index.tolist() == names_of("event")
    assert np.isfinite(table["value"].to_numpy()).all()
    assert (table["reason"] == "").all()
    assert table["higher_is_better"].tolist().count(None) == 1
    graf = metrics.evaluation_times(TIME, KNOWN[0])
    curves = model.predict_survival_function(X, graf)
    expected = {
        "c_harrell": metrics.concordance_harrell((TIME, EVENT), curves, graf),
        "c_uno": metrics.concordance_uno((TIME, EVENT), curves, graf, train=KNOWN),
        "negative_log_likelihood": -model.log_likelihood(X, Surv(TIME, EVENT)),
    }
    for convention in ("graf", "sksurv", "surtree", "osst"):
        grid = metrics.evaluation_times(TIME, KNOWN[0], convention)
        own = model.predict_survival_function(X, grid)
        expected[f"ibs_{convention}"] = metrics.integrated_brier_score(
            (TIME, EVENT), own, grid, train=KNOWN, convention=convention
        )
    km = np.tile(metrics.KaplanMeier.fit(KNOWN).at(graf), (120, 1))
    reference = metrics.integrated_brier_score((TIME, EVENT), km, graf, train=KNOWN)
    expected["scaled_ibs_graf"] = 1 - expected["ibs_graf"] / reference
    assert table.loc[list(expected), "value"].to_dict() == pytest.approx(expected, rel=1e-12)
    assert "negative_log_likelihood" not in evaluate(CurvesOnly(), TRAIN, TEST).index


def test_own_weights_of_scored_rows_and_tied_times_are_asked_for():
    names = ["ibs_graf", "ibs_graf_own", "c_harrell_ties"]
    table = evaluate(Exponential(), TEST, TEST, metrics=names)["value"]
    assert table["ibs_graf_own"] == table["ibs_graf"]
    grid = np.unique(TIME)
    curves = Exponential().predict_survival_function(X, grid)
    ties = metrics.concordance_harrell((TIME, EVENT), curves, grid, tied_time="all")
    assert table["c_harrell_ties"] == pytest.approx(ties, rel=1e-12)


def test_tau_and_the_median_event_time_are_horizons():
    grid = np.unique(TIME)
    curves = Exponential().predict_survival_function(X, grid)
    t, tau = float(np.median(TIME[EVENT])), float(np.sort(TIME[EVENT])[40])
    at = curves[:, np.searchsorted(grid, t, side="right") - 1]
    index = metrics.calibration_errors(metrics.HorizonRows.of((TIME, EVENT), at, t)).ici
    found = evaluate((curves, grid), TRAIN, TEST, metrics=["ici_pseudo"])["value"].item()
    assert found == pytest.approx(index, rel=1e-12)
    table = evaluate((curves, grid), TRAIN, TEST, metrics=["cd_auc", "c_harrell"], tau=tau)["value"]
    inside = (grid >= TIME[EVENT].min()) & (grid <= tau)
    auc = metrics.cumulative_dynamic_auc((TIME, EVENT), curves[:, inside], grid[inside], train=KNOWN)
    expected = metrics.mean_cumulative_dynamic_auc((TIME, EVENT), auc, grid[inside])
    assert table["cd_auc"] == pytest.approx(expected, abs=1e-14)
    assert table["c_harrell"] == metrics.concordance_harrell((TIME, EVENT), X[:, 0], tau=tau)


@pytest.mark.parametrize("tau", [None, 20.0])
def test_each_score_of_a_cause_is_the_function_of_its_name(tau):
    table = evaluate(CauseRates(), *OF_CAUSES, tau=tau)
    assert table.index.unique("cause").tolist() == list(CAUSES)
    assert (table["reason"] == "").all()
    known = CAUSE_TIME, KNOWN_CAUSE
    times = incidence_times(known, tau)
    assert times[-1] == (tau or np.quantile(CAUSE_TIME[KNOWN_CAUSE > 0], 0.9))
    assert len(times) <= 101
    incidence = CauseRates().predict_cumulative_incidence(RATES, times)
    after = float(np.nextafter(times[-1], np.inf))
    for k, name in enumerate(CAUSES, 1):
        curves = 1 - incidence[:, k - 1]
        risk, at, own = -curves[:, -1], (curves[:, -1:], times[-1:]), {"cause": k, "train": known}
        over = {"convention": "trapezoid", **own}
        ibs = metrics.integrated_brier_score(CAUSE_ROWS, curves, times, **over)
        expected = {
            "c_cause_specific": metrics.concordance_harrell(
                CAUSE_ROWS, risk, cause=k, tau=after, tied_time="censored_later"
            ),
            "c_wolbers": metrics.concordance_wolbers(CAUSE_ROWS, risk, k, tau=after, train=known),
            "auc": metrics.cumulative_dynamic_auc(CAUSE_ROWS, *at, **own)[0],
            "brier": metrics.brier_score(CAUSE_ROWS, *at, **own)[0],
            "ibs": ibs,
        }
        assert table.loc[name, "value"].to_dict() == pytest.approx(expected, rel=1e-14)
    higher = table.loc["death", "higher_is_better"].astype(bool)
    assert set(higher.index[higher]) == {"c_cause_specific", "c_wolbers", "auc"}


def test_incidences_are_given_as_curves():
    train, test = OF_CAUSES
    times = incidence_times(train[1])
    incidence = CauseRates().predict_cumulative_incidence(RATES, times)
    expected = evaluate(CauseRates(), train, test)
    for rows in ((train, test), [SurvivalData(*part, require_events=False) for part in (train, test)]):
        pd.testing.assert_frame_equal(evaluate((incidence, times), *rows), expected)
    early = evaluate((incidence, times), train, test, tau=float(times[20]))
    pd.testing.assert_frame_equal(early, evaluate((incidence[..., :21], times[:21]), train, test))


def test_undefined_is_nan_with_a_reason():
    y = Surv(CAUSE_ROWS[0], np.minimum(CAUSE_ROWS[1], 1), causes=CAUSES)
    table = evaluate(CauseRates(), OF_CAUSES[0], (RATES, y))
    assert np.isnan(table.loc[("death", "c_wolbers"), "value"])
    assert table.loc[("death", "c_wolbers"), "reason"].startswith("no comparable pair")
    assert np.isfinite(table.loc["relapse", "value"]).all()
    with pytest.raises(DataError, match=r"^c_wolbers of death: no comparable pair"):
        evaluate(CauseRates(), OF_CAUSES[0], (RATES, y), metrics=["c_wolbers"])


class StepModel:
    """Step functions on the training times, as the models of scikit-survival predict."""

    def predict_survival_function(self, X, return_array=False):
        step, x = pytest.importorskip("sksurv.functions").StepFunction, np.linspace(2.0, 40.0, 50)
        return [step(x, np.exp(-rate * x), domain=(2.0, 40.0)) for rate in np.asarray(X)[:, 0]]


def test_step_functions_are_read():
    rows = Scored.of(StepModel(), TRAIN, TEST)
    survival = rows.curves()
    assert (survival[:, rows.times < 2.0] == 1.0).all()
    np.testing.assert_array_equal(survival[:, rows.times > 40.0][:, 0], np.exp(-40.0 * X[:, 0]))
    k, x = int(np.searchsorted(rows.times, 20.0)), np.linspace(2.0, 40.0, 50)
    np.testing.assert_array_equal(survival[:, k], np.exp(-x[x <= rows.times[k]][-1] * X[:, 0]))


def test_a_model_of_lifelines_is_scored_as_its_curves():
    rng = np.random.default_rng(5)
    x = rng.normal(size=120)
    frame = pd.DataFrame({"x": x, "time": rng.exponential(np.exp(-x)), "event": rng.random(120) < 0.8})
    model = CoxPHFitter().fit(frame, "time", "event")
    rows = (frame[["x"]], (frame["time"], frame["event"]))
    times = np.unique(frame["time"])
    curves = model.predict_survival_function(frame[["x"]], times=times).to_numpy().T
    expected = evaluate((curves, times), rows, rows, metrics=["c_harrell", "c_uno"])
    pd.testing.assert_frame_equal(evaluate(model, rows, rows, metrics=["c_harrell", "c_uno"]), expected)


def test_one_curve_for_all_rows_and_rows_beyond_the_training_rows_are_scored():
    train = TRAIN[0], (np.minimum(KNOWN[0], 15.0), KNOWN[1] & (KNOWN[0] <= 15.0))
    assert np.isfinite(evaluate(Exponential(), train, TEST)["value"].to_numpy()).all()
    grid = metrics.evaluation_times(TIME, KNOWN[0])
    table = evaluate((np.tile(metrics.KaplanMeier.fit(KNOWN).at(grid), (120, 1)), grid), TRAIN, TEST)
    assert table["value"].notna().all()
    assert table.loc["c_harrell", "value"] == 0.5
    assert table.loc["ici_pseudo", "value"] < 0.2
    assert table.loc["scaled_ibs_graf", "value"] == pytest.approx(0.0, abs=1e-12)


class RowsAlone:
    """Curves at times of its own choice."""

    def predict_survival_function(self, X):
        return np.ones((len(X), 3))

    def predict_cumulative_incidence(self, X):
        return np.zeros((len(X), 2, 3))


NAMES = {"metrics": ["c_harrell"]}
FRAME, TARGET = pd.DataFrame(X, columns=["rate"]), pd.DataFrame({"time": TIME, "event": EVENT})
TURNED = pd.DataFrame(Exponential().predict_survival_function(X, [5.0, 20.0]))[::-1], [5.0, 20.0]
FALSE = ([3.0, 4.0], [0, 0])
TIMES_OF_CAUSES = np.array([5.0, 20.0])
INCIDENCE = CauseRates().predict_cumulative_incidence(RATES, TIMES_OF_CAUSES)
WITH_SURVIVAL = np.concatenate([1 - INCIDENCE.sum(axis=1, keepdims=True), INCIDENCE], axis=1)
OTHER_CAUSES = (RATES, Surv(*CAUSE_ROWS, causes=("1", "2")))
EMPTY, WEIGHTED = (X[:0], Surv(TIME, EVENT)[:0]), (X, Surv(TIME, EVENT, weight=1.0 + EVENT))


@pytest.mark.parametrize(
    ("error", "words", "arguments", "options"),
    [
        (ConfigError, "'c_index'", (Exponential(), TRAIN, TEST), {"metrics": ["c_index"]}),
        (DataError, "the class StepModel itself", (StepModel, TRAIN, TEST), {}),
        (DataError, r"survival_function\(X\): add times", (RowsAlone(), TRAIN, TEST), {}),
        (DataError, r"incidence\(X\): add times", (RowsAlone(), *OF_CAUSES), {}),
        (DataError, "test: y .*plain array", (Exponential(), TRAIN, (X, TIME)), {}),
        (DataError, "test: the data have no rows", (Exponential(), TRAIN, EMPTY), {}),
        (DataError, "log_likelihood", (CurvesOnly(), TRAIN, TEST), {"metrics": ["negative_log_likelihood"]}),
        (DataError, "^c_harrell: no comparable pair", (Exponential(), TRAIN, (X[:2], FALSE)), NAMES),
        (DataError, "^cd_auc: .*cases", (Exponential(), TRAIN, (X[:2], FALSE)), {"metrics": ["cd_auc"]}),
        (DataError, "y has weights, and", (Rates(), TRAIN, WEIGHTED), {"metrics": ["ici_pseudo"]}),
        (DataError, "X and y: the same row labels", (CurvesOnly(), TRAIN, (FRAME, TARGET[::-1])), {}),
        (DataError, "survival: the same row labels", (TURNED, TRAIN, (FRAME, TARGET)), NAMES),
        (DataError, "leave it out", ((WITH_SURVIVAL, TIMES_OF_CAUSES), *OF_CAUSES), {}),
        (DataError, "1 - incidence of relapse", ((INCIDENCE[..., ::-1], TIMES_OF_CAUSES), *OF_CAUSES), {}),
        (DataError, "train: y has no causes", (CauseRates(), TEST, OF_CAUSES[1]), {}),
        (DataError, "the model has relapse, death", (CauseRates(), OF_CAUSES[0], OTHER_CAUSES), {}),
        (DataError, "c_uno of relapse: it is not", (CauseRates(), *OF_CAUSES), {"metrics": ["c_uno"]}),
        (DataError, "up to tau=1", ((INCIDENCE, TIMES_OF_CAUSES), *OF_CAUSES), {"tau": 1.0}),
    ],
)
def test_wrong_arguments_raise(error, words, arguments, options):
    with pytest.raises(error, match=words):
        evaluate(*arguments, **options)


def test_equal_names_of_evaluate_and_validate_are_equal_numbers_on_tied_rows():
    rate, (time, cause) = rows_of_causes(300, 9)
    y = Surv(time, cause, causes=CAUSES)
    own = validate(CauseRates(), rate, y, horizon=15.0, n_resamples=0).to_frame()["value"]
    table = evaluate(CauseRates(), (rate, y), (rate, y), tau=15.0)["value"]
    both = own.index.intersection(table.index)
    assert {name for _, name in both} == {"c_cause_specific", "c_wolbers", "auc", "brier"}
    np.testing.assert_allclose(table[both], own[both], rtol=1e-12)
    alone = validate(Rates(), X, (TIME, EVENT), horizon=20.0, n_resamples=0).to_frame()
    assert not set(alone.index) & set(evaluate(Rates(), TEST, TEST).index)


def test_a_name_is_declared_once_but_by_its_own_function():
    with pytest.raises(ConfigError, match="'c_uno' is declared already"):
        declare("c_uno", title="", short="", higher_is_better=True)

    def declared(score):
        @metric("own", True)
        def own(rows, cause):
            """A score of these tests. Source (2020)."""
            return score

    try:
        declared(1.0)
        declared(2.0)
        assert METRICS["own"].title == "A score of these tests"
        assert evaluate(Exponential(), TRAIN, TEST, metrics=["own"])["value"].item() == 2.0
    finally:
        del METRICS["own"]


def test_selections_and_documentation_hold_every_metric():
    page = (Path(sstorch.__file__).parents[1] / "docs" / "metrics.md").read_text()
    assert {name for name, known in METRICS.items() if known.outcomes} <= set(re.findall(r"`(\w+)`", page))
    assert names_of("event", "tree") == ["c_harrell", "ibs_graf", "ibs_sksurv"]
    assert {"c_uno", "ici_pseudo", "d_calibration_p"} < set(names_of("event", "study"))
    published = ["c_harrell", "c_harrell", "c_uno", "cd_auc", "ibs", "ibs"]
    assert [METRICS[name].published for name in names_of(tag="published")] == published


# ---------------------------------------------------------------------- scorers of scikit-learn

FOLDS = KFold(3, shuffle=True, random_state=0)
ONE, TWO = Surv(np.ceil(TIME), EVENT), OF_CAUSES[1][1]


@pytest.mark.parametrize(
    ("model", "X", "y", "metric", "cause"),
    [
        (Rates(), X, ONE, "ibs_graf", None),
        (Rates(), X, ONE.weighted(1.0 + np.arange(120) % 3), "c_uno", None),
        (CauseRates(), RATES, TWO, "ibs", None),
        (CauseRates(), RATES, TWO, "auc", "relapse"),
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
        (ConfigError, "unknown cause 3", {"metric": "ibs", "train": TWO, "cause": 3}),
        (ConfigError, "one event", {"cause": 2}),
        (DataError, "train: y .*got int", {"train": 3}),
    ],
)
def test_wrong_scorers_raise_at_once(error, words, options):
    with pytest.raises(error, match=words):
        SurvivalScorer(**{"metric": "c_uno", "train": ONE} | options)

"""Scores of incidences: against hazardous and comprisk, by name, and refusals."""

import numpy as np
import pandas as pd
import pytest
from sklearn.model_selection import KFold, cross_val_score

from sstorch import Surv, SurvivalData, metrics
from sstorch.exceptions import ConfigError, DataError
from sstorch.metrics import (
    SurvivalScorer,
    aalen_johansen,
    brier_score,
    concordance_harrell,
    concordance_wolbers,
    evaluate,
    integrated_brier_score,
)
from sstorch.metrics.distribution import aalen_johansen_distance
from sstorch.metrics.grids import incidence_times
from sstorch.metrics.outcome import read_rows

from .cohorts import CauseRates, rows_of_causes

TIMES = np.array([2.0, 5.0, 9.0, 14.0])


Rows = tuple[np.ndarray, np.ndarray]


def draw(n: int, rng: np.random.Generator) -> Rows:
    first, second, censored = rng.exponential(10, n), rng.exponential(15, n), rng.uniform(1, 30, n)
    time = np.minimum(np.minimum(first, second), censored)
    return time, np.where(censored < np.minimum(first, second), 0, np.where(first < second, 1, 2))


@pytest.fixture(scope="module")
def cohort() -> tuple[Rows, Rows, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(5)
    train, test = draw(150, rng), draw(120, rng)
    risk = rng.uniform(size=120)
    return train, test, risk, np.clip(risk[:, None] * (1 - np.exp(-TIMES / 12)), 0, 1)


# hazardous 0.2.0 on the same rows: brier_score_incidence, integrated_brier_score_incidence at TIMES, and
# concordance_index_incidence(taus=[9.0]) with and without Kaplan-Meier's weights.
HAZARDOUS = {
    1: (
        [0.18134889060478018, 0.2788750346825251, 0.3344251302564069, 0.34373154800000855],
        0.30102732612082167,
        0.51806316,
        0.52397981,
    ),
    2: (
        [0.09499110538960157, 0.17720249359566895, 0.2076613598369375, 0.2600781767704608],
        0.19561391223846789,
        0.4947865,
        0.48713491,
    ),
}


@pytest.mark.parametrize("which", [1, 2])
def test_hazardous_gives_the_same(which: int, cohort: tuple[Rows, Rows, np.ndarray, np.ndarray]) -> None:
    train, test, _, incidence = cohort
    brier, integrated, weighted, plain = HAZARDOUS[which]
    found = brier_score(test, 1 - incidence, TIMES, cause=which, train=train)
    np.testing.assert_allclose(found, brier, rtol=1e-12)
    mean = integrated_brier_score(
        test, 1 - incidence, TIMES, cause=which, train=train, convention="trapezoid"
    )
    assert mean == pytest.approx(integrated, rel=1e-12)
    risk = incidence[:, 2]
    found = concordance_wolbers(test, risk, which, tau=9.0, train=train)
    assert found == pytest.approx(weighted, abs=1e-8)
    assert concordance_wolbers(test, risk, which, tau=9.0) == pytest.approx(plain, abs=1e-8)


# concordance_index_cr of comprisk 0.8.0 on the same rows, and with times rounded up: of causes 1 and 2, each
# with the risk and the risk rounded to tenths.
COMPRISK = [0.5353329944077275, 0.5330452465683783, 0.4928956393924547, 0.49093581577658013]


COMPRISK_TIED = [0.5367476851851852, 0.5353009259259259, 0.49201981287837093, 0.4887176664832141]


def test_comprisk_gives_the_cause_specific_concordance(
    cohort: tuple[Rows, Rows, np.ndarray, np.ndarray],
) -> None:
    _, (time, cause), risk, _ = cohort
    for at, expected in ((time, COMPRISK), (np.ceil(time), COMPRISK_TIED)):
        found = [concordance_harrell((at, cause), r, cause=k) for k in (1, 2) for r in (risk, risk.round(1))]
        np.testing.assert_allclose(found, expected, rtol=1e-14)


# aj_calibration_per_event of hazardous 0.2.0 at 0 and TIMES, by alpha and min_prop_at_risk.
DISTANCES = {
    (1, 0.05): [0.1883334970577658, 0.03293846054244811],
    (1, 0.4): [0.06693493936660008, 0.012354706416892021],
    (2, 0.05): [0.04292422000638146, 0.0014983907484465043],
    (2, 0.4): [0.00896057221602086, 0.00030527754129518577],
}


def test_distance_from_aalen_johansen(cohort: tuple[Rows, Rows, np.ndarray, np.ndarray]) -> None:
    _, (time, cause), _, incidence = cohort
    rows = read_rows((time, cause), "a distance", causes=True)
    for (power, share), expected in DISTANCES.items():
        for k in (1, 2):
            found = aalen_johansen_distance(rows, 1 - incidence, np.array(TIMES), k, power, share)
            assert found == pytest.approx(expected[k - 1], rel=1e-12)
    observed = np.broadcast_to(aalen_johansen((time, cause), TIMES)[0], (120, 4))
    assert aalen_johansen_distance(rows, 1 - observed, np.array(TIMES), 1) < 1e-30
    with pytest.raises(DataError, match="at none of them 99%"):
        aalen_johansen_distance(rows, 1 - observed[:, 3:], np.array([9.0]), 1, least=0.99)


NAMES = {1: "relapse", 2: "death"}


TRAIN, TEST = rows_of_causes(200, 0), rows_of_causes(150, 1)


(TIME, CAUSE), KNOWN = TEST[1], TRAIN[1]


def named(rows):
    return SurvivalData(rows[0], Surv(*rows[1], causes=NAMES), require_events=False)


def numbered(rows):
    return rows[0], Surv(*rows[1], causes=("1", "2"))


@pytest.mark.parametrize("tau", [None, 20.0])
def test_each_score_is_the_function_of_its_name(tau):
    table = evaluate(CauseRates(), named(TRAIN), named(TEST), tau=tau)
    assert table.index.unique("cause").tolist() == ["relapse", "death"]
    assert (table["reason"] == "").all()
    times = incidence_times(KNOWN, tau)
    last = tau or np.quantile(KNOWN[0][KNOWN[1] > 0], 0.9)
    assert times[-1] == last
    assert len(times) <= 101
    incidence = CauseRates().predict_cumulative_incidence(TEST[0], times)
    for k, name in NAMES.items():
        curves, rows = 1 - incidence[:, k - 1], (TIME, CAUSE)
        risk, options = -curves[:, -1], {"train": KNOWN}
        own = {"cause": k, "train": KNOWN}
        ibs = metrics.integrated_brier_score(rows, curves, times, convention="trapezoid", **own)
        same = np.broadcast_to(1 - metrics.aalen_johansen(KNOWN, times)[k - 1], curves.shape)
        of_all = metrics.integrated_brier_score(rows, same, times, convention="trapezoid", **own)
        at = curves[:, -1:], times[-1:]
        expected = {
            "c_cause_specific": metrics.concordance_harrell(
                rows, risk, cause=k, tau=np.nextafter(last, np.inf), tied_time="censored_later"
            ),
            "c_wolbers": metrics.concordance_wolbers(
                rows, risk, k, tau=np.nextafter(last, np.inf), **options
            ),
            "auc": metrics.cumulative_dynamic_auc(rows, *at, **own)[0],
            "brier": metrics.brier_score(rows, *at, **own)[0],
            "ibs": ibs,
            "scaled_ibs": 1 - ibs / of_all,
            "aj_calibration": aalen_johansen_distance(
                read_rows(rows, "x", causes=True), np.asarray(curves), np.asarray(times), k
            ),
        }
        assert table.loc[name, "value"].to_dict() == pytest.approx(expected, rel=1e-14)
    better = {"c_cause_specific", "c_wolbers", "auc", "scaled_ibs"}
    death = table.loc["death"]
    assert set(death.index[death["higher_is_better"].astype(bool)]) == better


def test_curves_that_are_given_and_the_forms_of_rows():
    times = incidence_times(KNOWN)
    incidence = CauseRates().predict_cumulative_incidence(TEST[0], times)
    expected = evaluate(CauseRates(), named(TRAIN), named(TEST))
    train, test = numbered(TRAIN), numbered(TEST)
    got = evaluate((incidence, times), train, test)
    np.testing.assert_array_equal(got["value"], expected["value"])
    assert got.index.unique("cause").tolist() == ["1", "2"]
    got = evaluate((incidence, times), named(TRAIN), named(TEST))
    pd.testing.assert_frame_equal(got, expected)
    early = evaluate((incidence, times), train, test, tau=float(times[20]))
    same = evaluate((incidence[..., :21], times[:21]), train, test)
    pd.testing.assert_frame_equal(early, same)


def test_what_is_not_defined_is_nan_with_a_reason():
    rows = TEST[0], (TIME, np.minimum(CAUSE, 1))
    table = evaluate(CauseRates(), named(TRAIN), named(rows))
    assert np.isnan(table.loc[("death", "c_wolbers"), "value"])
    assert table.loc[("death", "c_wolbers"), "reason"].startswith("no comparable pair")
    assert table.loc[("death", "auc"), "reason"].startswith("times: AUC needs cases")
    assert np.isfinite(table.loc["relapse", "value"]).all()
    with pytest.raises(DataError, match=r"^c_wolbers of death: no comparable pair"):
        evaluate(CauseRates(), named(TRAIN), named(rows), metrics=["c_wolbers"])


def test_what_is_refused():
    times = np.array([5.0, 20.0])
    train, test = numbered(TRAIN), numbered(TEST)
    incidence = CauseRates().predict_cumulative_incidence(TEST[0], times)
    survival = 1 - incidence.sum(axis=1, keepdims=True)
    with pytest.raises(DataError, match="Where the first curve is survival, leave it out"):
        evaluate((np.concatenate([survival, incidence], axis=1), times), train, test)
    with pytest.raises(DataError, match="1 - incidence of 1: survival must be curves that do not increase"):
        evaluate((incidence[..., ::-1], times), train, test)
    with pytest.raises(
        DataError, match=r"model must be an estimator with predict_cumulative_incidence.*got int"
    ):
        evaluate(3, train, test)
    with pytest.raises(DataError, match="test: y has no causes, and the other rows have"):
        evaluate(CauseRates(), named(TRAIN), SurvivalData(TEST[0], (TIME, CAUSE > 0)))
    with pytest.raises(DataError, match=r"test: y has the cause .*; the model has relapse, death"):
        evaluate(CauseRates(), named(TRAIN), SurvivalData(*test))
    with pytest.raises(DataError, match=r"train must be SurvivalData, or \(X, y\)"):
        evaluate(CauseRates(), [1, 2, 3], test)
    with pytest.raises(ConfigError, match="got 'c_index'"):
        evaluate(CauseRates(), train, test, metrics=["c_index"])
    with pytest.raises(DataError, match="c_uno of 1: it is not defined for competing causes; there c_cause"):
        evaluate(CauseRates(), train, test, metrics=["c_uno"])
    with pytest.raises(DataError, match="tau must be a time within the observed ones"):
        evaluate(CauseRates(), train, test, tau=1e4)
    with pytest.raises(DataError, match="times must include values up to tau=1"):
        evaluate((incidence, times), train, test, tau=1.0)
    with pytest.raises(DataError, match="no row has an event"):
        incidence_times(([1.0, 2.0], [0, 0]))
    with pytest.raises(DataError, match="no comparable pair"):
        metrics.concordance_wolbers((TIME, CAUSE), TIME, 3)
    with pytest.raises(DataError, match="needs two times"):
        metrics.integrated_brier_score(
            (TIME, CAUSE), incidence[:, 0, :1], [5.0], train=KNOWN, cause=1, convention="trapezoid"
        )


@pytest.mark.parametrize(("metric", "cause"), [("ibs", None), ("c_wolbers", 2), ("auc", "relapse")])
def test_scorers_weigh_by_the_training_rows_of_each_fold(metric, cause):
    y = Surv(KNOWN[0], np.array(["censored", "death", "relapse"])[KNOWN[1]], causes="auto")
    data, folds = SurvivalData(TRAIN[0], y), KFold(3, shuffle=True, random_state=0)

    def expected(train, test):
        table = evaluate(CauseRates(), train, test, metrics=[metric])["value"]
        return -table.mean() if cause is None else table["relapse", metric]

    scorer = SurvivalScorer(metric, all_rows=y, cause=cause)
    got = cross_val_score(CauseRates(), TRAIN[0], y, cv=folds, scoring=scorer)
    parts = [expected(data.subset(train), data.subset(test)) for train, test in folds.split(TRAIN[0])]
    np.testing.assert_allclose(got, parts, rtol=1e-12)
    fixed = SurvivalScorer(metric, train=y, cause=cause)(CauseRates(), TRAIN[0], y)
    assert fixed == pytest.approx(expected(data, data), rel=1e-12)


def test_scorers_refuse():
    y = Surv(TIME, CAUSE, causes="auto")
    with pytest.raises(DataError, match="ici_pseudo of 1: it is not defined for competing causes"):
        SurvivalScorer("ici_pseudo", train=y)(CauseRates(), TEST[0], y)
    with pytest.raises(ConfigError, match="unknown cause 3"):
        SurvivalScorer("ibs", all_rows=y, cause=3)
    with pytest.raises(ConfigError, match="got both"):
        SurvivalScorer("ibs", train=y, all_rows=y)
    other = Surv([77.0], [1], causes=("1", "2"))
    with pytest.raises(DataError, match="with time 77 and cause 1 is not among all_rows"):
        SurvivalScorer("ibs", all_rows=y)(CauseRates(), TEST[0][:1], other)

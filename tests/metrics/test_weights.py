"""Sampling weights: variances of R, scale."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sstorch import Surv, metrics
from sstorch.exceptions import DataError
from sstorch.metrics import KaplanMeierBand, aalen_johansen, evaluate, logrank_test
from sstorch.metrics.incidence import aalen_johansen_error

from .cohorts import Rates

IN_R = json.loads((Path(__file__).parent / "weights_in_r.json").read_text())


def in_r(name: str) -> dict[str, np.ndarray]:
    return {part: np.array(values, dtype=float) for part, values in IN_R[name].items()}


@pytest.mark.parametrize("name", ["right", "truncated", "subjects"])
def test_sampling_weights_give_limits_of_survfit_robust(name: str) -> None:
    r = in_r(name)
    y = Surv(r["time"], r["event"], entry=r.get("entry"), id=r.get("id"))
    band = KaplanMeierBand.fit(y, sample_weight=r["weight"])
    found, known = band.at(r["times"]), np.isfinite(r["lower"])
    np.testing.assert_allclose(found.value, r["survival"], rtol=1e-12)
    np.testing.assert_allclose(found.lower[known], r["lower"][known], rtol=1e-12)
    np.testing.assert_allclose(found.upper[known], r["upper"][known], rtol=1e-12)
    quantiles = np.array([band.quantile(q) for q in (0.25, 0.5)])
    np.testing.assert_array_equal(quantiles.T, [r["quantile" + end] for end in ("", "_lower", "_upper")])


@pytest.mark.parametrize("name", ["right", "truncated", "counting"])
def test_sampling_weights_give_the_robust_score_test_of_coxph(name: str) -> None:
    r = in_r(name)
    y = Surv(r["time"], r["event"], entry=r.get("entry"), id=r.get("id"), weight=r["weight"])
    assert logrank_test(y, r["group"]).statistic == pytest.approx(r["logrank"][0], rel=1e-10)
    if "stratified" in r:
        test = logrank_test(y, r["group"], strata=r["stratum"])
        assert test.statistic == pytest.approx(r["stratified"][0], rel=1e-10)


def test_sampling_weights_give_errors_of_aalen_johansen_in_survfit() -> None:
    r = in_r("causes")
    rows = (r["time"], r["cause"].astype(int)), r["times"]
    incidence = aalen_johansen(*rows, sample_weight=r["weight"])
    error = aalen_johansen_error(*rows, sample_weight=r["weight"])
    for k in (1, 2):
        np.testing.assert_allclose(incidence[k - 1], r[f"incidence_{k}"], rtol=1e-12)
        np.testing.assert_allclose(error[k - 1], r[f"error_{k}"], rtol=1e-12)


def cohort(seed: int, n: int = 60) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    time = np.ceil(10 * rng.exponential(1, n))
    return {
        "time": time,
        "event": rng.random(n) < 0.6,
        "cause": rng.integers(0, 3, n),
        "group": rng.integers(0, 3, n),
        "entry": np.floor(time * rng.choice([0, 0.3, 0.8], n)),
        "weight": rng.integers(0, 4, n).astype(float),
        "strata": rng.integers(0, 2, n),
    }


def results(rows: dict[str, np.ndarray], weight: np.ndarray | None) -> list[np.ndarray]:
    """All that weights enter."""
    found = []
    y = rows["time"], rows["event"]
    for entry in (None, rows["entry"]):
        band = KaplanMeierBand.fit(Surv(*y, entry=entry), sample_weight=weight)
        found += [band.values, band.lower, band.upper, np.array(band.quantile(0.3))]
        for strata in (None, rows["strata"]):
            test = logrank_test(Surv(*y, entry=entry), rows["group"], strata=strata, sample_weight=weight)
            found.append(np.array(test))
    return [*found, aalen_johansen_error((rows["time"], rows["cause"]), [3.0, 20.0], sample_weight=weight)]


@pytest.mark.parametrize("seed", range(3))
def test_scale_of_sampling_weights_changes_nothing(seed: int) -> None:
    rows = cohort(seed)
    for weight in (rows["weight"] + 0.1, np.ones(60)):
        expected = results(rows, weight)
        for scaled in (7 * weight, weight / weight.sum(), 1e-9 * weight):
            for one, other in zip(expected, results(rows, scaled), strict=True):
                np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-12)


def test_equal_sampling_weights_give_the_bits_of_no_weights() -> None:
    rows = cohort(4)
    for one, other in zip(results(rows, None), results(rows, np.full(60, 1 / 60)), strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("seed", range(3))
def test_rows_of_a_subject_split_at_random_times_change_nothing(seed: int) -> None:
    rows, rng = cohort(seed), np.random.default_rng(seed)
    weight, id = rows["weight"] + 0.5, np.arange(60)
    cut = np.ceil(rng.uniform(rows["entry"] + 0.01, rows["time"] - 0.01))
    cut = np.clip(cut, rows["entry"], rows["time"])
    split = (cut > rows["entry"]) & (cut < rows["time"])
    parts = {
        "time": np.r_[np.where(split, cut, rows["time"]), rows["time"][split]],
        "event": np.r_[rows["event"] & ~split, rows["event"][split]],
        "group": np.r_[rows["group"], rows["group"][split]],
        "entry": np.r_[rows["entry"], cut[split]],
        "weight": np.r_[weight, weight[split]],
        "id": np.r_[id, id[split]],
    }
    assert split.sum() > 20
    whole = KaplanMeierBand.fit(
        Surv(rows["time"], rows["event"], entry=rows["entry"], id=id), sample_weight=weight
    )
    y = Surv(*(parts[name] for name in ("time", "event")), entry=parts["entry"], id=parts["id"])
    cut_up = KaplanMeierBand.fit(y, sample_weight=parts["weight"])
    np.testing.assert_allclose(whole.lower, cut_up.lower, rtol=1e-10)
    np.testing.assert_allclose(whole.upper, cut_up.upper, rtol=1e-10)
    one = logrank_test(
        Surv(rows["time"], rows["event"], entry=rows["entry"], id=id), rows["group"], sample_weight=weight
    )
    other = logrank_test(y, parts["group"], sample_weight=parts["weight"])
    assert one.statistic == pytest.approx(other.statistic, rel=1e-10)


@pytest.mark.parametrize("given", [False, True])
def test_rows_without_weight_count_in_no_metric(given: bool) -> None:
    """Their times were on the grids, in the windows and in the follow-up of the training rows."""
    rng = np.random.default_rng(0)
    rate, weight = rng.gamma(3.0, 0.3, (2, 80)), rng.choice([0.0, 1.0, 2.5], (2, 80))
    time, event = np.ceil(20 * rng.exponential(1 / rate)) / 20, rng.random((2, 80)) < 0.7
    weight[:, time.argmax(axis=1)] = 0.0  # the last of all
    model, tables = Rates(), []
    for kept in (np.ones((2, 80), dtype=bool), weight > 0):
        train, test = (Surv(time[k][kept[k]], event[k][kept[k]], weight=weight[k][kept[k]]) for k in range(2))
        x = rate[1][kept[1]][:, None]
        if given:
            grid = np.linspace(0.1, time[1][weight[1] > 0].max(), 30)
            model = model.predict_survival_function(x, grid), grid
        tables.append(evaluate(model, (None, train), (x, test))["value"])
        model = Rates()
    assert tables[0].notna().sum() >= 2
    np.testing.assert_allclose(*tables, rtol=1e-12)


def test_groups_without_weight_are_not_compared() -> None:
    random = np.random.default_rng(0)
    group = np.arange(90) % 3
    for without in range(3):
        time, cause = random.exponential(size=90), random.integers(0, 3, 90)
        weight = np.where(group == without, 0.0, random.choice([1.0, 2.0], 90))
        counted = weight > 0
        outcomes = Surv(time, cause > 0, weight=weight), Surv(time, cause, causes=("a", "b"), weight=weight)
        tests: Any = logrank_test, metrics.gray_test
        for test, outcome in zip(tests, outcomes, strict=True):
            expected = test(outcome[counted], group[counted])
            assert expected.degrees_of_freedom == 1
            np.testing.assert_allclose(test(outcome, group), expected)


def test_wrong_weights_raise() -> None:
    rows = [1.0, 2.0, 3.0], [1, 0, 1]
    with pytest.raises(DataError, match="id: rows of a subject overlap"):
        KaplanMeierBand.fit(Surv(*rows, id=[0, 0, 1]), sample_weight=[1, 0.5, 2])


def test_curves_of_fractional_weights_end_at_zero() -> None:
    """G was 8e-17 instead of 0 (IBS 8.2e14, not .199), S 1.5e-16 with an upper limit of 5.8e-16, not .86."""
    train = Surv([1.0, 2.0, 2.0], [0, 1, 0], weight=[0.1, 0.1, 0.2])
    assert metrics.censoring_distribution(train).values[-1] == 0.0
    time, entry = [3.0, 1.0, 3.0, 7.0, 6.0, 8.0], [0.0, 0.0, 0.0, 4.0, 4.0, 4.0]
    counts = np.array([1, 5, 3, 6, 1, 8])
    fractions, whole = (Surv(time, [1, 1, 1, 1, 0, 1], entry=entry, weight=w) for w in (counts / 10, counts))
    assert metrics.KaplanMeier.fit(fractions).at(3.0) == 0.0
    found, expected = (KaplanMeierBand.fit(y).at(3.0) for y in (fractions, whole))
    np.testing.assert_allclose(found, expected, rtol=1e-9)
    assert expected.upper > 0.8


def test_errors_of_calibration_do_not_depend_on_the_scale_of_weights() -> None:
    """A share of .9 is above or below by rounding."""
    time, survival = np.arange(1.0, 11.0), np.array([2, 1, 7, 3, 6, 4, 6.5, 8, 5, 9]) / 10
    weight = np.array([2.0, 2, 3, 3, 1, 1, 3, 3, 1, 1])
    one, other = (
        metrics.calibration_errors(
            metrics.HorizonRows.of((time, np.ones(10)), survival, 4.0, sample_weight=weight * scale)
        )
        for scale in (1.0, 0.37)
    )
    assert one == pytest.approx(other, rel=1e-6)

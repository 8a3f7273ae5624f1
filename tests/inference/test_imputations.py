"""Rubin's rules, against fits of lifelines to the same imputations, pooled by hand."""

import numpy as np
import pandas as pd
import pytest
from lifelines import WeibullAFTFitter
from scipy.stats import t

from sstorch import Columns, Penalties, Surv, SurvivalRegression, inference
from sstorch.exceptions import ConfigError

TEXTBOOK = {"penalties": Penalties(ridge=0), "columns": Columns(numeric="linear")}


@pytest.fixture(scope="module")
def imputed() -> tuple[list[pd.DataFrame], Surv]:
    """Five completions of rows in which a third of a marker is missing; most frequent arms differ."""
    rng = np.random.default_rng(5)
    n = 160
    frame = pd.DataFrame({"age": rng.normal(60, 9, n), "marker": rng.normal(size=n)})
    arm = pd.Categorical(np.where(np.arange(n) % 2, "drug", "control"))
    time = np.exp(3 - 0.02 * frame["age"] + 0.5 * frame["marker"]) * rng.weibull(1.5, n)
    missing = rng.random(n) < 1 / 3
    frames = []
    for k in range(5):
        marker = np.where(missing, rng.normal(scale=0.8, size=n), frame["marker"])
        own = arm.copy()
        own[: 2 * k] = "drug" if k % 2 else "control"
        frames.append(frame.assign(marker=marker, arm=own))
    return frames, Surv(time, rng.random(n) < 0.8)


@pytest.fixture(scope="module")
def models(imputed: tuple[list[pd.DataFrame], Surv]) -> list[SurvivalRegression]:
    frames, y = imputed
    return [SurvivalRegression("weibull", **TEXTBOOK).fit(frame, y) for frame in frames]


@pytest.fixture(scope="module")
def theirs(imputed: tuple[list[pd.DataFrame], Surv]) -> list[WeibullAFTFitter]:
    frames, y = imputed
    coded = [frame.assign(arm=frame["arm"] == "drug", time=y.time, event=y.event) for frame in frames]
    return [WeibullAFTFitter().fit(each.astype(float), "time", "event") for each in coded]


def by_hand(values: np.ndarray, errors: np.ndarray) -> tuple[float, float, float]:
    """Pooled estimate, standard error and degrees of freedom, as Rubin (1987) has them on page 76 to 77."""
    m, q = len(values), sum(values) / len(values)
    u, b = sum(errors**2) / m, sum((values - q) ** 2) / (m - 1)
    total = u + (m + 1) / m * b
    return q, total**0.5, (m - 1) * (1 + u / ((m + 1) / m * b)) ** 2


def test_coefficients_are_those_of_lifelines_pooled_by_hand(
    models: list[SurvivalRegression], theirs: list[WeibullAFTFitter]
) -> None:
    table = inference.pool_coefficients(models, level=0.9)
    arm = next(text for term, text in table.index if term == "arm")
    sign = 1 if arm == "drug vs control" else -1
    for name, contrast in (("age", "per unit"), ("marker", "per unit"), ("arm", arm)):
        rows = [each.summary.loc[("lambda_", name)] for each in theirs]
        factor = sign if name == "arm" else 1
        q, error, df = by_hand(*(np.array([row[key] for row in rows]) for key in ("coef", "se(coef)")))
        found = table.loc[(name, contrast)]
        np.testing.assert_allclose(
            found[["estimate", "standard error", "df"]], [factor * q, error, df], rtol=2e-3, atol=1e-5
        )
        assert found["p"] == pytest.approx(2 * t.sf(abs(q) / error, df), abs=1e-3)
        width = t.ppf(0.95, found["df"]) * found["standard error"]
        assert found["upper"] == pytest.approx(np.exp(found["estimate"] + width))
        assert found["time ratio"] == pytest.approx(np.exp(found["estimate"]))
    missing = table["missing information"]
    assert missing["marker"].item() > missing["age"].item() > 0


def test_curves_are_pooled_on_the_scale_of_their_limits(
    models: list[SurvivalRegression], imputed: tuple[list[pd.DataFrame], Surv]
) -> None:
    frames, _ = imputed
    rows, times = [frame[:3] for frame in frames], [0.0, 2.0, 9.0]
    found = inference.pool_predictions(models, rows, "survival", times)
    each = [inference.predict(m, row, "survival", times) for m, row in zip(models, rows, strict=True)]
    survival = np.array([one.estimate[1, 2] for one in each])
    slope = 1 / (survival * np.abs(np.log(survival)))
    errors = np.array([one.standard_error[1, 2] for one in each])
    q, error, df = by_hand(np.log(-np.log(survival)), slope * errors)
    ends = np.exp(-np.exp(q + np.array([1, 0, -1]) * t.ppf(0.975, df) * error))
    np.testing.assert_allclose([found.lower[1, 2], found.estimate[1, 2], found.upper[1, 2]], ends, rtol=1e-10)
    np.testing.assert_array_equal(found.estimate[:, 0], 1.0)
    np.testing.assert_array_equal(found.lower[:, 0], 1.0)
    mean = inference.pool_predictions(models, frames[0][:3], "rmst", tau=9.0)
    assert (mean.lower < mean.estimate).all()
    assert list(found.to_frame().columns) == ["estimate", "standard error", "lower", "upper"]


def test_equal_imputations_give_the_errors_of_one(models: list[SurvivalRegression]) -> None:
    table, one = inference.pool_coefficients([models[0]] * 3), models[0].coefficients()
    for name in ("estimate", "standard error", "lower", "upper", "p"):
        np.testing.assert_allclose(table[name], one[name], rtol=1e-9)
    assert (table["df"] > 1e9).all()
    assert (table["missing information"] < 1e-9).all()


def test_models_that_cannot_be_pooled_raise(
    models: list[SurvivalRegression], imputed: tuple[list[pd.DataFrame], Surv]
) -> None:
    frames, y = imputed
    with pytest.raises(ConfigError, match="two or more"):
        inference.pool_coefficients(models[:1])
    other = SurvivalRegression("weibull", **TEXTBOOK).fit(frames[0].drop(columns="age"), y)
    with pytest.raises(ConfigError, match=r"different terms, .*'age'"):
        inference.pool_coefficients([models[0], other])
    with pytest.raises(ConfigError, match="a list of 5 frames, got 2"):
        inference.pool_predictions(models, frames[:2], "rmst", tau=9.0)

"""Contract of all baselines."""

from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.base import clone

from sstorch import Surv, SurvivalData, metrics
from sstorch.bench import make_baseline
from sstorch.bench.baselines import BASELINES
from sstorch.bench.baselines.base import Baseline
from sstorch.exceptions import ConfigError, DataError
from tests.causes import simulated
from tests.conftest import nightly_but

# As small as shows what is tested.
QUICK: dict[str, dict[str, Any]] = {
    "cox": {"penalties": (0.1, 10.0), "inner_folds": 2},
    "rsf": {"n_trees": 5},
    "gradient_boosting": {"n_trees": 5},
    "deepsurv": {"epochs": 40},
    "coxtime": {"epochs": 20},
    "logistic_hazard": {"epochs": 60},
}
GRID = np.array([0.0, 1.0, 5.0, 20.0, 40.0, 60.0, 1e4])


def quick(name: str) -> Baseline:
    baseline = make_baseline(name, **QUICK.get(name, {}))
    try:
        baseline.versions()
    except ConfigError as error:
        pytest.skip(str(error))
    return baseline


# Processes of R take seconds each: test_r_trees.py has them every day.
@pytest.fixture(params=nightly_but(set(BASELINES) - {"rpart", "ctree"}, BASELINES), scope="module")
def baseline(request: pytest.FixtureRequest) -> Baseline:
    return quick(request.param)


@pytest.fixture(scope="module")
def data() -> SurvivalData:
    """150 rows: numbers with gaps, a constant, categories with gaps and with one that is never there."""
    rng = np.random.default_rng(3)
    n = 150
    age = rng.uniform(30, 80, n)
    group = rng.choice(["a", "b", "c"], n, p=[0.5, 0.4, 0.1])
    time = np.ceil(30 * rng.weibull(1.3, n) * np.exp(1.5 * (group == "a") - 0.02 * (age - 55)))
    censoring = rng.uniform(5, 90, n).round()
    frame = pd.DataFrame(
        {
            "age": np.where(rng.uniform(size=n) < 0.1, np.nan, age),
            "constant": 3.0,
            "group": pd.Categorical(
                np.where(rng.uniform(size=n) < 0.1, None, group), categories=["a", "b", "c", "never"]
            ),
            "noise": rng.normal(size=n),
        }
    )
    return SurvivalData(frame, (np.minimum(time, censoring), time <= censoring))


def fit(baseline: Baseline, data: SurvivalData) -> Baseline:
    return clone(baseline).fit(data.frame, data.y, data.uneven_weight)


@pytest.fixture(scope="module")
def fitted(baseline: Baseline, data: SurvivalData) -> Baseline:
    return fit(baseline, data)


def test_curves_are_survival_curves_in_the_unit_of_the_data(
    baseline: Baseline, fitted: Baseline, data: SurvivalData
) -> None:
    curves = fitted.falling_curves(data.frame, GRID)
    assert (curves.shape, curves.dtype) == ((len(data), len(GRID)), np.float64)
    assert ((curves >= 0) & (curves <= 1)).all()
    assert (np.diff(curves, axis=1) <= 0).all()
    assert (curves[:, 0] == 1).all()
    assert np.ptp(curves[:, 4]) > 0.05 or baseline.name == "kaplan_meier"
    mean = fit(make_baseline("kaplan_meier"), data).falling_curves(data.frame, GRID)[0, 1:6]
    np.testing.assert_allclose(curves[:, 1:6].mean(axis=0), mean, atol=0.1)
    np.testing.assert_allclose(fitted.falling_curves(data.frame[:5], GRID[[5, 2]]), curves[:5, [5, 2]])
    # Each row alone, with columns in any order and others in addition, whatever the index.
    some = data.frame.iloc[[7, 3]][list(data.frame)[::-1]].assign(other="x")
    np.testing.assert_allclose(fitted.falling_curves(some, GRID), curves[[7, 3]], rtol=1e-5)


def test_equal_seeds_give_equal_curves_and_global_states_are_unchanged(
    baseline: Baseline, fitted: Baseline, data: SurvivalData
) -> None:
    assert set(baseline.versions()) >= {"sstorch", *baseline.packages}
    first = fitted.falling_curves(data.frame, GRID)
    np.random.seed(77)  # noqa: NPY002
    before, torch_before = np.random.get_state()[1].copy(), torch.get_rng_state()  # noqa: NPY002
    np.testing.assert_array_equal(fit(baseline, data).falling_curves(data.frame, GRID), first)
    np.testing.assert_array_equal(np.random.get_state()[1], before)  # noqa: NPY002
    assert torch.equal(torch.get_rng_state(), torch_before)


@pytest.mark.filterwarnings("ignore::sstorch.exceptions.DataWarning")
def test_unknown_and_missing_values_have_no_category(fitted: Baseline, data: SurvivalData) -> None:
    rows = data.frame[:3].copy()
    rows["group"] = ["unheard of", None, "never"]
    rows["age"], rows["noise"] = np.nan, 0.0
    curves = fitted.falling_curves(rows, GRID)
    np.testing.assert_allclose(curves[1:], curves[:1].repeat(2, axis=0), rtol=1e-5)
    with pytest.raises(DataError, match="finite and >= 0"):
        fitted.falling_curves(rows, [-1.0])
    with pytest.raises(DataError, match="no column 'age'"):
        fitted.falling_curves(data.frame.drop(columns="age"), GRID)


def test_rows_that_a_baseline_does_not_support_raise(baseline: Baseline, data: SurvivalData) -> None:
    y = data.time, data.event
    rows = {
        "weights": SurvivalData(data.frame, y, sample_weight=np.arange(1.0, len(data) + 1)),
        "entry": SurvivalData(data.frame, Surv(*y, entry=np.where(data.time > 5, 1.0, 0.0))),
    }
    for name, each in rows.items():
        if name not in baseline.knows:
            with pytest.raises(DataError, match=r"does not support weights|observed from time zero"):
                fit(baseline, each)
    seen = SurvivalData(data.frame, Surv.interval(0.5 * data.time, data.time))
    with pytest.raises(DataError, match="interval-censored"):
        fit(baseline, seen)


@pytest.mark.parametrize("name", ["cox", "deepsurv"])
def test_one_event_is_too_few_to_choose_by(data: SurvivalData, name: str) -> None:
    rows = SurvivalData(data.frame, (data.time, np.arange(len(data)) == 3))
    with pytest.raises(DataError, match="have 1 event; at least two"):
        fit(quick(name), rows)


def test_constant_features_unknown_names_and_missing_packages_raise(
    data: SurvivalData, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = SurvivalData(data.frame[["constant"]], (data.time, data.event))
    with pytest.raises(DataError, match="every feature is constant"):
        fit(quick("weibull_aft"), rows)
    with pytest.raises(ConfigError, match="Did you mean 'cox'"):
        make_baseline("coxx")
    with pytest.raises(ConfigError, match=r"the baseline 'rsf' has no such setting: .*'depth'"):
        make_baseline("rsf", depth=3)
    monkeypatch.setattr(BASELINES["kaplan_meier"], "packages", ("no-such-package",))
    with pytest.raises(ConfigError, match=r"needs the package no-such-package; .*pip install no-such"):
        fit(make_baseline("kaplan_meier"), data)


@pytest.fixture(scope="module")
def causes() -> SurvivalData:
    return SurvivalData(*simulated(300))


def test_kaplan_meier_of_causes_is_aalen_johansen(causes: SurvivalData) -> None:
    times, y = np.array([0.0, 200.0, 500.0, 900.0, 3000.0]), (causes.time, causes.cause)
    found = fit(make_baseline("kaplan_meier"), causes).predict_cumulative_incidence(causes.frame, times)
    np.testing.assert_array_equal(found, np.broadcast_to(metrics.aalen_johansen(y, times), (300, 2, 5)))
    with pytest.raises(DataError, match="fitted to competing causes"):
        fit(make_baseline("kaplan_meier"), causes).falling_curves(causes.frame, times)


@pytest.mark.parametrize("name", ["cox_lifelines", "weibull_aft"])
def test_hazards_of_causes_are_put_together(name: str, causes: SurvivalData) -> None:
    """Incidences rise, sum to at most one, and are less than those that ignore the other cause."""
    times, y, cox = np.array([0.0, 200.0, 500.0, 900.0, 3000.0]), (causes.time, causes.cause), quick(name)
    found = fit(cox, causes).predict_cumulative_incidence(causes.frame, times)
    assert (np.diff(found, axis=2) >= 0).all()
    assert found.sum(axis=1).max() <= 1 + 1e-12
    for k in (1, 2):
        assert metrics.concordance_wolbers(y, found[:, k - 1, 3], k, tau=900.0) > 0.65
    alone = fit(cox, causes.of_cause(1)).falling_curves(causes.frame, times)
    assert (found[:, 0] <= 1 - alone + 1e-12).all()
    if name == "weibull_aft":
        with pytest.raises(DataError, match="likelihood of competing causes"):
            fit(cox, causes).log_likelihood(causes.frame, causes.y)
    # Near Aalen-Johansen on average: exp(-H) is close to the product limit while many are at risk.
    np.testing.assert_allclose(found.mean(axis=0)[:, :4], metrics.aalen_johansen(y, times[:4]), atol=0.05)

"""What every baseline has to do, whatever it is."""

import warnings
from dataclasses import FrozenInstanceError, fields
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from sstorch import Surv, SurvivalData
from sstorch.bench import Baseline, make_baseline
from sstorch.bench.baselines import BASELINES
from sstorch.bench.baselines.base import Curves, Requirement
from sstorch.data import Schema
from sstorch.exceptions import ConfigError, DataError, DataWarning

# As small as shows what is tested.
QUICK: dict[str, dict[str, Any]] = {
    "cox": {"penalties": (0.1, 10.0), "inner_folds": 2},
    "rsf": {"n_trees": 5},
    "gradient_boosting": {"n_trees": 5},
    "deepsurv": {"epochs": 40},
    "coxtime": {"epochs": 20},
    "logistic_hazard": {"epochs": 100},
    "surtree": {"depth": 2},
    "osst": {"depth": 2, "n_buckets": 10},
}
GRID = np.array([0.0, 1.0, 5.0, 20.0, 40.0, 60.0, 1e4])


def quick(name: str) -> Baseline:
    baseline = make_baseline(name, **QUICK.get(name, {}))
    try:
        baseline.check()
    except ConfigError as error:
        pytest.skip(str(error))
    return baseline


@pytest.fixture(params=list(BASELINES), scope="module")
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


def fit(baseline: Baseline, data: SurvivalData, seed: int = 0) -> Curves:
    return baseline.fit(data, Schema.of(data.frame), seed)


@pytest.fixture(scope="module")
def fitted(baseline: Baseline, data: SurvivalData) -> Curves:
    return fit(baseline, data)


def test_curves_are_survival_curves(baseline: Baseline, fitted: Curves, data: SurvivalData) -> None:
    curves = fitted.falling_curves(data.frame, GRID)
    assert curves.shape == (len(data), len(GRID))
    assert curves.dtype == np.float64
    assert ((curves >= 0) & (curves <= 1)).all()
    assert (np.diff(curves, axis=1) <= 0).all()
    assert (curves[:, 0] == 1).all()
    assert curves[:, 4].mean() < 0.9
    if baseline.name != "kaplan_meier":
        assert np.ptp(curves[:, 4]) > 0.05


def test_calibrated_in_the_large(fitted: Curves, data: SurvivalData) -> None:
    """The mean curve is near Kaplan-Meier: times are in their unit and not shifted."""
    np.testing.assert_allclose(
        fitted.falling_curves(data.frame, GRID)[:, 1:6].mean(axis=0),
        fit(make_baseline("kaplan_meier"), data).falling_curves(data.frame, GRID)[0, 1:6],
        atol=0.1,
    )


def test_times_need_no_order_and_do_not_depend_on_each_other(fitted: Curves, data: SurvivalData) -> None:
    rows = data.frame[:5]
    together = fitted.falling_curves(rows, GRID)
    np.testing.assert_allclose(fitted.falling_curves(rows, GRID[[5, 2]]), together[:, [5, 2]])


def test_equal_seeds_give_equal_curves_and_global_states_are_left_alone(
    baseline: Baseline, fitted: Curves, data: SurvivalData
) -> None:
    first = fitted.falling_curves(data.frame, GRID)
    np.random.seed(77)  # noqa: NPY002
    before, torch_before = np.random.get_state()[1].copy(), torch.get_rng_state()  # noqa: NPY002
    second = fit(baseline, data).falling_curves(data.frame, GRID)
    np.testing.assert_array_equal(second, first)
    np.testing.assert_array_equal(np.random.get_state()[1], before)  # noqa: NPY002
    assert torch.equal(torch.get_rng_state(), torch_before)


def test_rows_are_predicted_one_by_one(fitted: Curves, data: SurvivalData) -> None:
    """Each row by itself, with columns in any order and others beside them, whatever the index."""
    together = fitted.falling_curves(data.frame, GRID)
    some = data.frame.iloc[[7, 3]][list(data.frame)[::-1]].assign(other="x")
    np.testing.assert_allclose(fitted.falling_curves(some, GRID), together[[7, 3]], rtol=1e-5)


def test_unknown_and_missing_values_are_taken(fitted: Curves, data: SurvivalData) -> None:
    rows = data.frame[:3].copy()
    rows["group"] = ["unheard of", None, "never"]
    rows["age"] = np.nan
    rows["noise"] = 0.0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DataWarning)
        curves = fitted.falling_curves(rows, GRID)
    # No category has a weight: unknown, missing and never seen are one.
    np.testing.assert_allclose(curves[1:], curves[:1].repeat(2, axis=0), rtol=1e-5)


def test_missing_columns_are_refused(fitted: Curves, data: SurvivalData) -> None:
    with pytest.raises(DataError, match="no column 'age'"):
        fitted.falling_curves(data.frame.drop(columns="age"), GRID)


@pytest.mark.filterwarnings("ignore:.*in every column")
def test_a_fold_knows_its_own_rows_only(baseline: Baseline, data: SurvivalData) -> None:
    """Rows left out have other scales, but they change nothing."""
    kept = np.arange(len(data)) < 120
    alone = SurvivalData(data.frame[kept], (data.time[kept], data.event[kept]))
    frame = data.frame.copy()
    frame.loc[~kept, ["age", "noise"]] = 1e6
    other = SurvivalData(frame, (np.where(kept, data.time, 500.0), data.event)).subset(kept)
    np.testing.assert_array_equal(
        fit(baseline, alone).falling_curves(alone.frame, GRID),
        fit(baseline, other).falling_curves(alone.frame, GRID),
    )


def test_settings_are_a_record(baseline: Baseline) -> None:
    assert set(baseline.settings()) == {f.name for f in fields(baseline)}
    assert type(baseline)(**baseline.settings()) == baseline
    versions = baseline.versions()
    assert versions["sstorch"]
    assert set(versions) >= {p.distribution for p in baseline.packages}
    assert BASELINES[baseline.name] is type(baseline)
    for field in fields(baseline):
        with pytest.raises(FrozenInstanceError):
            setattr(baseline, field.name, None)


def test_weights_and_entry_are_refused(data: SurvivalData) -> None:
    y = (data.time, data.event)
    weighted = SurvivalData(data.frame, y, sample_weight=np.arange(1.0, len(data) + 1))
    late = SurvivalData(data.frame, Surv(*y, entry=np.where(data.time > 5, 1.0, 0.0)))
    causes = SurvivalData(data.frame, Surv(data.time, np.arange(len(data)) % 3, causes="auto"))
    for rows, message in (
        (weighted, "does not support weights"),
        (late, "as observed from time zero, and some entered later"),
        (causes, "y has competing causes"),
    ):
        with pytest.raises(DataError, match=message):
            make_baseline("surtree").fit(rows, Schema.of(rows.frame))


@pytest.mark.parametrize("name", ["cox", "deepsurv"])
def test_one_event_is_too_few_to_choose_by(data: SurvivalData, name: str) -> None:
    rows = SurvivalData(data.frame, (data.time, np.arange(len(data)) == 3))
    with pytest.raises(DataError, match="have 1 event; at least two"):
        fit(quick(name), rows)


def test_seeds_have_a_range(data: SurvivalData) -> None:
    with pytest.raises(ConfigError, match="seed=-1 must be >= 0"):
        fit(make_baseline("kaplan_meier"), data, seed=-1)


def test_features_that_never_vary_are_refused(data: SurvivalData) -> None:
    rows = SurvivalData(data.frame[["constant"]], (data.time, data.event))
    with pytest.raises(DataError, match="every feature is constant"):
        quick("weibull_aft").fit(rows, Schema.of(rows.frame))


def test_bad_names_and_settings_are_refused() -> None:
    with pytest.raises(ConfigError, match="Did you mean 'cox'"):
        make_baseline("coxx")
    with pytest.raises(ConfigError, match="has no setting 'depth'; it has 'n_trees'"):
        make_baseline("rsf", depth=3)
    with pytest.raises(ConfigError, match="has no setting 'depth'; it has none"):
        make_baseline("kaplan_meier", depth=3)
    with pytest.raises(ConfigError, match="depth=0 must be >= 1"):
        make_baseline("sksurv", depth=0)
    with pytest.raises(ConfigError, match="penalties is empty"):
        make_baseline("cox", penalties=())


def test_a_missing_package_is_said_with_the_remedy(
    data: SurvivalData, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        BASELINES["kaplan_meier"],
        "packages",
        (Requirement("no-such-package", "no_such_package"),),
    )
    with pytest.raises(ConfigError, match=r"needs the package no-such-package; .*pip install no-such"):
        make_baseline("kaplan_meier").fit(data, Schema.of(data.frame))

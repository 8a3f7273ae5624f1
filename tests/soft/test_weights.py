"""Weights of a fit in tables, intervals, tests and recalibration of soft trees."""

import numpy as np
import pandas as pd
import pytest
import torch

from sstorch import (
    Columns,
    GroupPenalties,
    PrognosticTree,
    SoftSurvivalTree,
    Surv,
    SurvivalData,
    SurvivalRegression,
    recalibrate,
)
from sstorch.metrics import KaplanMeier
from sstorch.nn import DesignMatrix
from sstorch.objective import Sample
from sstorch.objective.rows import counted_weight
from sstorch.reading import leaf_table
from sstorch.validation import group_table
from tests.causes import simulated
from tests.histories import halved


@pytest.fixture(scope="module")
def causes() -> tuple[pd.DataFrame, Surv, np.ndarray]:
    """Rows of two causes with missing values, and integer weights."""
    frame, y = simulated(240)
    frame.loc[::7, "age"], frame.loc[::9, "grade"] = np.nan, np.nan
    return frame, y, np.random.default_rng(8).integers(1, 4, 240)


@pytest.mark.filterwarnings("ignore:.* repeat others in every column")
def test_integer_weights_give_the_tree_of_repeated_rows(
    causes: tuple[pd.DataFrame, Surv, np.ndarray],
) -> None:
    frame, y, weight = causes
    again = np.repeat(np.arange(len(y)), weight)
    repeated = frame.iloc[again].reset_index(drop=True)
    penalties = GroupPenalties(ridge=1e-3)  # estimated ones depend on the effective sample size
    competing = PrognosticTree(leaf="weibull", penalties=penalties, columns=Columns(numeric="linear"))
    at = [100.0, 365.0, 900.0]
    one = competing.fit(frame, y, sample_weight=weight)
    weighted, groups = one.predict_cumulative_incidence(frame, at), one.apply(frame)
    table = leaf_table(one)
    other = competing.fit(repeated, y[again])
    np.testing.assert_allclose(weighted, other.predict_cumulative_incidence(frame, at), atol=1e-12)
    np.testing.assert_array_equal(groups, other.apply(frame))
    # Without limits: those of sampling weights are wider.
    shown = [name for name in table if name[1] in ("estimate", "model")]
    assert len(shown) >= 8
    np.testing.assert_allclose(table[shown], leaf_table(other)[shown], atol=1e-9)


def test_estimated_penalties_count_the_effective_sample_size(
    causes: tuple[pd.DataFrame, Surv, np.ndarray],
) -> None:
    frame, both, weight = causes
    y = Surv(both.time, both.event)
    one, other = (
        PrognosticTree().fit(frame, y, sample_weight=w).choice_ for w in (weight, 7 * weight / weight.sum())
    )
    assert one.evidence == pytest.approx(other.evidence, rel=1e-6)
    rows, w = torch.zeros(1, len(weight), dtype=torch.float64), torch.tensor(weight)[None]
    counted = counted_weight(Sample(DesignMatrix(rows[..., None], (1,)), rows, rows, w))
    assert counted.sum().item() == pytest.approx(weight.sum() ** 2 / (weight @ weight), rel=1e-12)
    assert float((counted / w).std()) < 1e-12


@pytest.fixture(scope="module")
def fitted(gbsg2: SurvivalData) -> SoftSurvivalTree:
    return PrognosticTree(depth=2, leaf="weibull", columns=Columns(numeric="linear")).fit(
        gbsg2.frame, gbsg2.y
    )


@pytest.fixture(scope="module")
def uneven(gbsg2: SurvivalData) -> np.ndarray:
    return np.random.default_rng(0).lognormal(0, 1, len(gbsg2))


def test_group_table_does_not_depend_on_the_scale_of_weights(
    fitted: SoftSurvivalTree, gbsg2: SurvivalData, uneven: np.ndarray
) -> None:
    plain = group_table(fitted, gbsg2.frame, gbsg2.y, [500.0, 1500.0])
    equal = group_table(fitted, gbsg2.frame, gbsg2.y, [500.0, 1500.0], sample_weight=np.full(686, 1 / 686))
    pd.testing.assert_frame_equal(plain, equal, rtol=1e-12)
    one, other = (
        group_table(fitted, gbsg2.frame, gbsg2.y, [500.0, 1500.0], n_resamples=3, sample_weight=weight)
        for weight in (uneven, uneven / uneven.sum())
    )
    pd.testing.assert_frame_equal(one, other, rtol=1e-9)
    inside = fitted.apply(gbsg2.frame) == one.index[0]
    band = KaplanMeier.fit((gbsg2.time[inside], gbsg2.event[inside]), sample_weight=uneven[inside])
    row = one.iloc[0]
    parts = ["estimate", "lower", "upper"]
    np.testing.assert_allclose(row["S(500)"][parts].to_numpy(float), np.ravel(band.limits(500.0)), rtol=1e-12)
    np.testing.assert_array_equal(row["median"][parts].to_numpy(float), band.quantile())
    curves = fitted.predict_survival_function(gbsg2.frame[inside], [500.0])[:, 0]
    assert row["S(500)", "model"] == pytest.approx(uneven[inside] @ curves / uneven[inside].sum())


def test_rows_of_a_subject_are_one_in_weighted_limits(gbsg2: SurvivalData) -> None:
    """A cut of every subject at half the time changes nothing."""
    n, X, y = len(gbsg2), gbsg2.frame, halved(gbsg2.y)
    rows, weight = pd.concat([X, X], ignore_index=True), 1.0 + np.arange(n) % 3
    counting = PrognosticTree(depth=1, leaf="weibull", columns=Columns(numeric="linear")).fit(rows, y)
    uncut = Surv(gbsg2.time, gbsg2.event, entry=np.zeros(n), id=np.arange(n))
    whole = group_table(counting, X, uncut, [500.0], sample_weight=weight)
    cut = group_table(counting, rows, y, [500.0], sample_weight=np.tile(weight, 2))
    for name in ("median", "S(500)"):
        pd.testing.assert_frame_equal(whole[name], cut[name], rtol=1e-10)


def test_error_of_a_recalibrated_intercept_is_that_of_the_closed_form(gbsg2: SurvivalData) -> None:
    """Exponential leaves: e^a = sum w d / sum w H, with variance sum w^2 (d - e^a H)^2 / (sum w d)^2."""
    tree = SurvivalRegression(leaf="exponential", columns=Columns(numeric="linear")).fit(gbsg2.frame, gbsg2.y)
    hazard = np.diag(tree.predict_cumulative_hazard_function(gbsg2.frame, gbsg2.time))
    uneven = np.random.default_rng(1).lognormal(0, 1, len(gbsg2))
    for weight in (uneven, np.ones(len(gbsg2))):
        for scale in (1.0, 1 / weight.sum(), 50.0):
            found = recalibrate(tree, gbsg2.frame, gbsg2.y, sample_weight=scale * weight).recalibration_
            rate = weight @ gbsg2.event / (weight @ hazard)
            error = np.sqrt(weight**2 @ (gbsg2.event - rate * hazard) ** 2) / (weight @ gbsg2.event)
            assert found.intercept == pytest.approx(np.log(rate), abs=1e-6)
            assert found.intercept_error == pytest.approx(error, rel=1e-5)

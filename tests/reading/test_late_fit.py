"""Mean curves of groups that leave the band of Kaplan-Meier late in follow-up."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from sstorch import Columns, OptimalSurvivalTree, PrognosticTree, Surv, SurvivalRegression
from sstorch.exceptions import DataWarning
from sstorch.metrics import KaplanMeier
from sstorch.plots import plot_groups


def _cured(n: int) -> tuple[pd.DataFrame, Surv]:
    """Most rows have the event between 2 and 3, the others never; follow-up ends at 5."""
    rng = np.random.default_rng(0)
    time = np.where(rng.random(n) < 0.6, rng.uniform(2.0, 3.0, n), np.inf)
    end = rng.uniform(3.0, 5.0, n)
    return pd.DataFrame({"x": rng.normal(size=n)}), Surv(np.minimum(time, end), time <= end)


@pytest.mark.parametrize("groups", [False, True])
def test_weibull_curve_of_cured_rows_is_named_with_its_group(groups: bool, tmp_path: Path) -> None:
    X, y = _cured(300)
    make = PrognosticTree if groups else SurvivalRegression
    tree = make(leaf="weibull", columns=Columns(numeric="linear"), time_unit="years")
    tree = tree.set_params(depth=1) if groups else tree
    tree.fit(X, y)
    group, end = tree.apply(X), {}
    for number, text in zip(np.unique(group), tree.late_fit_, strict=True):
        own = group == number
        end = 0.9 * y.time[own].max()
        km, lower, _ = (float(part) for part in KaplanMeier.fit(y[own]).limits(end))
        mean = float(tree.predict_survival_function(X[own], end).mean())
        assert mean < lower
        assert text.startswith(f"Group {number}: " if groups else "All rows: ")
        assert f"{mean:.3f}, outside the 95 % limits of Kaplan-Meier, {km:.3f} ({lower:.3f}" in text
        assert text in tree.summary()
    tree.save(tmp_path / "tree")
    assert make.load(tmp_path / "tree").late_fit_ == tree.late_fit_
    axes, _ = plot_groups(tree, X, y)
    assert "model outside the band" in [text.get_text() for text in axes.get_legend().get_texts()]
    late = Surv(y.time, y.event, entry=0.05 * y.time)  # has no comparable estimate
    assert tree.fit(X, late).late_fit_ == ()


def test_curve_within_the_band_is_not_named() -> None:
    rng = np.random.default_rng(1)
    x, end = rng.normal(size=300), rng.uniform(0.5, 3.0, 300)
    time = rng.weibull(1.5, 300) * np.exp(0.5 * x)
    X, y = pd.DataFrame({"x": x}), (np.minimum(time, end), time <= end)
    tree = SurvivalRegression("weibull", columns=Columns(numeric="linear")).fit(X, y)
    assert tree.late_fit_ == ()
    axes, _ = plot_groups(tree, X, y)
    assert "model outside the band" not in [text.get_text() for text in axes.get_legend().get_texts()]


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

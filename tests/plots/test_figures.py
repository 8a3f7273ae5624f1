"""Figures of effects, training, calibration and decisions; how notebooks show them."""

import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure
from matplotlib.text import Text

from sstorch import Columns, Surv, SurvivalData, SurvivalRegression, metrics
from sstorch.exceptions import ConfigError, DataError
from sstorch.optim import Nodec
from sstorch.plots import plot_calibration, plot_decision_curve, plot_effects, plot_groups, plot_objective
from sstorch.reading import effects, leaf_coefficients
from tests.flat import soft_tree
from tests.groups.trees import fitted
from tests.reading.trees import QUICK


def test_effects_have_a_panel_a_column_on_one_scale_the_largest_first(gbsg2: SurvivalData) -> None:
    tree = SurvivalRegression("weibull", columns=Columns(numeric="spline")).fit(gbsg2.frame, gbsg2.y)
    axes = plot_effects(tree, gbsg2.frame, inner=1)
    assert {ax.get_title() for ax in axes} == set(gbsg2.frame)
    assert len({ax.get_ylim() for ax in axes}) == 1
    sizes = effects(tree, gbsg2.frame, n_points=400).groupby("column")["effect"].agg(np.ptp)
    assert [ax.get_title() for ax in axes] == list(sizes.sort_values(ascending=False).index)
    assert not axes[0].figure.legends
    assert "Time ratio" in axes[0].figure.get_suptitle()
    few = plot_effects(tree, gbsg2.frame, max_columns=3)
    assert len(few) == 3
    assert "3 of 8 columns" in few[0].figure.get_suptitle()
    own = Figure()
    (ax,) = plot_effects(tree, gbsg2.frame, ["age"], figure=own)
    assert ax.figure is own


def test_effects_of_groups_have_colours_where_they_differ(gbsg2: SurvivalData) -> None:
    tree = soft_tree(depth=1, leaf="weibull", **QUICK).fit(gbsg2.frame, gbsg2.y)
    axes, group = plot_effects(tree, gbsg2.frame, ["age", "pnodes"]), tree.apply(gbsg2.frame)
    texts = [text.get_text() for text in axes[0].figure.legends[0].get_texts()]
    assert texts == [f"group {k}: {(group == k).sum()} rows" for k in np.unique(group)]


def test_effects_of_a_cause_are_those_of_its_hazard() -> None:
    tree, data = fitted("soft causes")
    axes = plot_effects(tree, data.frame, ["size"], cause="death")
    assert "(death)" in axes[0].figure.get_suptitle()
    slope = leaf_coefficients(tree).loc[("death", 1, "size"), "coefficient"]
    lines = [[np.asarray(part, dtype=float) for part in line.get_data()] for line in axes[0].lines]
    x, y = next((x, y) for x, y in lines if len(np.unique(y)) > 2)
    np.testing.assert_allclose(np.diff(y), slope * np.diff(x), atol=1e-9)
    with pytest.raises(ConfigError, match="cause"):
        plot_effects(tree, data.frame, cause="progression")


def test_columns_of_zeros_and_ones_are_points_with_intervals_and_titles_are_free(gbsg2: SurvivalData) -> None:
    frame = gbsg2.frame.assign(treated=(gbsg2.frame["horTh"] == "yes").astype(float)).drop(columns="horTh")
    model = SurvivalRegression("weibull", columns=Columns(numeric="linear")).fit(frame, gbsg2.y)
    axes = plot_effects(model, frame, intervals=True)
    panel = next(ax for ax in axes if ax.get_title() == "treated")
    assert [label.get_text() for label in panel.get_xticklabels()] == ["0", "1"]
    table = effects(model, frame, ["treated"], intervals=True)
    (at_one,) = table.loc[table["effect"] != 0, ["lower", "effect", "upper"]].to_numpy()
    (bars,) = panel.collections
    np.testing.assert_allclose(max(np.asarray(bars.get_segments())[:, :, 1], key=np.ptp), at_one[[0, 2]])
    axes[0].figure.canvas.draw()
    ticks = [t.get_window_extent() for ax in axes for t in ax.get_xticklabels() if t.get_text()]
    assert not any(ax.title.get_window_extent().overlaps(tick) for ax in axes for tick in ticks)


def test_objective_of_every_start(small_data: SurvivalData) -> None:
    tree = soft_tree(depth=1, trainer=Nodec(macro_iterations=3), init="random", n_starts=1)
    table = tree.fit(small_data.frame, small_data.y).history_.macro_iterations
    (line,) = plot_objective(table).get_lines()
    np.testing.assert_array_equal(line.get_xdata(), table["macro_iteration"])
    np.testing.assert_array_equal(line.get_ydata(), table["objective"])
    columns = {"problem": [0, 1, 2, 0, 1], "macro_iteration": [0, 0, 0, 1, 1]}
    batch, own = pd.DataFrame({**columns, "objective": [3.0, 2.5, 2.8, 1.0, 2.0]}), Figure().subplots()
    assert plot_objective(batch, own) is own
    best, worse, _ = own.get_lines()
    assert best.get_linewidth() > worse.get_linewidth()
    with pytest.raises(DataError, match="history"):
        plot_objective(batch[:0])


def test_calibration_curve_with_the_diagonal(gbsg2: SurvivalData) -> None:
    predicted = np.random.default_rng(0).uniform(0.3, 0.95, len(gbsg2))
    curve = metrics.calibration_curve(metrics.HorizonRows.of(gbsg2.y, predicted, 1000.0))
    ax = plot_calibration(curve, predicted, horizon="1000 days")
    assert ax.get_ylabel() == "observed survival at 1000 days"
    diagonal, observed = ax.get_lines()
    np.testing.assert_array_equal(diagonal.get_xdata(), diagonal.get_ydata())
    np.testing.assert_array_equal(observed.get_ydata(), curve["observed"])
    counts = np.histogram(predicted, bins=50, range=(0, 1))[0]
    np.testing.assert_allclose([bar.get_height() for bar in ax.patches], 0.1 * counts / counts.max())
    ends = ax.collections[0].get_paths()[0].vertices[:, 1]
    assert (ends.min(), ends.max()) == pytest.approx((curve["lower"].min(), curve["upper"].max()))
    _, mirrored = plot_calibration(curve, incidence=True).get_lines()
    np.testing.assert_array_equal(mirrored.get_ydata(), 1.0 - curve["observed"])
    with pytest.raises(ConfigError, match="lacks the columns"):
        plot_calibration(curve.drop(columns="lower"))


def test_decision_curve_ends_at_the_highest_risk(gbsg2: SurvivalData) -> None:
    survival = np.linspace(0.2, 0.9, len(gbsg2))
    table = metrics.net_benefit(gbsg2.y, survival, t=1000.0, thresholds=[0.1, 0.5, 0.79, 0.9])
    ax = plot_decision_curve(table, horizon="1000 days")
    assert ax.get_xlabel() == "threshold of the risk by 1000 days"
    assert ax.get_xlim() == (0.1, 0.79)  # the highest risk is 0.8
    assert [line.get_label() for line in ax.get_lines()] == ["treat all", "treat none", "treat by the model"]
    assert ax.get_ylim()[0] < 0 < table["net_benefit"].max() < ax.get_ylim()[1]
    with pytest.raises(ConfigError, match="lacks the columns"):
        plot_decision_curve(table.drop(columns="treat_all"))


def test_names_with_dollar_signs_are_no_formulas() -> None:
    """matplotlib reads text between two of them as a formula, and raises where it is none."""
    draws, odd = np.random.default_rng(0), "fee $_$"
    frame = pd.DataFrame({odd: draws.normal(size=80), "b": draws.choice([odd, "x"], 80)})
    y = Surv(draws.exponential(size=80) + 0.01, np.arange(80) % 3, causes=(odd, "death"))
    model = SurvivalRegression("weibull", columns=Columns(numeric="linear")).fit(frame, y)
    for ax in (plot_effects(model, frame, cause=odd)[0], plot_groups(model, frame, y)[0]):
        named = [text for text in ax.figure.findobj(Text) if "fee" in text.get_text()]
        assert named
        assert not any(text.get_parse_math() for text in named)

import numpy as np
from matplotlib.figure import Figure

from sstorch import Columns, GatePenalties, SoftSurvivalTree, SurvivalData, SurvivalRegression
from sstorch.optim import Nodec
from sstorch.plots import plot_effects
from sstorch.reading import effects


def test_a_panel_a_column_on_one_scale_the_largest_effect_first(gbsg2: SurvivalData) -> None:
    estimator = SoftSurvivalTree(
        depth=0, trainer="joint", init="random", n_starts=1, columns=Columns(numeric="spline")
    )
    y = (gbsg2.time, gbsg2.event)
    tree = estimator.fit(gbsg2.frame, y)
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
    assert "columns" not in axes[0].figure.get_suptitle()
    own = Figure()
    (ax,) = plot_effects(tree, gbsg2.frame, ["age"], figure=own)
    assert ax.figure is own


def test_leaves_have_colours_where_they_differ(gbsg2: SurvivalData) -> None:
    penalties = GatePenalties(gate_ridge=1e-4)
    tree = SoftSurvivalTree(
        1, trainer=Nodec(macro_iterations=1), init="random", n_starts=1, penalties=penalties
    )
    tree.fit(gbsg2.frame, (gbsg2.time, gbsg2.event))
    axes = plot_effects(tree, gbsg2.frame, ["age", "pnodes"])
    texts = [text.get_text() for text in axes[0].figure.legends[0].get_texts()]
    leaf = tree.apply(gbsg2.frame)
    assert texts == [f"group {k}: {(leaf == k).sum()} rows" for k in np.unique(leaf)]


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
    figure = axes[0].figure
    figure.canvas.draw()
    ticks = [t.get_window_extent() for ax in axes for t in ax.get_xticklabels() if t.get_text()]
    for ax in axes:
        title = ax.title.get_window_extent()
        assert not any(title.overlaps(tick) for tick in ticks)

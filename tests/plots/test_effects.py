import numpy as np
from matplotlib.figure import Figure

from sstorch import Columns, GatePenalties, SoftSurvivalTree, SurvivalData
from sstorch.optim import Nodec
from sstorch.plots import plot_effects
from sstorch.reading import effects
from sstorch.soft import bootstrap_trees


def test_a_panel_a_column_on_one_scale_the_largest_effect_first(gbsg2: SurvivalData) -> None:
    estimator = SoftSurvivalTree(
        depth=0, trainer="joint", init="random", n_starts=1, columns=Columns(numeric="spline")
    )
    y = (gbsg2.time, gbsg2.event)
    sample = bootstrap_trees(estimator, gbsg2.frame, y, n_resamples=5)
    tree = estimator.fit(gbsg2.frame, y)
    axes = plot_effects(tree, gbsg2.frame, sample=sample, inner=1)
    assert {ax.get_title() for ax in axes} == set(gbsg2.frame)
    assert len({ax.get_ylim() for ax in axes}) == 1
    sizes = effects(tree, gbsg2.frame, n_points=400).groupby("column")["effect"].agg(np.ptp)
    assert [ax.get_title() for ax in axes] == list(sizes.sort_values(ascending=False).index)
    assert not axes[0].figure.legends
    assert "Time ratio" in axes[0].figure.get_suptitle()
    assert len(plot_effects(tree, gbsg2.frame, max_columns=3)) == 3
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

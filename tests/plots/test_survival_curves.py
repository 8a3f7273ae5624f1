import numpy as np
from matplotlib.figure import Figure

from sstorch import SoftSurvivalTree, SurvivalData
from sstorch.optim import Nodec
from sstorch.plots import plot_survival_by_leaf


def test_curves_by_leaf(small_data: SurvivalData) -> None:
    tree = SoftSurvivalTree(depth=1, trainer=Nodec(macro_iterations=1), init="kmeans", n_starts=2)
    tree.fit(small_data.frame, (small_data.time, small_data.event))
    ax = plot_survival_by_leaf(tree, small_data.frame, max_curves=50)
    leaf = tree.apply(small_data.frame)
    labels = [text.get_text() for text in ax.get_legend().get_texts()]
    assert labels == [f"group {k}: {(leaf == k).sum()} rows" for k in np.unique(leaf)]
    means = [line for line in ax.get_lines() if line.get_linewidth() > 2]
    assert len(means) == len(labels)
    assert len(ax.get_lines()) == 50 + len(labels)
    times, values = means[0].get_data()
    curves = np.asarray(tree.predict_survival_function(small_data.frame, np.asarray(times)))
    np.testing.assert_allclose(values, curves[leaf == np.unique(leaf)[0]].mean(axis=0))
    assert len({line.get_color() for line in means}) == len(means)
    own = Figure().subplots()
    assert plot_survival_by_leaf(tree, small_data.frame, own) is own


def test_shades_within_a_leaf_follow_the_predicted_survival(small_data: SurvivalData) -> None:
    tree = SoftSurvivalTree(depth=0, trainer=Nodec(macro_iterations=1), init="random", n_starts=1)
    tree.fit(small_data.frame, (small_data.time, small_data.event))
    lines = [
        line for line in plot_survival_by_leaf(tree, small_data.frame).get_lines() if line.get_linewidth() < 2
    ]
    light = np.array([sum(line.get_color()) for line in lines])
    level = np.array([np.mean(line.get_ydata()) for line in lines])
    assert len(lines) == 120
    assert (np.diff(light[np.argsort(level, kind="stable")]) > 0).all()

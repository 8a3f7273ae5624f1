import numpy as np
from matplotlib.figure import Figure

from sstorch import OptimalSurvivalTree, OptimalTreeClassifier, SurvivalData
from sstorch.plots import plot_optimal_tree


def test_tree_with_the_curve_of_each_leaf(gbsg2: SurvivalData) -> None:
    tree = OptimalSurvivalTree(3, max_nodes=4).fit(gbsg2.frame, (gbsg2.time, gbsg2.event))
    upper, *lower = plot_optimal_tree(tree)
    written = [text.get_text() for text in upper.texts]
    questions = [text for text in written if text not in ("yes", "no")]
    assert sorted(questions) == sorted(tree.tree_.names[j] for j in tree.tree_.feature if j >= 0)
    assert written.count("yes") == written.count("no") == 4
    assert len(lower) == 5
    seen = set()
    for ax in lower:
        leaf = int(ax.get_title().split()[1])
        seen.add(leaf)
        assert f"{tree.leaf_table_['rows'].iloc[leaf]} rows" in ax.get_title()
        times, values = (np.asarray(part) for part in ax.get_lines()[0].get_data())
        np.testing.assert_array_equal(values[1:], tree.curves_.survival[leaf])
        np.testing.assert_array_equal(times[1:], tree.event_times_)
    assert seen == set(range(5))
    # Rows that answer yes all the way are on the left, as in the text.
    in_text = [line.split()[1].rstrip(":") for line in tree.export_text().splitlines() if "leaf" in line]
    assert [ax.get_title().split()[1] for ax in lower] == in_text
    centres = [ax.get_position().x0 for ax in lower]
    assert centres == sorted(centres)


def test_a_single_leaf_and_a_figure_of_ones_own(small_data: SurvivalData) -> None:
    tree = OptimalSurvivalTree(0).fit(small_data.frame, (small_data.time, small_data.event))
    figure = Figure()
    upper, lower = plot_optimal_tree(tree, figure)
    assert upper.figure is figure
    assert not upper.texts
    assert lower.get_title() == "leaf 0\n120 rows, 80 events"


def test_leaves_without_curves_are_written(small_data: SurvivalData) -> None:
    tree = OptimalTreeClassifier(2, min_leaf=5).fit(small_data.frame, small_data.event)
    _, *lower = plot_optimal_tree(tree)
    in_text = [line.strip() for line in tree.export_text().splitlines() if line.strip().startswith("leaf")]
    assert [ax.texts[0].get_text().replace("\n", "") for ax in lower] == [
        line.replace(": ", "").replace(", ", "") for line in in_text
    ]

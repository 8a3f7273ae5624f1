import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from sstorch import OptimalSurvivalTree, OptimalTreeClassifier, Surv, SurvivalData
from sstorch.exceptions import ConfigError
from sstorch.plots import plot_tree
from sstorch.reading import export_text


def test_tree_with_the_curve_of_each_leaf(gbsg2: SurvivalData) -> None:
    tree = OptimalSurvivalTree(3, max_nodes=4, time_unit="days")
    tree = tree.fit(gbsg2.frame, (gbsg2.time, gbsg2.event))
    assert list(tree.leaf_table_)[-3:] == ["S(365)", "S(730)", "S(1825)"]
    assert export_text(tree).splitlines()[-1].endswith(" days")
    edges, *nodes = plot_tree(tree)
    gates, lower = nodes[:4], nodes[4:]
    questions = [text.get_text().replace("\n", " ") for ax in gates for text in ax.texts]
    assert sorted(questions) == sorted(tree.tree_.names[j] for j in tree.tree_.feature if j >= 0)
    answers = [text.get_text().split()[0] for text in edges.texts]
    assert [answers.count(word) for word in ("yes", "no")] == [4, 4]
    # Shares of a split's rows, of training or of other rows.
    leaf = tree.apply(gbsg2.frame)
    for rows in (gbsg2.frame, gbsg2.frame[leaf == leaf[0]]):
        shares, top, *_ = plot_tree(tree, None if rows is gbsg2.frame else rows)
        assert f"{len(rows)} rows" in _titles(shares)
        column, relation, threshold = top.texts[0].get_text().split()
        assert relation == ">"
        yes = (rows[column] > float(threshold)).mean()
        assert f"yes {100 * yes:.0f} %" in {text.get_text() for text in shares.texts}
    assert {ax.get_xlabel() for ax in lower} == {"days"}
    numbers = [int(title.split()[1]) for title in _titles(edges) if title.startswith("Group")]
    assert [numbers[0], sorted(numbers)] == [1, [1, 2, 3, 4, 5]]
    for number, ax in zip(numbers, lower, strict=True):
        times, values = (np.asarray(part) for part in ax.get_lines()[-1].get_data())
        np.testing.assert_array_equal(values[1:], tree.curves_.survival[number - 1])
        np.testing.assert_array_equal(times[1:], tree.event_times_)


def test_outcome_without_rows_raises(gbsg2: SurvivalData) -> None:
    tree = OptimalSurvivalTree(1).fit(gbsg2.frame, gbsg2.y)
    with pytest.raises(ConfigError, match="X must be the rows"):
        plot_tree(tree, y=gbsg2.y)


def _titles(edges: Axes) -> list[str]:
    return [text.get_text() for text in edges.texts if text.get_fontweight() == "bold"]


def test_a_single_leaf_and_a_figure_of_ones_own(small_data: SurvivalData) -> None:
    tree = OptimalSurvivalTree(0).fit(small_data.frame, (small_data.time, small_data.event))
    figure = Figure()
    edges, lower = plot_tree(tree, figure=figure)
    assert edges.figure is figure
    assert _titles(edges) == ["Group 1"]
    assert "120 rows" in {text.get_text().split(" predicted")[0] for text in edges.texts}
    assert len(lower.lines) == 2


def test_leaves_without_curves_are_written(small_data: SurvivalData) -> None:
    tree = OptimalTreeClassifier(2, min_leaf=5).fit(small_data.frame, small_data.event)
    edges, *_ = plot_tree(tree)
    written = " ".join(text.get_text() for text in edges.texts)
    in_text = [line.strip() for line in export_text(tree).splitlines() if line.strip().startswith("leaf")]
    assert in_text
    assert all(line.replace(": ", " ").replace(", ", " ") in written for line in in_text)


def test_groups_of_causes_have_event_free_survival(small_data: SurvivalData) -> None:
    cause = small_data.event * (1 + np.arange(len(small_data)) % 2)
    y = Surv(small_data.time, cause, causes={1: "relapse", 2: "death"})
    tree = OptimalSurvivalTree(1, min_leaf=20).fit(small_data.frame, y)
    edges, _, *lower = plot_tree(tree, small_data.frame, y)
    assert [title for title in _titles(edges) if "Group" in title] == ["Group 1", "Group 2"]
    assert "event-free survival at" in " ".join(text.get_text() for text in edges.texts)
    for group, ax in enumerate(lower):
        values = np.asarray(ax.get_lines()[-1].get_data()[1])
        np.testing.assert_array_equal(values[1:], tree.curves_.survival[group])

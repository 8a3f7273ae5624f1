import numpy as np
from matplotlib.figure import Figure

from sstorch import OptimalSurvivalTree, OptimalTreeClassifier, Surv, SurvivalData
from sstorch.plots import plot_optimal_tree
from sstorch.reading import export_text


def test_tree_with_the_curve_of_each_leaf(gbsg2: SurvivalData) -> None:
    tree = OptimalSurvivalTree(3, max_nodes=4, time_unit="days")
    tree = tree.fit(gbsg2.frame, (gbsg2.time, gbsg2.event))
    assert list(tree.leaf_table_)[-3:] == ["S(365)", "S(730)", "S(1095)"]
    assert export_text(tree).splitlines()[-1].endswith(" days")
    edges, *nodes = plot_optimal_tree(tree)
    gates, lower = nodes[:4], nodes[4:]
    questions = [text.get_text().replace("\n", " ") for ax in gates for text in ax.texts]
    assert sorted(questions) == sorted(tree.tree_.names[j] for j in tree.tree_.feature if j >= 0)
    _, *written = (text.get_text().split("\n") for text in edges.texts)
    answers = [answer for answer, _ in written]
    assert [answers.count(word) for word in ("yes", "no")] == [4, 4]
    # Shares of a question's rows, of training or of other rows.
    leaf = tree.apply(gbsg2.frame)
    for rows in (gbsg2.frame, gbsg2.frame[leaf == leaf[0]]):
        shares, top, *_ = plot_optimal_tree(tree, None if rows is gbsg2.frame else rows)
        assert top.get_title() == f"{len(rows)} rows"
        column, relation, threshold = top.texts[0].get_text().split()
        assert relation == ">"
        yes = (rows[column] > float(threshold)).mean()
        assert f"yes\n{100 * yes:.0f} %" in {text.get_text() for text in shares.texts}
    assert {(ax.get_xlabel(), ax.get_ylabel()) for ax in lower} == {("days", "survival")}
    assert len(lower) == 5
    seen = set()
    for ax in lower:
        leaf = int(ax.get_title().split()[1]) - 1
        seen.add(leaf)
        assert f"{tree.leaf_table_['rows'].iloc[leaf]} rows" in ax.get_title()
        times, values = (np.asarray(part) for part in ax.get_lines()[0].get_data())
        np.testing.assert_array_equal(values[1:], tree.curves_.survival[leaf])
        np.testing.assert_array_equal(times[1:], tree.event_times_)
    assert seen == set(range(5))
    # Rows that answer yes all the way are on the left, as in the text.
    in_text = [line.split()[1].rstrip(":") for line in export_text(tree).splitlines() if "group" in line]
    assert [ax.get_title().split()[1] for ax in lower] == in_text
    centres = [ax.get_position().x0 for ax in lower]
    assert centres == sorted(centres)


def test_a_single_leaf_and_a_figure_of_ones_own(small_data: SurvivalData) -> None:
    tree = OptimalSurvivalTree(0).fit(small_data.frame, (small_data.time, small_data.event))
    figure = Figure()
    edges, lower = plot_optimal_tree(tree, figure=figure)
    assert edges.figure is figure
    assert [text.get_text() for text in edges.texts] == ["Groups: survival of their training rows."]
    assert lower.get_title() == "group 1\n120 rows, 80 events"


def test_leaves_without_curves_are_written(small_data: SurvivalData) -> None:
    tree = OptimalTreeClassifier(2, min_leaf=5).fit(small_data.frame, small_data.event)
    _, *nodes = plot_optimal_tree(tree)
    lower = nodes[tree.tree_.n_leaves - 1 :]
    in_text = [line.strip() for line in export_text(tree).splitlines() if line.strip().startswith("leaf")]
    assert [ax.texts[0].get_text().replace("\n", "") for ax in lower] == [
        line.replace(": ", "").replace(", ", "") for line in in_text
    ]


def test_groups_of_causes_have_event_free_survival(small_data: SurvivalData) -> None:
    cause = small_data.event * (1 + np.arange(len(small_data)) % 2)
    y = Surv(small_data.time, cause, causes={1: "relapse", 2: "death"})
    tree = OptimalSurvivalTree(1, min_leaf=20).fit(small_data.frame, y)
    _, _, *lower = plot_optimal_tree(tree)
    assert sorted(ax.get_title().replace("\n", ": ") for ax in lower) == [
        line.strip() for line in sorted(export_text(tree).splitlines()) if "group" in line
    ]
    for ax in lower:
        group = int(ax.get_title().split()[1])
        values = np.asarray(ax.get_lines()[0].get_data()[1])
        np.testing.assert_array_equal(values[1:], tree.curves_.survival[group - 1])

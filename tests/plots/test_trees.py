"""Figures of trees: rules, curves and counts of their rows, and a layout without overlaps."""

from itertools import combinations

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.text import Text
from sklearn.exceptions import NotFittedError

from sstorch import OptimalSurvivalTree, OptimalTreeClassifier, SurvivalData
from sstorch.exceptions import ConfigError, DataError
from sstorch.metrics import KaplanMeier
from sstorch.plots import plot_tree
from sstorch.reading import export_text, gate_table
from tests.flat import soft_tree
from tests.groups.trees import fitted
from tests.reading.trees import QUICK, with_gates

COLUMN = 85 / 25.4


def titles(edges: Axes) -> list[str]:
    return [text.get_text() for text in edges.texts if text.get_fontweight() == "bold"]


def facts(edges: Axes) -> str:
    return " ".join(text.get_text() for text in edges.texts)


def groups_of(edges: Axes) -> list[int]:
    return [int(title.split()[1]) for title in titles(edges) if title.startswith("Group")]


def rules_of(gates: list[Axes]) -> list[str]:
    return [text.get_text().replace("\n", " ") for ax in gates for text in ax.texts]


def shown_texts(edges: Axes) -> list[Text]:
    """Texts that the renderer draws; of the ticks of an axis those within its limits."""
    figure = edges.get_figure(root=True)
    assert isinstance(figure, Figure)
    figure.canvas.draw()
    found = [text for ax in figure.axes for text in ax.texts]
    for ax in figure.axes[1:]:
        found += [ax.xaxis.label, ax.yaxis.label, *ax.get_xticklabels(), *ax.get_yticklabels()]
    return [text for text in found if text.get_text() and text.get_visible()]


@pytest.mark.parametrize("kind", ["soft", "exact", "soft causes", "exact causes"])
def test_groups_have_kaplan_meier_model_and_survival(kind: str) -> None:
    tree, data = fitted(kind)
    edges, *nodes = plot_tree(tree, data.frame, data.y, horizon=700, time_unit="days")
    n_groups, group = len(groups_of(edges)), tree.apply(data.frame)
    # At each gate the side with the best group is on the left.
    assert [groups_of(edges)[0], sorted(groups_of(edges))] == [1, list(range(1, n_groups + 1))]
    any_event, name = data.y.any_cause(), "event-free survival" if tree.causes_ else "survival"
    for number, ax in zip(groups_of(edges), nodes[-n_groups:], strict=True):
        inside = group == number
        band = KaplanMeier.fit(any_event[inside])
        steps, model = (line for line in ax.lines if len(np.asarray(line.get_xdata())) > 2)
        times, values = steps.get_data()
        np.testing.assert_allclose(values, band.at(times))
        at, mean = (np.asarray(part) for part in model.get_data())
        curves = tree.predict_survival_function(data.frame[inside], at)
        np.testing.assert_allclose(mean, curves.mean(axis=0))
        value, lower, upper = (100 * float(part) for part in band.limits(700.0))
        events = [(data.cause[inside] == k).sum() for k in range(1, len(tree.causes_) + 1)]
        named = [f"{count} {cause}" for count, cause in zip(events, tree.causes_, strict=True)]
        counts = ", ".join([f"{inside.sum()} rows", *(named or [f"{data.event[inside].sum()} events"])])
        text = f"{counts} {name} at 700 days: {value:.0f} % ({lower:.0f} to {upper:.0f})"
        assert text in facts(edges)
        assert ax.get_xlabel() == "days"
    rules = rules_of(nodes[:-n_groups])
    if kind.startswith("exact"):
        assert sorted(rules) == sorted(tree.tree_.names[j] for j in tree.tree_.feature if j >= 0)
        return
    gates = gate_table(tree)
    assert rules == list(gates["rule"])
    yes = gates["yes"][1]
    shown = {text.get_text() for text in edges.texts}
    assert {f"yes {100 * yes:.0f} %", f"no {100 - 100 * yes:.0f} %"} <= shown


def test_exact_tree_without_rows_has_its_training_rows(gbsg2: SurvivalData) -> None:
    frame = gbsg2.frame[["age", "pnodes", "progrec"]]
    tree = OptimalSurvivalTree(3, max_nodes=4, min_leaf=30, time_unit="days").fit(frame, gbsg2.y)
    leaf = tree.apply(frame)
    for rows in (frame, frame[leaf == leaf[0]]):
        edges, *nodes = plot_tree(tree, None if rows is frame else rows)
        assert f"{len(rows)} rows" in titles(edges)
        column, relation, threshold = nodes[0].texts[0].get_text().split()
        assert relation == ">"
        assert f"yes {100 * (rows[column] > float(threshold)).mean():.0f} %" in facts(edges)
    answers = [text.get_text().split()[0] for text in edges.texts]
    assert [answers.count(word) for word in ("yes", "no")] == [4, 4]
    edges, *nodes = plot_tree(tree)
    for number, ax in zip(groups_of(edges), nodes[4:], strict=True):
        times, values = (np.asarray(part) for part in ax.get_lines()[-1].get_data())
        np.testing.assert_array_equal(values[1:], tree.curves_.survival[number - 1])
        np.testing.assert_array_equal(times[1:], tree.event_times_)


@pytest.mark.parametrize("kind", ["rules", "sums"])
def test_no_text_of_a_column_is_small_or_overlaps(kind: str, gbsg2: SurvivalData) -> None:
    tree, frame = fitted("soft").tree, gbsg2.frame
    if kind == "sums":
        frame = frame.rename(columns={"pnodes": "number of positive lymph nodes"})
        tree = soft_tree(depth=2, **QUICK).fit(frame, gbsg2.y)
    edges, *_ = plot_tree(tree, frame, gbsg2.y, width=COLUMN)
    assert edges.get_figure(root=True).get_figwidth() == pytest.approx(COLUMN)
    texts = shown_texts(edges)
    assert min(text.get_fontsize() for text in texts) >= 8
    boxes = [text.get_window_extent() for text in texts]
    for (one, a), (other, b) in combinations(zip(texts, boxes, strict=True), 2):
        across = min(a.x1, b.x1) - max(a.x0, b.x0)
        down = min(a.y1, b.y1) - max(a.y0, b.y0)
        assert min(across, down) <= 1, (one.get_text(), other.get_text())
    whole = edges.bbox
    assert all(box.x0 >= -1 and box.x1 <= whole.x1 + 1 for box in boxes)
    assert all(box.y0 >= -1 and box.y1 <= whole.y1 + 1 for box in boxes)


def test_branches_meet_the_boxes_and_are_as_wide_as_their_rows() -> None:
    tree, data = fitted("soft")
    edges, *nodes = plot_tree(tree, data.frame)
    height = edges.get_ylim()[1]
    shapes = [patch.get_path().vertices for patch in edges.patches]
    bottoms = {round(float(ax.get_position().y0 * height), 6) for ax in nodes[:3]}
    assert {round(float(shape[0, 1]), 6) for shape in shapes} == bottoms
    less, more = sorted(float(np.ptp(shape[[0, -2], 0])) for shape in shapes[:2])
    share = gate_table(tree)["yes"][1]
    assert less / (less + more) == pytest.approx(min(share, 1 - share))


def test_without_outcomes_the_model_alone_and_groups_without_rows() -> None:
    tree, data = fitted("soft")
    some = data.frame[tree.apply(data.frame) == 1]
    edges, *nodes = plot_tree(tree, some, time_unit="weeks")
    assert rules_of(nodes[3:]) == ["no rows"] * 3
    assert nodes[3].get_xlabel() == "weeks"
    assert "predicted survival at" in facts(edges)
    assert "event" not in facts(edges)


def test_gates_that_divide_nothing_are_not_drawn(gbsg2: SurvivalData) -> None:
    tree = soft_tree(depth=2, leaf="weibull", **QUICK).fit(gbsg2.frame, gbsg2.y)
    tree = with_gates(tree, {1: ({"pnodes": -1.0}, 5.5), 2: ({"pnodes": 1.0}, -2.5), 3: ({}, 9.0)}, gbsg2)
    edges, *nodes = plot_tree(tree, gbsg2.frame)
    few = int((gbsg2.frame["pnodes"] <= 5).sum())
    assert titles(edges)[:2] == ["[1] 686 rows", f"[2] {few} rows"]
    assert sorted(groups_of(edges)) == sorted(tree._tree.group_numbers[:3])
    assert rules_of(nodes[:2]) == ["pnodes <= 5.5", "pnodes > 2"]
    assert len(edges.patches) == 4
    # Groups stand side by side at the bottom.
    lows = [ax.get_position().y0 for ax in nodes[2:]]
    assert lows == pytest.approx([lows[0]] * 3)


def test_single_leaf_in_a_given_figure_and_leaves_without_curves(small_data: SurvivalData) -> None:
    tree, figure = OptimalSurvivalTree(0).fit(small_data.frame, small_data.y), Figure()
    edges, lower = plot_tree(tree, figure=figure)
    assert edges.figure is figure
    assert titles(edges) == ["Group 1"]
    assert "120 rows predicted" in facts(edges)
    assert len(lower.lines) == 2
    classes = OptimalTreeClassifier(2, min_leaf=5).fit(small_data.frame, small_data.event)
    written, texts = facts(plot_tree(classes)[0]), map(str.strip, export_text(classes).splitlines())
    leaves = [line.replace(": ", " ").replace(", ", " ") for line in texts if line.startswith("leaf")]
    assert leaves
    assert all(line in written for line in leaves)


def test_invalid_arguments_raise(gbsg2: SurvivalData) -> None:
    soft, exact, X, y = fitted("soft").tree, fitted("exact").tree, gbsg2.frame, gbsg2.y
    for words, tree, options in (
        ("width must be at least", soft, {"X": X, "width": 3}),
        ("inches high for 4 groups", soft, {"X": X, "figure": Figure(figsize=(5, 2))}),
        ("horizon", soft, {"X": X, "horizon": 9000}),
        ("one target for every row", soft, {"X": X[:5], "y": y}),
        ("X must be the rows", soft, {}),
        ("X must be the rows", exact, {"y": y}),
    ):
        with pytest.raises((ConfigError, DataError), match=words):
            plot_tree(tree, **options)
    with pytest.raises(NotFittedError):
        plot_tree(OptimalSurvivalTree())

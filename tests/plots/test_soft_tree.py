import copy
from dataclasses import replace

import numpy as np
import pytest
import torch
from matplotlib.figure import Figure

from sstorch import Columns, GatePenalties, PrognosticTree, SoftSurvivalTree, SurvivalData
from sstorch.bench.flat import soft_tree
from sstorch.optim import Nodec
from sstorch.plots import plot_soft_tree
from sstorch.reading import gate_coefficients, gate_table


@pytest.fixture(scope="module")
def fitted(gbsg2: SurvivalData) -> SoftSurvivalTree:
    penalties = GatePenalties(gate_ridge=1e-4)
    trainer = Nodec(macro_iterations=1)
    tree = SoftSurvivalTree(depth=2, trainer=trainer, init="random", n_starts=2, penalties=penalties)
    return tree.fit(gbsg2.frame, (gbsg2.time, gbsg2.event))


def test_gates_show_their_effects_and_leaves_their_curves(
    fitted: SoftSurvivalTree, gbsg2: SurvivalData
) -> None:
    edges, *nodes = plot_soft_tree(fitted, gbsg2.frame, n_features=3)
    assert len(nodes) == 7
    effects, gates, group = gate_coefficients(fitted), gate_table(fitted), fitted.apply(gbsg2.frame)
    for node in (1, 2, 3):
        ax = nodes[node - 1]
        assert ax.get_title() == f"[{node}] {gates['rows'][node]} rows"
        expected = effects.loc[node]["effect"][:3]
        assert [text.get_text() for text in ax.texts] == [
            f"{name}\n{effect:+.2g}" for name, effect in expected.items()
        ]
        # Bars to the left draw to the left.
        widths = [bar.get_width() for bar in ax.patches]
        np.testing.assert_allclose(widths, -expected / expected.abs().max())
    caption, *shares = (text.get_text() for text in edges.texts)
    assert "spread, no confidence interval" in caption.replace("\n", " ")
    assert set(shares) == {
        f"{side}\n{100 * share:.0f} %"
        for left in gates["yes"]
        for side, share in (("yes", left), ("no", 1 - left))
    }
    for number, ax in enumerate(nodes[3:]):
        place = fitted._tree.group_numbers[number]
        rows = group == place
        events = f"{rows.sum()} rows, {gbsg2.event[rows].sum()} events" if rows.any() else "no rows"
        assert ax.get_title() == f"group {place}\n{events}"
        assert len(ax.lines) == (1 if rows.any() else 0)
        assert (ax.get_xlabel(), ax.get_ylabel()) == ("time", "survival")
        if rows.any():
            times, values = ax.lines[0].get_data()
            curves = fitted.predict_survival_function(gbsg2.frame[rows], np.asarray(times))
            np.testing.assert_allclose(values, curves.mean(axis=0))
    centres = [ax.get_position().x0 for ax in nodes[3:]]
    assert centres == sorted(centres)
    assert nodes[0].get_position().y0 > nodes[1].get_position().y0 > nodes[3].get_position().y1


def test_a_single_leaf_long_names_and_a_figure_of_ones_own(gbsg2: SurvivalData) -> None:
    frame = gbsg2.frame[["age", "pnodes"]].rename(columns={"pnodes": "number of positive lymph nodes"})
    quick = {"n_starts": 1, "init": "random", "trainer": Nodec(macro_iterations=1)}
    y = (gbsg2.time, gbsg2.event)
    figure = Figure()
    edges, leaf = plot_soft_tree(soft_tree(depth=0, **quick).fit(frame, y), frame, figure)
    assert edges.figure is figure
    assert leaf.get_title() == "group 1\n686 rows, 299 events"
    gate = plot_soft_tree(soft_tree(depth=1, **quick).fit(frame, y), frame)[1]
    assert {text.get_text().split("\n")[0] for text in gate.texts} == {"age", "number… nodes"}


def test_times_have_their_unit_and_no_leaf_is_empty(gbsg2: SurvivalData) -> None:
    tree = PrognosticTree(depth=1, columns=Columns(numeric="linear"), time_unit="days")
    tree.fit(gbsg2.frame, (gbsg2.time, gbsg2.event))
    some = gbsg2.frame[tree.apply(gbsg2.frame) == tree._tree.group_numbers[0]]
    _, gate, *leaves = plot_soft_tree(tree, some)
    assert [ax.get_xlabel() for ax in leaves] == ["days", "days"]
    assert [bool(ax.lines) for ax in leaves] == [True, False]
    assert [text.get_text() for text in leaves[1].texts] == ["none of\nthese rows"]
    assert plot_soft_tree(tree, some, unit="weeks")[2].get_xlabel() == "weeks"
    # A rule stays within its panel.
    gate.figure.canvas.draw()
    (rule,) = gate.texts
    assert rule.get_text().replace("\n", " ") == gate_table(tree)["rule"][1]
    extent = rule.get_window_extent()
    assert gate.bbox.contains(*extent.min)
    assert gate.bbox.contains(*extent.max)


def test_gates_that_divide_nothing_are_not_drawn(fitted: SoftSurvivalTree, gbsg2: SurvivalData) -> None:
    tree = copy.deepcopy(fitted)
    place, p = tree.preprocessor_.feature_names_out.index("pnodes"), tree.preprocessor_
    with torch.no_grad():
        for node, (slope, constant) in {1: (-1.0, 5.5), 2: (1.0, -2.5), 3: (0.0, 9.0)}.items():
            gate = tree.module_.gate(node)
            gate.weight.zero_()
            gate.weight[place] = slope / p.scale_[place]
            gate.bias.fill_(constant + slope * p.offset_[place])
    tree.tree_ = replace(tree.tree_, groups=None)
    tree._read_later(gbsg2)
    edges, *nodes = plot_soft_tree(tree, gbsg2.frame)
    titles = [ax.get_title().split("\n")[0] for ax in nodes]
    few = int((gbsg2.frame["pnodes"] <= 5).sum())
    assert titles == [
        "[1] 686 rows",
        f"[2] {few} rows",
        *(f"group {number}" for number in tree._tree.group_numbers[:3]),
    ]
    assert [text.get_text() for ax in nodes[:2] for text in ax.texts] == ["pnodes <= 5.5", "pnodes > 2"]
    assert len(edges.lines) == 4
    top, inner, *leaves = (ax.get_position() for ax in nodes)
    assert leaves[0].x1 < leaves[1].x0 < leaves[1].x1 < leaves[2].x0
    # The leaf that takes its gate's place hangs at its level.
    assert leaves[2].y0 == pytest.approx(inner.y0)
    assert top.y0 > inner.y1

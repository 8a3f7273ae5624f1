import copy
from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.text import Text

from sstorch import (
    Columns,
    GatePenalties,
    OptimalSurvivalTree,
    PrognosticTree,
    SoftSurvivalTree,
    SurvivalData,
)
from sstorch.exceptions import ConfigError, DataError
from sstorch.metrics import KaplanMeierBand
from sstorch.optim import Nodec
from sstorch.plots import plot_tree
from sstorch.reading import gate_table
from tests.flat import soft_tree

COLUMN = 85 / 25.4
QUICK = {"n_starts": 1, "init": "random", "trainer": Nodec(macro_iterations=1)}


@pytest.fixture(scope="module")
def fitted(gbsg2: SurvivalData) -> SoftSurvivalTree:
    trainer, penalties = Nodec(macro_iterations=1), GatePenalties(gate_ridge=1e-4)
    tree = SoftSurvivalTree(depth=2, trainer=trainer, init="random", n_starts=2, penalties=penalties)
    return tree.fit(gbsg2.frame, gbsg2.y)


@pytest.fixture(scope="module")
def prognostic(gbsg2: SurvivalData) -> PrognosticTree:
    return PrognosticTree(time_unit="days", columns=Columns(numeric="linear")).fit(gbsg2.frame, gbsg2.y)


def titles(edges: Axes) -> list[str]:
    return [text.get_text() for text in edges.texts if text.get_fontweight() == "bold"]


def facts(edges: Axes) -> str:
    return " ".join(text.get_text() for text in edges.texts)


def shown_texts(edges: Axes) -> list[Text]:
    """Texts that the renderer draws; of the ticks of an axis those within its limits."""
    figure = edges.get_figure(root=True)
    assert isinstance(figure, Figure)
    figure.canvas.draw()
    found = [text for ax in figure.axes for text in ax.texts]
    for ax in figure.axes[1:]:
        found += [ax.xaxis.label, ax.yaxis.label, *ax.get_xticklabels(), *ax.get_yticklabels()]
    return [text for text in found if text.get_text() and text.get_visible()]


@pytest.mark.parametrize("kind", ["soft", "exact"])
def test_kaplan_meier_model_and_survival_of_each_group(
    kind: str, prognostic: PrognosticTree, gbsg2: SurvivalData
) -> None:
    exact = OptimalSurvivalTree(2, time_unit="days").fit(gbsg2.frame, gbsg2.y)
    tree = prognostic if kind == "soft" else exact
    edges, *nodes = plot_tree(tree, gbsg2.frame, gbsg2.y, horizon=700)
    groups, group = nodes[3:], tree.apply(gbsg2.frame)
    drawn = [int(title.split()[1]) for title in titles(edges) if title.startswith("Group")]
    # At each gate the side with the best group is on the left.
    assert [drawn[0], sorted(drawn)] == [1, [1, 2, 3, 4]]
    for number, ax in zip(drawn, groups, strict=True):
        inside = group == number
        band = KaplanMeierBand.fit((gbsg2.time[inside], gbsg2.event[inside]))
        steps, model = (line for line in ax.lines if len(np.asarray(line.get_xdata())) > 2)
        times, values = steps.get_data()
        np.testing.assert_allclose(values, band.at(times).value)
        at, mean = (np.asarray(part) for part in model.get_data())
        curves = tree.predict_survival_function(gbsg2.frame[inside], at)
        np.testing.assert_allclose(mean, curves.mean(axis=0))
        value, lower, upper = (100 * float(part) for part in band.at(700.0))
        counts = f"{inside.sum()} rows, {gbsg2.event[inside].sum()} events"
        assert f"{counts} survival at 700 days: {value:.0f} % ({lower:.0f} to {upper:.0f})" in facts(edges)
        assert ax.get_xlabel() == "days"
    rules = [text.get_text().replace("\n", " ") for ax in nodes[:3] for text in ax.texts]
    if kind == "exact":
        assert sorted(rules) == sorted(exact.tree_.names[j] for j in exact.tree_.feature if j >= 0)
        return
    gates = gate_table(prognostic)
    assert rules == list(gates["rule"])
    yes = gates["yes"][1]
    assert {f"yes {100 * yes:.0f} %", f"no {100 - 100 * yes:.0f} %"} <= {
        text.get_text() for text in edges.texts
    }


@pytest.mark.parametrize("kind", ["rules", "planes", "sums"])
def test_no_text_of_a_column_is_small_or_overlaps(
    kind: str, fitted: SoftSurvivalTree, prognostic: PrognosticTree, gbsg2: SurvivalData
) -> None:
    tree = {"rules": prognostic, "sums": fitted}.get(kind)
    frame = gbsg2.frame
    if tree is None:
        frame = frame[["age", "pnodes"]].rename(columns={"pnodes": "number of positive lymph nodes"})
        tree = soft_tree(depth=2, **QUICK).fit(frame, gbsg2.y)
    edges, *nodes = plot_tree(tree, frame, gbsg2.y, width=COLUMN)
    assert edges.get_figure(root=True).get_figwidth() == pytest.approx(COLUMN)
    texts = shown_texts(edges)
    assert min(text.get_fontsize() for text in texts) >= 8
    boxes = [text.get_window_extent() for text in texts]
    for one, other in combinations(range(len(boxes)), 2):
        a, b = boxes[one], boxes[other]
        across = min(a.x1, b.x1) - max(a.x0, b.x0)
        down = min(a.y1, b.y1) - max(a.y0, b.y0)
        assert min(across, down) <= 1, (texts[one].get_text(), texts[other].get_text())
    whole = edges.bbox
    assert all(box.x0 >= -1 and box.x1 <= whole.x1 + 1 for box in boxes)
    assert all(box.y0 >= -1 and box.y1 <= whole.y1 + 1 for box in boxes)
    assert bool(nodes[0].collections) == (kind == "planes")


def test_branches_meet_the_boxes_and_are_as_wide_as_their_rows(
    prognostic: PrognosticTree, gbsg2: SurvivalData
) -> None:
    edges, *nodes = plot_tree(prognostic, gbsg2.frame)
    height = edges.get_ylim()[1]
    shapes = [patch.get_path().vertices for patch in edges.patches]
    bottoms = {round(float(ax.get_position().y0 * height), 6) for ax in nodes[:3]}
    assert {round(float(shape[0, 1]), 6) for shape in shapes} == bottoms
    widths = [float(np.ptp(shape[[0, -2], 0])) for shape in shapes]
    share = gate_table(prognostic)["yes"][1]
    first = sorted([share, 1 - share])
    np.testing.assert_allclose(sorted(widths[:2])[0] / sorted(widths[:2])[1], first[0] / first[1])


def test_plane_has_the_line_of_its_gate(gbsg2: SurvivalData) -> None:
    frame = gbsg2.frame[["age", "pnodes"]]
    tree = soft_tree(depth=1, **QUICK).fit(frame, gbsg2.y)
    edges, gate, *_ = plot_tree(tree, frame, gbsg2.y)
    assert {gate.get_xlabel(), gate.get_ylabel()} == {"age", "pnodes"}
    (line,) = gate.collections
    points = np.concatenate([path.vertices for path in line.get_paths()])
    rows = frame.iloc[np.zeros(len(points), dtype=int)].reset_index(drop=True)
    rows = rows.assign(**{gate.get_xlabel(): points[:, 0], gate.get_ylabel(): points[:, 1]})
    # On the line both groups are equally likely.
    np.testing.assert_allclose(tree.predict_leaf_proba(rows)[:, 0], 0.5, atol=1e-6)
    assert sorted(text.get_text() for text in gate.texts) == ["no", "yes"]
    assert gate_table(tree, None)["rule"][1] in facts(edges)


def test_without_outcomes_the_model_alone_and_groups_without_rows(
    prognostic: PrognosticTree, gbsg2: SurvivalData
) -> None:
    some = gbsg2.frame[prognostic.apply(gbsg2.frame) == 1]
    edges, *nodes = plot_tree(prognostic, some, time_unit="weeks")
    assert [text.get_text() for ax in nodes[3:] for text in ax.texts] == ["no rows"] * 3
    assert nodes[3].get_xlabel() == "weeks"
    assert "predicted survival at" in facts(edges)
    assert "event" not in facts(edges)


def test_refusals(prognostic: PrognosticTree, gbsg2: SurvivalData) -> None:
    with pytest.raises(ConfigError, match=r"width must be at least 3\.26 inches for 4 groups, got 3\.00"):
        plot_tree(prognostic, gbsg2.frame, width=3)
    with pytest.raises(ConfigError, match="inches high for 4 groups"):
        plot_tree(prognostic, gbsg2.frame, figure=Figure(figsize=(5, 2)))
    with pytest.raises(ConfigError, match="up to the last training event, 2456; got 9000"):
        plot_tree(prognostic, gbsg2.frame, horizon=9000)
    with pytest.raises(DataError, match="one target for every row"):
        plot_tree(prognostic, gbsg2.frame[:5], gbsg2.y)


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
    edges, *nodes = plot_tree(tree, gbsg2.frame)
    few = int((gbsg2.frame["pnodes"] <= 5).sum())
    assert titles(edges)[:2] == ["[1] 686 rows", f"[2] {few} rows"]
    assert sorted(titles(edges)[2:]) == sorted(f"Group {number}" for number in tree._tree.group_numbers[:3])
    assert [text.get_text() for ax in nodes[:2] for text in ax.texts] == ["pnodes <= 5.5", "pnodes > 2"]
    assert len(edges.patches) == 4
    # Groups stand side by side at the bottom.
    lows = [ax.get_position().y0 for ax in nodes[2:]]
    assert lows == pytest.approx([lows[0]] * 3)

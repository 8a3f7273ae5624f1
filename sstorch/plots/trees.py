"""Figures of trees."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import numpy.typing as npt
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure, SubFigure

from sstorch.data.persons import CONSTANT_COVARIATES
from sstorch.plots.figures import colour_of, new_figure, time_label
from sstorch.reading import gate_coefficients, gate_table
from sstorch.reading.texts import leaf_texts

if TYPE_CHECKING:
    from sstorch.soft.estimator import SoftEstimator

_LEFT, _RIGHT = "#3b6fb6", "#d1603d"
_LINE, _GREY = "#999999", "#666666"
# Of a longer name the first and the last characters are shown: a category stands at the end.
_NAME, _NAME_END = 13, 6
# Inches: a leaf's width, a level's height, what of them a node's panel takes, a line of the caption, and what
# the label of the leftmost leaf needs.
_LEAF_WIDTH, _LEVEL_HEIGHT, _PANEL, _CAPTION, _MARGIN = 2.3, 1.9, (0.74, 0.6), 0.17, 0.15
# Characters in an inch, of the caption and of a rule.
_CHARACTERS, _RULE_CHARACTERS = 15, 12.5
# Share of the persons whose curves the band of a leaf holds.
_MIDDLE = 0.8


@dataclass
class _Node:
    """A gate or a leaf as it is drawn.

    Attributes:
        title: above its panel.
        draw: fills the panel.
        branches: of a gate: words and share of its rows at the line to each child, and the child.
        x: middle, in widths of a leaf from the left.
        level: from the top.
    """

    title: str
    draw: Callable[[Axes], None]
    branches: list[tuple[str, float, _Node]] = field(default_factory=list)
    x: float = 0.0
    level: int = 0

    def walk(self) -> Iterator[_Node]:
        """The gates, level by level, then the leaves from left to right, once they are placed."""
        nodes = [self]
        for node in nodes:
            nodes += [child for _, _, child in node.branches]
        yield from (node for node in nodes if node.branches)
        yield from sorted((node for node in nodes if not node.branches), key=lambda leaf: leaf.x)

    def place(self, level: int = 0, free: float = 0.5) -> float:
        """Place it and all below it; the middle of the next leaf to the right."""
        self.level = level
        if not self.branches:
            self.x = free
            return free + 1.0
        for _, _, child in self.branches:
            free = child.place(level + 1, free)
        self.x = sum(child.x for _, _, child in self.branches) / len(self.branches)
        return free


def _draw_tree(root: _Node, figure: Figure | SubFigure | None, caption: Sequence[str]) -> list[Axes]:
    """Draw a tree: the panels of its nodes, the lines between them, and what it says below them.

    Returns:
        The axes: that of the lines, then those of the gates, level by level, and of the leaves.
    """
    columns = round(root.place() - 0.5)
    nodes = list(root.walk())
    levels = 1 + max(node.level for node in nodes)
    if figure is None:
        width = max(3.2, _LEAF_WIDTH * columns) + _MARGIN
        figure = new_figure(width, _LEVEL_HEIGHT * levels + _CAPTION * len(_wrapped(caption, width)))
    width, height = (size / figure.dpi for size in (figure.bbox.width, figure.bbox.height))
    lines = _wrapped(caption, width)
    floor = _CAPTION * len(lines) / height
    edges = figure.add_axes((0.0, 0.0, 1.0, 1.0))
    edges.set(xlim=(0, 1), ylim=(0, 1))
    edges.axis("off")
    if lines:
        edges.text(0.5, 0.3 * floor / len(lines), "\n".join(lines), ha="center", fontsize=7.5, color=_GREY)
    margin = _MARGIN / width
    panel = _PANEL[0] * (1 - margin) / columns, _PANEL[1] * (1 - floor) / levels

    def middle(node: _Node) -> tuple[float, float]:
        x = margin + (1 - margin) * node.x / columns
        return x, 1.0 - (1 - floor) * (node.level + 0.52) / levels

    axes = [edges]
    for node in nodes:
        x, y = middle(node)
        ax = figure.add_axes((x - panel[0] / 2, y - panel[1] / 2, *panel))
        node.draw(ax)
        ax.set_title(node.title, fontsize=9)
        for words, share, child in node.branches:
            _draw_edge(edges, (x, y - panel[1] / 2), middle(child), panel[1], words, share)
        axes.append(ax)
    return axes


def _wrapped(sentences: Sequence[str], width: float) -> list[str]:
    """Sentences in lines of a width in inches, each broken between words where it must be."""
    return [line for sentence in sentences for line in textwrap.wrap(sentence, int(_CHARACTERS * width))]


def _draw_edge(
    ax: Axes, start: tuple[float, float], child: tuple[float, float], height: float, words: str, share: float
) -> None:
    # Ends above the title of the child.
    end = (child[0], child[1] + 0.86 * height)
    ax.plot(*zip(start, end, strict=True), color=_LINE, linewidth=0.6 + 2.4 * share)
    middle = (0.5 * (start[0] + end[0]), 0.5 * (start[1] + end[1]))
    text = f"{words}{100 * share:.0f} %"
    ax.text(*middle, text, fontsize=8, ha="center", va="center", backgroundcolor="white", linespacing=1.1)


@dataclass(frozen=True)
class _Scale:
    """The axes of all leaves: the last time, and the label of the times."""

    last: float
    label: str

    def set(self, ax: Axes) -> None:
        """Give axes this scale."""
        ax.set(xlim=(0, self.last), ylim=(0, 1.02))
        ax.set_xlabel(self.label, fontsize=8, labelpad=1)
        ax.set_ylabel("survival", fontsize=8, labelpad=1)
        ax.set_yticks([0.0, 0.5, 1.0], labels=["0", ".5", "1"])
        ax.locator_params(axis="x", nbins=3)
        ax.tick_params(labelsize=8)
        ax.spines[["top", "right"]].set_visible(False)


def _write(ax: Axes, text: str) -> None:
    """Write a rule into the panel of a gate, in as many lines as it needs."""
    ax.set(xticks=[], yticks=[])
    for spine in ax.spines.values():
        spine.set_color(_LINE)
    width = ax.get_position().width * ax.figure.bbox.width / ax.figure.dpi
    lines = textwrap.wrap(text, max(8, int(_RULE_CHARACTERS * width)))
    size = 9 if len(lines) < 6 else 7
    ax.text(0.5, 0.5, "\n".join(lines), ha="center", va="center", fontsize=size, transform=ax.transAxes)


# ---------------------------------------------------------------------- soft trees


def plot_soft_tree(
    tree: SoftEstimator,
    X: object,
    figure: Figure | SubFigure | None = None,
    unit: str | None = None,
    n_features: int = 4,
) -> list[Axes]:
    """Draw the tree: in each gate the largest effects, in each group the curves of its rows.

    A gate's bar points to the side that its feature draws to, over its whole training range or where the
    category applies, and has the change of the score beside it; a gate on one column, whose rule is a
    threshold or a list of categories, has its rule instead. A group shows the mean predicted survival of its
    rows, free of any event where causes compete, and the band that holds the middle 80 % of their curves:
    how much subjects differ, no confidence interval. Gates that send all training rows one way and leaves
    without rows are not drawn.

    Args:
        tree: fitted.
        X: rows, for the curves in the leaves.
        figure: to draw on; a new one, as large as the tree needs, if None.
        unit: of time, for the labels of axes; that of the tree if None.
        n_features: most bars in a gate.

    Returns:
        The axes: that of the lines, then those of the gates that are drawn, level by level, and of the leaves
        from left to right.
    """
    gates, effects = gate_table(tree), gate_coefficients(tree)
    texts = leaf_texts(tree._tree, tree.node_table_, medians=False)
    n_leaves = tree._tree.group_numbers.size
    grid = np.linspace(0.0, float(tree.event_times_[-1]), 101)
    curves, group = np.asarray(tree.falling_curves(X, grid)), np.asarray(tree.apply(X))
    scale = _Scale(float(grid[-1]), time_label(tree, unit))

    def node(number: int) -> _Node:
        while number < n_leaves and gates["yes"][number] in (0, 1):
            # A gate that sends all rows one way makes way for that child.
            number = 2 * number + (gates["yes"][number] == 0)
        if number >= n_leaves:
            place = int(tree._tree.group_numbers[number - n_leaves])
            title = texts.get(number, f"group {place}: no rows").replace(": ", "\n", 1)
            return _Node(title, partial(_draw_leaf, scale, grid, curves[group == place], colour_of(place)))
        rule, yes = str(gates["rule"][number]), float(gates["yes"][number])
        if rule.endswith(">= 0"):
            draw = partial(_draw_bars, effects.loc[[number]].droplevel(0), n_features)
        else:
            draw = partial(_write, text=rule)
        sides = ("yes\n", yes, node(2 * number)), ("no\n", 1 - yes, node(2 * number + 1))
        return _Node(f"[{number}] {gates['rows'][number]} rows", draw, list(sides))

    caption = [
        f"Groups: mean predicted survival; the band holds the middle {100 * _MIDDLE:.0f} % of their rows' "
        "curves (their spread, no confidence interval)."
    ]
    caption += _condition(tree)
    if any(str(rule).endswith(">= 0") for rule in gates["rule"]):
        caption.insert(0, "Bars: change of the score over a column's range; blue for yes, red for no.")
    return _draw_tree(node(1), figure, caption)


def _condition(tree: object) -> list[str]:
    """A line on what survival from time zero supposes; none where nothing is."""
    varying = getattr(tree, "time_varying_", False)
    return [f"Survival is from time zero {CONSTANT_COVARIATES}."] if varying else []


def _draw_bars(effects: pd.DataFrame, n_features: int, ax: Axes) -> None:
    """Bars to the left for what draws to the left; name and number stand on the other side of zero."""
    ax.set(xticks=[], yticks=[])
    for spine in ax.spines.values():
        spine.set_color(_LINE)
    shown = effects[effects["effect"] != 0][:n_features]
    largest = float(shown["effect"].abs().max()) if len(shown) else 1.0
    for position, (name, effect) in enumerate(zip(shown.index, shown["effect"], strict=True)):
        ax.barh(-position, -effect / largest, color=_LEFT if effect > 0 else _RIGHT, height=0.7)
        side: dict[str, Any] = {"x": 0.05, "ha": "left"} if effect > 0 else {"x": -0.05, "ha": "right"}
        ax.text(s=f"{_short(str(name))}\n{effect:+.2g}", y=-position, va="center", **side, **_BAR_TEXT)
    ax.axvline(0.0, color="#444444", linewidth=0.8)
    ax.set(xlim=(-1.15, 1.15), ylim=(0.6 - max(len(shown), 1), 0.6))


_BAR_TEXT: dict[str, Any] = {"fontsize": 7.5, "linespacing": 0.95}


def _short(name: str) -> str:
    if len(name) <= _NAME:
        return name
    return f"{name[: _NAME - _NAME_END - 1]}…{name[-_NAME_END:]}"


def _draw_leaf(
    scale: _Scale, grid: npt.NDArray[np.float64], curves: npt.NDArray[np.float64], colour: str, ax: Axes
) -> None:
    scale.set(ax)
    if not len(curves):
        ax.text(0.5, 0.5, "none of\nthese rows", ha="center", va="center", transform=ax.transAxes, fontsize=8)
        return
    low, high = np.quantile(curves, [0.5 - 0.5 * _MIDDLE, 0.5 + 0.5 * _MIDDLE], axis=0)
    ax.fill_between(grid, low, high, color=colour, alpha=0.2, linewidth=0)
    ax.plot(grid, curves.mean(axis=0), color=colour, linewidth=1.8)


# ---------------------------------------------------------------------- exact trees


class FittedExactTree(Protocol):
    """A fitted tree, as :class:`sstorch.OptimalTreeClassifier`.

    Where it has `curves_`, as :class:`sstorch.OptimalSurvivalTree`, these are drawn; of competing causes they
    are those of survival without any event.
    """

    tree_: Any
    leaf_rows_: Any

    def _leaf_texts(self) -> list[str]: ...

    def apply(self, X: object) -> Any: ...  # noqa: D102


def plot_optimal_tree(
    tree: FittedExactTree,
    X: object = None,
    figure: Figure | SubFigure | None = None,
    unit: str | None = None,
) -> list[Axes]:
    """Draw the tree, its questions in the nodes, and in each leaf its survival curve, or its text.

    Args:
        tree: fitted.
        X: rows whose shares stand at the branches; those of training if None.
        figure: to draw on; a new one, as large as the tree needs, if None.
        unit: of time, for the labels of axes; that of the tree if None.

    Returns:
        The axes: that of the lines, then those of the questions, level by level, and of the leaves from left
        to right.
    """
    exact, curves, texts = tree.tree_, getattr(tree, "curves_", None), tree._leaf_texts()
    if X is not None:
        # A survival tree gives numbers of groups, from 1 on.
        leaf = np.asarray(tree.apply(X)) - (curves is not None)
        rows = np.bincount(leaf, minlength=exact.n_leaves)
    else:
        rows = np.asarray(tree.leaf_rows_)
    scale = None if curves is None else _Scale(float(curves.times[-1]), time_label(tree, unit))

    def node(number: int) -> tuple[_Node, int]:
        """The node, and how many of the rows are in it."""
        if exact.feature[number] < 0:
            leaf = int(exact.leaf_number[number])
            if scale is None:
                return _Node("", partial(_write_leaf, texts[leaf])), int(rows[leaf])
            title = texts[leaf].split(", median")[0].replace(": ", "\n")
            return _Node(title, partial(_draw_steps, scale, curves, leaf)), int(rows[leaf])
        children = [node(int(child[number])) for child in (exact.present, exact.absent)]
        total = sum(count for _, count in children)
        branches = [
            (f"{answer}\n", count / max(total, 1), child)
            for answer, (child, count) in zip(("yes", "no"), children, strict=True)
        ]
        question = exact.names[exact.feature[number]]
        return _Node(f"{total} row{'s' * (total != 1)}", partial(_write, text=question), branches), total

    caption = [] if curves is None else ["Groups: survival of their training rows.", *_condition(tree)]
    return _draw_tree(node(0)[0], figure, caption)


def _write_leaf(text: str, ax: Axes) -> None:
    """Write the text of a leaf, a line for each part."""
    parts = text.replace(": ", "\n").replace(", ", "\n")
    ax.text(0.5, 0.5, parts, ha="center", va="center", fontsize=8, transform=ax.transAxes)
    ax.set(xticks=[], yticks=[])
    for spine in ax.spines.values():
        spine.set_color(_LINE)


def _draw_steps(scale: _Scale, curves: Any, leaf: int, ax: Axes) -> None:
    """The survival curve of a leaf, a step function."""
    scale.set(ax)
    times = np.concatenate(([0.0], curves.times))
    survival = np.concatenate(([1.0], curves.survival[leaf]))
    ax.plot(times, survival, drawstyle="steps-post", color=colour_of(leaf + 1), linewidth=1.8)

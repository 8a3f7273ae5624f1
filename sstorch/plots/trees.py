"""Figures of trees."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure, SubFigure

from sstorch.plots.curves import COLOURS, TreeWithCurves

_LEFT, _RIGHT = "#3b6fb6", "#d1603d"
_LINE = "#999999"
# Of a longer name the first and the last characters are shown: a category stands at the end.
_NAME, _NAME_END = 16, 7
# Inches: a leaf's width, a level's height, and what of them a node's panel takes.
_LEAF_WIDTH, _LEVEL_HEIGHT, _PANEL = 2.3, 1.9, (0.74, 0.6)
_BOX = {"boxstyle": "round,pad=0.35", "facecolor": "white", "edgecolor": "#444444", "linewidth": 0.8}


class FittedSoftTree(TreeWithCurves, Protocol):
    """A fitted tree, as :class:`sstorch.SoftSurvivalTree`."""

    def gate_table(self) -> pd.DataFrame:
        """One row a gate, with ``rows``, ``left`` and ``rule``."""

    def gate_coefficients(self) -> pd.DataFrame:
        """Effects by node and feature, the largest first."""

    def leaf_table(self) -> pd.DataFrame:
        """One row a leaf, with ``rows`` and ``events``."""


def plot_soft_tree(
    tree: FittedSoftTree, X: object, figure: Figure | SubFigure | None = None, n_features: int = 4
) -> list[Axes]:
    """Draw the tree: in each gate the largest effects, in each leaf the curves of its rows.

    A gate's bar points to the side that its feature draws to, over its whole training range or where the
    category applies; a gate on one column, whose rule is a threshold or a list of categories, has its rule
    instead. A leaf shows the mean predicted survival of the rows in it, and the band that holds the middle
    80 % of their curves. Gates that send all training rows one way and leaves without them are not drawn.

    Args:
        tree: fitted.
        X: rows, for the curves in the leaves.
        figure: to draw on; a new one, as large as the tree needs, if None.
        n_features: most bars in a gate.

    Returns:
        The axes: that of the edges, then those of the nodes that are drawn, in heap order.
    """
    gates, effects, leaves = tree.gate_table(), tree.gate_coefficients(), tree.leaf_table()
    n_leaves = len(leaves)
    places = _places(gates["left"], n_leaves)
    levels = 1 + max(level for _, level in places.values())
    columns = sum(node >= n_leaves for node in places)
    if figure is None:
        figure = Figure(figsize=(max(3.2, _LEAF_WIDTH * columns), _LEVEL_HEIGHT * levels))
    edges = figure.add_axes((0.0, 0.0, 1.0, 1.0))
    edges.set(xlim=(0, 1), ylim=(0, 1))
    edges.axis("off")
    grid = np.linspace(0.0, float(tree.event_times_[-1]), 101)
    curves, leaf = np.asarray(tree.predict_survival_function(X, grid)), np.asarray(tree.apply(X))
    width, height = _PANEL[0] / columns, _PANEL[1] / levels
    # Middle of a node's panel, in shares of the figure.
    centres = {node: (x / columns, 1.0 - (level + 0.52) / levels) for node, (x, level) in places.items()}
    axes = [edges]
    for node, (x, y) in sorted(centres.items()):
        ax = figure.add_axes((x - width / 2, y - height / 2, width, height))
        if node < n_leaves:
            _draw_gate(ax, effects.loc[[node]].droplevel(0), str(gates["rule"][node]), n_features)
            ax.set_title(f"[{node}] {gates['rows'][node]} rows", fontsize=9)
            for child, share in ((2 * node, gates["left"][node]), (2 * node + 1, 1 - gates["left"][node])):
                end = centres[_drawn(child, gates["left"], n_leaves)]
                _draw_edge(edges, (x, y - height / 2), end, height, float(share))
        else:
            number = node - n_leaves
            _draw_leaf(ax, grid, curves[leaf == number], COLOURS[number % len(COLOURS)])
            row = leaves.iloc[number]
            ax.set_title(f"leaf {number}\n{int(row['rows'])} rows, {int(row['events'])} events", fontsize=9)
        axes.append(ax)
    return axes


def _drawn(node: int, left: pd.Series, n_leaves: int) -> int:
    """The node at a node's place: a gate that sends all rows one way makes way for that child."""
    while node < n_leaves and left[node] in (0, 1):
        node = 2 * node + (left[node] == 0)
    return node


def _places(left: pd.Series, n_leaves: int) -> dict[int, tuple[float, int]]:
    """Of the nodes that are drawn: position from the left, in widths of a leaf, and level from the top."""
    places: dict[int, tuple[float, int]] = {}
    free = 0.5

    def place(node: int, level: int) -> float:
        nonlocal free
        node = _drawn(node, left, n_leaves)
        if node < n_leaves:
            x = 0.5 * (place(2 * node, level + 1) + place(2 * node + 1, level + 1))
        else:
            x, free = free, free + 1.0
        places[node] = x, level
        return x

    place(1, 0)
    return places


def _draw_edge(
    ax: Axes, start: tuple[float, float], child: tuple[float, float], height: float, share: float
) -> None:
    # Ends above the title of the child.
    end = (child[0], child[1] + 0.86 * height)
    ax.plot(*zip(start, end, strict=True), color=_LINE, linewidth=0.6 + 2.4 * share)
    middle = (0.5 * (start[0] + end[0]), 0.5 * (start[1] + end[1]))
    ax.text(*middle, f"{100 * share:.0f} %", fontsize=8, ha="center", va="center", backgroundcolor="white")


def _draw_gate(ax: Axes, effects: pd.DataFrame, rule: str, n_features: int) -> None:
    """Bars to the left for what draws to the left; the name stands on the other side of zero.

    A rule that is no sum stands there itself.
    """
    ax.set(xticks=[], yticks=[])
    for spine in ax.spines.values():
        spine.set_color(_LINE)
    if not rule.endswith(">= 0"):
        ax.text(0.5, 0.5, rule, ha="center", va="center", fontsize=9, wrap=True, transform=ax.transAxes)
        return
    shown = effects[effects["effect"] != 0][:n_features]
    largest = float(shown["effect"].abs().max()) if len(shown) else 1.0
    for position, (name, effect) in enumerate(zip(shown.index, shown["effect"], strict=True)):
        ax.barh(-position, -effect / largest, color=_LEFT if effect > 0 else _RIGHT, height=0.7)
        side: dict[str, Any] = {"x": 0.05, "ha": "left"} if effect > 0 else {"x": -0.05, "ha": "right"}
        ax.text(s=_short(str(name)), y=-position, va="center", fontsize=8, **side)
    ax.axvline(0.0, color="#444444", linewidth=0.8)
    ax.set(xlim=(-1.15, 1.15), ylim=(0.6 - max(n_features, 1), 0.6))


def _short(name: str) -> str:
    if len(name) <= _NAME:
        return name
    return f"{name[: _NAME - _NAME_END - 1]}…{name[-_NAME_END:]}"


def _draw_leaf(ax: Axes, grid: npt.NDArray[np.float64], curves: npt.NDArray[np.float64], colour: str) -> None:
    if len(curves):
        low, high = np.quantile(curves, [0.1, 0.9], axis=0)
        ax.fill_between(grid, low, high, color=colour, alpha=0.2, linewidth=0)
        ax.plot(grid, curves.mean(axis=0), color=colour, linewidth=1.8)
    ax.set(xlim=(0, grid[-1]), ylim=(0, 1.02))
    ax.set_yticks([0.0, 0.5, 1.0], labels=["0", ".5", "1"])
    ax.locator_params(axis="x", nbins=3)
    ax.tick_params(labelsize=8)
    ax.spines[["top", "right"]].set_visible(False)


class FittedExactTree(Protocol):
    """A fitted tree, as :class:`sstorch.OptimalTreeClassifier`.

    Where it has `curves_`, as :class:`sstorch.OptimalSurvivalTree`, curves are drawn.
    """

    tree_: Any
    leaf_table_: Any

    def leaf_texts(self) -> list[str]: ...  # noqa: D102


def plot_optimal_tree(tree: FittedExactTree, figure: Figure | SubFigure | None = None) -> list[Axes]:
    """Draw the tree, its questions in the nodes, and below each leaf its survival curve, or its text.

    Args:
        tree: fitted.
        figure: to draw on; a new one, as wide as the tree needs, if None.

    Returns:
        The axes: first that of the tree, then one for each leaf, from left to right.
    """
    exact, curves = tree.tree_, getattr(tree, "curves_", None)
    n_leaves, depth = exact.n_leaves, exact.depth
    if figure is None:
        figure = Figure(figsize=(max(4.0, 1.9 * n_leaves), 2.6 + 0.8 * depth))
    width, height = figure.bbox.width / figure.dpi, figure.bbox.height / figure.dpi
    grid = figure.add_gridspec(
        2,
        n_leaves,
        height_ratios=(0.3 + 0.8 * depth, 1.7),
        left=0.6 / width,
        right=1.0 - 0.15 / width,
        top=1.0 - 0.05 / height,
        bottom=0.5 / height,
        hspace=0.12,
    )
    upper = figure.add_subplot(grid[0, :])
    upper.set(xlim=(-0.5, n_leaves - 0.5), ylim=(-depth - 0.2, 0.35))
    upper.axis("off")
    order = _draw_nodes(upper, exact, depth)
    axes, texts = [upper], tree.leaf_texts()
    for column, leaf in enumerate(order):
        ax = figure.add_subplot(grid[1, column])
        if curves is None:
            _write_leaf(ax, texts[leaf])
        else:
            _draw_curve(ax, curves, tree.leaf_table_, leaf, first=column == 0)
        axes.append(ax)
    return axes


def _write_leaf(ax: Axes, text: str) -> None:
    """Write the text of a leaf, a line for each part."""
    ax.text(
        0.5, 1.0, text.replace(": ", "\n").replace(", ", "\n"), ha="center", va="top", fontsize=8, bbox=_BOX
    )
    ax.axis("off")


def _draw_curve(ax: Axes, curves: Any, table: Any, leaf: int, first: bool) -> None:
    """The survival curve of a leaf; the first one has the labels of the axis."""
    times = np.concatenate(([0.0], curves.times))
    survival = np.concatenate(([1.0], curves.survival[leaf]))
    ax.plot(times, survival, drawstyle="steps-post", color=COLOURS[leaf % len(COLOURS)], linewidth=1.8)
    rows, events = int(table["rows"].iloc[leaf]), int(table["events"].iloc[leaf])
    ax.set_title(f"leaf {leaf}\n{rows} rows, {events} events", fontsize=8)
    ax.set(ylim=(0, 1.02), xlim=(0, times[-1]), xlabel="time")
    ax.set_yticks([0.0, 0.5, 1.0], labels=["0", ".5", "1"] if first else ["", "", ""])
    if first:
        ax.set_ylabel("survival")
    ax.locator_params(axis="x", nbins=3)
    ax.tick_params(labelsize=8)
    ax.spines[["top", "right"]].set_visible(False)


def _draw_nodes(ax: Axes, exact: Any, depth: int) -> list[int]:
    """Draw branches and questions; leaf numbers from left to right, rows that answer yes on the left."""
    order: list[int] = []

    def walk(node: int, level: int) -> float:
        if exact.feature[node] < 0:
            order.append(int(exact.leaf_number[node]))
            x = float(len(order) - 1)
            if level < depth:
                ax.plot([x, x], [-level, -depth], color="#999999", linewidth=0.9, zorder=1)
            return x
        ends = [walk(int(child[node]), level + 1) for child in (exact.present, exact.absent)]
        x = sum(ends) / 2.0
        for end, answer in zip(ends, ("yes", "no"), strict=True):
            ax.plot([x, end], [-level, -level - 1], color="#999999", linewidth=0.9, zorder=1)
            ax.text(
                x + 0.55 * (end - x),
                -level - 0.55,
                answer,
                fontsize=8,
                ha="center",
                va="center",
                color="#444444",
                backgroundcolor="white",
            )
        ax.text(x, -level, exact.names[exact.feature[node]], ha="center", va="center", fontsize=9, bbox=_BOX)
        return x

    walk(0, 0)
    return order

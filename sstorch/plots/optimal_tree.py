"""An exact tree with the survival curve of each leaf below it, or what else its leaves say."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure, SubFigure

from sstorch.plots.survival_curves import COLOURS

_BOX = {"boxstyle": "round,pad=0.35", "facecolor": "white", "edgecolor": "#444444", "linewidth": 0.8}


class FittedExactTree(Protocol):
    """What a tree must offer to be drawn; see :class:`sstorch.OptimalTreeClassifier`.

    Where it has `curves_`, as :class:`sstorch.OptimalSurvivalTree`, curves are drawn.
    """

    tree_: Any
    leaf_table_: Any

    def leaf_texts(self) -> list[str]: ...  # noqa: D102


def plot_optimal_tree(tree: FittedExactTree, figure: Figure | SubFigure | None = None) -> list[Axes]:
    """Draw the tree, its questions in the nodes, and below each leaf its survival curve, or what it says.

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
    """What a leaf says, a line for each part."""
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

"""Figures of trees."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure, SubFigure
from matplotlib.ticker import MaxNLocator
from sklearn.utils.validation import check_is_fitted

from sstorch._types import BoolArray, FloatArray
from sstorch.checks import check_tree, counted
from sstorch.data.target import steps_up_to
from sstorch.data.time_unit import CONSTANT_COVARIATES, duration, round_horizons
from sstorch.exceptions import ConfigError
from sstorch.metrics.censoring import followed_to
from sstorch.plots.figures import ObservedGroups, colour_of, dark
from sstorch.plots.tree_layout import LINE, SIZE, TEXT, Node, draw_tree, wrapped

_LINE = "#999999"
# Inches: height of the curves of a group, room for their axis below, and around a rule.
_CURVES, _AXIS, _PAD = 0.66, 0.32, 0.06


@dataclass(frozen=True)
class _Groups:
    """Plotted values of groups."""

    times: FloatArray  # of the model's curves, increasing from 0, shape (n_times,)
    label: str  # of the axis of time, which is as narrow as its unit
    horizon: float  # time at which survival is written
    time_unit: str | None  # of time; None if not known
    survival: str  # what it is called
    steps: bool  # whether curves are step functions
    rows: ObservedGroups | None  # groups and outcomes of rows; None without outcomes

    def node(self, number: int, n_rows: int, share: float, curve: FloatArray | None) -> Node:
        """A group: its number, rows of it, their share, and the model's curve at the times."""
        facts = [counted(n_rows, "row")]
        if self.rows is not None and n_rows:
            inside, outcome = self.rows.rows(number), self.rows.outcome
            events = [counted(int(self.rows.event[inside].sum()), "event")]
            if outcome.causes:
                counts = np.bincount(outcome.cause[inside], minlength=len(outcome.causes) + 1)[1:]
                events = [f"{count} {name}" for count, name in zip(counts, outcome.causes, strict=True)]
            facts = [f"{facts[0]},", *(f"{each}," for each in events[:-1]), events[-1]]
        facts += self._at_horizon(number, curve) if n_rows else []
        draw = partial(self._draw, number, curve if n_rows else None)
        title, colour = f"Group {number}", dark(colour_of(number))
        return Node(title, draw, share, number, lambda _: _CURVES, facts, _AXIS, colour)

    def _at_horizon(self, number: int, curve: FloatArray | None) -> list[str]:
        """Survival at the horizon in words: by Kaplan-Meier with limits, or else by the model."""
        at = (
            f"{self.survival} at {duration(self.horizon, self.time_unit)}:"
            if self.time_unit
            else f"{self.survival} at time {self.horizon:g}:"
        )
        if self.rows is not None:
            inside = self.rows.rows(number)
            time, event = self.rows.time[inside], self.rows.event[inside]
            if not inside.any() or not followed_to(np.array([self.horizon]), time, event)[0]:
                return [at, "not known"]
            value, lower, upper = (100 * float(part) for part in self.rows.band(number).limits(self.horizon))
            return [at, f"{value:.0f} %", *([] if math.isnan(lower) else [f"({lower:.0f} to {upper:.0f})"])]
        if curve is None:
            return []
        place = int(steps_up_to(self.times, self.horizon)) - 1
        value = curve[place] if self.steps else np.interp(self.horizon, self.times, curve)
        return ["predicted", at, f"{100 * value:.0f} %"]

    def _draw(self, number: int, curve: FloatArray | None, ax: Axes) -> None:
        colour, last = colour_of(number), float(self.times[-1])
        ax.set(xlim=(0, last), ylim=(0, 1.04))
        ticks = [tick for tick in MaxNLocator(3).tick_values(0, last) if 0 <= tick <= last]
        ax.set_xticks([0, ticks[-1]], ["0", f"{ticks[-1]:g}"], fontsize=SIZE)
        start, end = ax.get_xticklabels()
        start.set_horizontalalignment("left")
        end.set_horizontalalignment("right")
        ax.set_xlabel(self.label, fontsize=SIZE, labelpad=0)
        ax.set_yticks([0, 0.5, 1], [])
        ax.tick_params(length=2, pad=1.5)
        ax.spines[["top", "right"]].set_visible(False)
        ax.axhline(0.5, color="#dddddd", linewidth=0.6, zorder=0)
        if curve is None:
            ax.text(0.5, 0.5, "no rows", ha="center", va="center", transform=ax.transAxes, **TEXT)
            return
        if self.rows is not None and self.rows.rows(number).any():
            self.rows.draw(ax, number, self.rows.band(number), colour)
        style = "steps-post" if self.steps else "default"
        kind: dict[str, Any] = {"color": dark(colour), "linestyle": "--", "linewidth": 1.2}
        if self.rows is None:
            kind = {"color": colour, "linestyle": "-", "linewidth": 1.8}
        ax.plot(self.times, curve, drawstyle=style, label="model", **kind)

    def caption(self, tree: object, curve: str) -> list[str]:
        """Sentences on the curves; ``curve`` is what the tree has of a group."""
        lines = [f"Groups: {curve}."]
        if self.rows is not None:
            lines = [f"Groups: {curve} (dashed) and Kaplan-Meier (solid)."]
            lines += ["The band and the numbers in brackets are 95 % confidence intervals of Kaplan-Meier."]
        if getattr(tree, "time_varying_", False):
            lines.append(f"Survival is from time zero {CONSTANT_COVARIATES}.")
        return [*lines, "Branches are as wide as their share of the rows."]


def _horizon(horizon: float | None, event_times: FloatArray, time_unit: str | None) -> float:
    """The time at which survival is written, in (0, last training event]."""
    last = float(event_times[-1])
    if horizon is None:
        return float(round_horizons(event_times, time_unit)[-1])
    if not 0 < horizon <= last:
        raise ConfigError(
            f"horizon must be a time above 0 and up to the last training event, {last:g}; got {horizon!r}"
        )
    return float(horizon)


def plot_tree(
    tree: Any,
    X: object = None,
    y: object = None,
    figure: Figure | SubFigure | None = None,
    time_unit: str | None = None,
    horizon: float | None = None,
    width: float | None = None,
) -> list[Axes]:
    """Plot a tree, soft or exact: the rule of each gate, and the survival curve, or the text, of each leaf.

    A gate shows its rule: a threshold, categories, or a sum with its threshold. The width of a branch is
    proportional to its share of the rows; the side with the group of the longest survival is on the left.
    Gates of soft trees with all training rows on one side are not shown.

    A group shows the Kaplan-Meier estimate with 95 % confidence band, the prediction (dashed; of a soft tree
    the mean), rows, events, and survival at one time with its confidence interval. With competing causes
    survival is event-free. On training rows, which placed the gates, differences between groups are too
    large.

    All text has 8 points: a figure of 3.35 inches (85 mm, a journal column) fits four groups.

    Args:
        tree: fitted.
        X: rows; None for the counts of training rows of an exact tree.
        y: outcome of the rows, as in ``fit``; None shows only predictions.
        figure: matplotlib figure; None for a new figure of suitable size.
        time_unit: unit of time; None for that of the tree.
        horizon: time of the reported survival; None for a round time near the quantile .9 of the event times.
        width: width of a new figure, in inches.

    Returns:
        The axes of the branches, of the gates by level, and of the groups from left to right.

    Raises:
        DataError: not one outcome for each row, or none of the kind of training.
        ConfigError: the figure is too small, ``horizon`` is out of range, ``X`` is None for a soft tree, or
            ``y`` is given without ``X`` or for a tree without survival curves.
    """
    check_tree(tree, "_export_text")
    check_is_fitted(tree)
    soft, curves = hasattr(tree, "_reading"), vars(tree).get("curves_")
    if X is None and (soft or y is not None):
        raise ConfigError("X must be the rows that are drawn, of a soft tree or with y, got None")
    if y is not None and not soft and curves is None:
        raise ConfigError("y is the outcome of a survival tree; leave it out for other trees")
    groups = None
    if soft or curves is not None:
        times = np.linspace(0.0, float(tree.event_times_[-1]), 101) if soft else np.r_[0.0, curves.times]
        unit = time_unit or tree.time_unit_
        observed = None if y is None else ObservedGroups.of(tree, tree.apply(X), y, X=X)
        survival = "event-free survival" if tree.causes_ else "survival"
        at = _horizon(horizon, tree.event_times_, unit)
        groups = _Groups(times, unit or "time", at, unit, survival, not soft, observed)
    root, caption = _nodes(tree, X, groups)
    axes = draw_tree(root, figure, width, caption)
    if groups is not None:  # the scale of survival is at the first group
        first = axes[len(axes) - sum(not node.branches for node in root.walk())]
        first.set_yticks([0, 0.5, 1], ["0", ".5", "1"], fontsize=SIZE)
        first.set_ylabel("survival", fontsize=SIZE, labelpad=1)
    return axes


def _nodes(tree: Any, X: object, groups: _Groups | None) -> tuple[Node, list[str]]:
    """Root of a tree, and its caption; `groups` are None if leaves have no curves."""
    nodes, soft = tree._page_nodes(), hasattr(tree, "_reading")
    if X is None:
        group = np.repeat(np.arange(len(tree.leaf_table_)) + 1, tree.leaf_table_["rows"])
    else:  # a survival tree gives numbers of groups, from 1 on, another tree those of leaves from 0 on
        group = np.asarray(tree.apply(X)) + (groups is None)
    curves = np.asarray(tree.falling_curves(X, groups.times)) if soft and groups is not None else None
    weight = np.ones(len(group)) if groups is None or groups.rows is None else groups.rows.weight
    empty = {number for number, each in tree._deployed(False).groups.items() if not each.rows} if soft else ()

    def leaves(place: int) -> list[int]:
        """Groups below a node."""
        children = nodes[place].children
        return [number for child in children for number in leaves(child)] or [nodes[place].group]

    def shown(place: int) -> int:
        """The node itself, or the only child with training rows in place of a gate."""
        kept = [child for child in nodes[place].children if not set(leaves(child)) <= set(empty)]
        return shown(kept[0]) if len(kept) == 1 else place

    def leaf(number: int, inside: BoolArray) -> Node:
        n_rows, share = int(inside.sum()), float(inside.mean())
        if groups is None:
            return _text_leaf(tree._leaf_texts()[number - 1], share)
        if curves is None:
            return groups.node(number, n_rows, share, np.append(1.0, tree.curves_.survival[number - 1]))
        weighted = inside & (weight > 0)
        mean = np.average(curves[weighted], axis=0, weights=weight[weighted]) if weighted.any() else None
        return groups.node(number, n_rows, share, mean)

    def made(place: int) -> Node:
        place = shown(place)
        inside = np.isin(group, leaves(place))
        if not nodes[place].children:
            return leaf(nodes[place].group, inside)
        branches = []
        for word, child in zip(("yes", "no"), nodes[place].children, strict=True):
            part = 100 * np.isin(group, leaves(child)).sum() / max(int(inside.sum()), 1)
            branches.append((f"{word} {part:.0f} %", made(child)))
        title, rule = counted(int(inside.sum()), "row"), nodes[nodes[place].children[0]].rule
        title = f"[{place + 1}] {title}" if soft else title
        draw, height = partial(_write, rule), partial(_height, rule)
        return Node(title, draw, float(inside.mean()), height=height, branches=branches)

    root = made(0)
    if groups is None:
        return root, []
    curve = "mean predicted survival" if soft else "survival curve of the leaf"
    return root, groups.caption(tree, curve)


def _write(text: str, ax: Axes) -> None:
    """Write a text into a box, in as many lines as it needs."""
    ax.set(xticks=[], yticks=[])
    for spine in ax.spines.values():
        spine.set_color(_LINE)
    width = ax.get_position().width * ax.figure.bbox.width / ax.figure.dpi
    lines = "\n".join(wrapped(text, width - 2 * _PAD))
    style: dict[str, Any] = {"ha": "center", "va": "center", "linespacing": 1.1}
    ax.text(0.5, 0.5, lines, transform=ax.transAxes, **style, **TEXT)


def _height(rule: str, width: float) -> float:
    """Height of a box with a text, from its width, in inches."""
    return LINE * len(wrapped(rule, width - 2 * _PAD)) + 2 * _PAD


def _text_leaf(text: str, share: float) -> Node:
    """A leaf without a curve: its text, a line for each part."""
    head, *parts = text.replace(": ", "\n").replace(", ", "\n").split("\n")

    def draw(ax: Axes) -> None:
        ax.axis("off")

    return Node(head, draw, share, below=parts)

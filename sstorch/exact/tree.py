"""Binary trees over binary features, and the survival curves of their leaves."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt
from sklearn.isotonic import isotonic_regression

from sstorch._types import BoolArray, FloatArray, IntArray
from sstorch.checks import check_share, check_truncation
from sstorch.data.target import steps_up_to
from sstorch.exact.rows import least_hazard, smallest
from sstorch.exceptions import DataError
from sstorch.metrics import censoring_distribution
from sstorch.metrics.censoring import risk_sets
from sstorch.metrics.outcome import Observed

# A branch node is (feature, subtree where 0, subtree where 1), a leaf its decision, or None.
Nested = tuple[int, "Nested", "Nested"] | int | None


class NestedSize(NamedTuple):
    """Depth and branch nodes of a nested tree."""

    depth: int
    nodes: int


def nested_size(tree: Nested) -> NestedSize:
    """Depth and branch nodes."""
    if not isinstance(tree, tuple):
        return NestedSize(0, 0)
    left, right = map(nested_size, tree[1:])
    return NestedSize(1 + max(left.depth, right.depth), 1 + left.nodes + right.nodes)


LeafCurveKind = Literal["kaplan_meier", "proportional_hazards", "ipcw"]
# A product of factors (1 - d / n) can miss a round number such as 1/2 by a few units in the last place.
_ROUNDING = 1e-12
# Digits of the mean survival that order leaves by prognosis.
_PROGNOSIS_DIGITS = 9


@dataclass(frozen=True)
class BinaryTree:
    """Binary tree; each branch node tests whether a binary feature is 1.

    Nodes are numbered in preorder from the root, 0: a node, its subtree for feature 0, its subtree for
    feature 1. Leaves are numbered 0 .. n_leaves - 1, in the same order or by `order`.

    Attributes:
        feature: (n_all,), tested column of a branch node, -1 at leaves.
        absent: (n_all,), child for feature 0; -1 at leaves.
        present: (n_all,), child for feature 1; -1 at leaves.
        names: names of the columns.
        order: (n_leaves,), the number of each leaf in preorder; by default 0 .. n_leaves - 1.
    """

    feature: IntArray
    absent: IntArray
    present: IntArray
    names: tuple[str, ...]
    order: IntArray | None = None

    @classmethod
    def build(cls, nested: Nested, names: Sequence[str]) -> BinaryTree:
        """Build a tree from nested (feature, subtree for 0, subtree for 1)."""
        feature: list[int] = []
        absent: list[int] = []
        present: list[int] = []
        # Nodes to come, with the parent of each and the children of that side. No closure that calls itself:
        # as a cycle it would keep what it holds until the next collection.
        waiting: list[tuple[Nested, int, list[int]]] = [(nested, 0, [0])]
        while waiting:
            node, parent, side = waiting.pop()
            index = side[parent] = len(feature)
            absent.append(-1)
            present.append(-1)
            if isinstance(node, tuple):
                feature.append(node[0])
                waiting += [(node[2], index, present), (node[1], index, absent)]
            else:
                feature.append(-1)
        nodes = np.array([feature, absent, present], dtype=np.int64)
        return cls(nodes[0], nodes[1], nodes[2], tuple(names))

    @property
    def is_leaf(self) -> BoolArray:
        """(n_all,) bool."""
        return self.feature < 0

    @property
    def n_leaves(self) -> int:
        """Number of leaves."""
        return int(self.is_leaf.sum())

    @property
    def n_nodes(self) -> int:
        """Number of branch nodes, number of leaves minus one."""
        return self.n_leaves - 1

    @property
    def depth(self) -> int:
        """Tests on the longest path; 0 for a single leaf."""
        return max(len(path) for path in self.paths())

    @property
    def leaf_number(self) -> IntArray:
        """(n_all,), the number of each leaf, -1 at branch nodes."""
        place = np.cumsum(self.is_leaf) - 1
        return np.where(self.is_leaf, place if self.order is None else self.order[place], -1)

    @property
    def heap_number(self) -> IntArray:
        """(n_all,), number of each node in a complete tree: root 1, children of k 2k (0) and 2k + 1 (1)."""
        number = np.ones(len(self.feature), dtype=np.int64)
        for node in np.flatnonzero(~self.is_leaf):  # preorder: a node comes before its children
            number[self.absent[node]] = 2 * number[node]
            number[self.present[node]] = 2 * number[node] + 1
        return number

    def apply(self, features: npt.ArrayLike) -> IntArray:
        """The leaf of each row of a binary matrix (n, p), 0 .. n_leaves - 1, shape (n,).

        Raises:
            DataError: the number of columns differs from that of the tree.
        """
        x = np.asarray(features).astype(np.bool_, copy=False)
        if x.ndim != 2 or x.shape[1] != len(self.names):
            raise DataError(f"features must have {len(self.names)} columns, got the shape {x.shape}")
        node, rows = np.zeros(len(x), dtype=np.int64), np.arange(len(x))
        children = np.stack([self.absent, self.present], axis=1)
        children[self.is_leaf] = np.flatnonzero(self.is_leaf)[:, None]  # where rows stay
        while ((asked := self.feature[node]) >= 0).any():
            node = children[node, x[rows, asked].view(np.uint8)]
        return self.leaf_number[node]

    def paths(self) -> list[tuple[tuple[int, bool], ...]]:
        """The tests above every leaf, by leaf number: pairs of column and result."""
        above: dict[int, tuple[tuple[int, bool], ...]] = {0: ()}
        for node, feature, absent, present in self._nodes():
            if feature >= 0:
                path = above.pop(node)
                above[absent], above[present] = (*path, (feature, False)), (*path, (feature, True))
        found = [above[leaf] for leaf in sorted(above)]
        return found if self.order is None else [found[place] for place in np.argsort(self.order)]

    def _nodes(self) -> Iterator[tuple[int, int, int, int]]:
        """Number, feature and children of each node, a node before its children."""
        return zip(count(), self.feature.tolist(), self.absent.tolist(), self.present.tolist(), strict=False)

    def _export_text(self, n_terms: int | None = None) -> str:
        return self.text([f"leaf {number}" for number in range(self.n_leaves)])

    def _export_graphviz(self, n_terms: int | None = None) -> str:
        return self.graph([f"leaf {number}" for number in range(self.n_leaves)])

    def graph(self, leaf_text: Sequence[str]) -> str:
        """The tree in the DOT language of Graphviz, with a text for each leaf."""
        lines = ["digraph tree {", '  node [shape=box, style=rounded, fontname="Helvetica"];']
        for node, (feature, leaf) in enumerate(zip(self.feature, self.leaf_number, strict=True)):
            text = leaf_text[leaf].replace(": ", "\n", 1) if feature < 0 else self.names[feature]
            lines.append(f"  {node} [label={json.dumps(text, ensure_ascii=False)}];")
        for answer, children in (("yes", self.present), ("no", self.absent)):
            inner = np.flatnonzero(~self.is_leaf)
            lines += [f'  {node} -> {children[node]} [label="{answer}"];' for node in inner]
        return "\n".join([*lines, "}"]) + "\n"

    def text(self, leaf_text: Sequence[str]) -> str:
        """The tree as indented rules, a line for each branch and leaf."""
        lines: list[str] = []

        def walk(node: int, indent: str) -> None:
            if self.feature[node] < 0:
                lines.append(indent + leaf_text[self.leaf_number[node]])
                return
            name = self.names[self.feature[node]]
            lines.append(f"{indent}if {name}:")
            walk(int(self.present[node]), indent + "  ")
            lines.append(f"{indent}else:")
            walk(int(self.absent[node]), indent + "  ")

        walk(0, "")
        return "\n".join(lines)


@dataclass(frozen=True)
class LeafCurves:
    """One survival curve and one cumulative hazard per leaf: right-continuous steps, S(0) = 1 and H(0) = 0.

    Beyond the last of the times both keep their last value.
    """

    times: FloatArray  # distinct event times of the training rows, increasing, shape (T,)
    survival: FloatArray  # S_l(t_k), shape (L, T), falling along k
    cumulative_hazard: FloatArray  # H_l(t_k), shape (L, T)

    def survival_at(self, grid: FloatArray, leaf: IntArray | None = None) -> FloatArray:
        """S_l at any times, shape (L, n_times); or S of the leaf (n,) of each row at its own (n, n_times)."""
        return self._read(self.survival, 1.0, grid, leaf)

    def cumulative_hazard_at(self, grid: FloatArray, leaf: IntArray | None = None) -> FloatArray:
        """H_l at any times, shape (L, n_times); or that of the leaf of each row, as :meth:`survival_at`."""
        return self._read(self.cumulative_hazard, 0.0, grid, leaf)

    def exposure(self, leaf: IntArray, time: FloatArray, entry: FloatArray) -> FloatArray:
        """H(time) - H(entry) of the leaf of each row, (n,); that from time zero if entry is 0."""
        at = self.cumulative_hazard_at(np.stack([entry, time], axis=1), leaf)
        return np.asarray(at[:, 1] - at[:, 0])

    def scaled(self, factor: FloatArray) -> LeafCurves:
        """Cumulative hazards times a factor of each leaf, (L,): H becomes c H, and S becomes S^c."""
        power = factor[:, None]
        return LeafCurves(self.times, self.survival**power, self.cumulative_hazard * power)

    @property
    def order(self) -> IntArray:
        """Place of each leaf by prognosis, (L,): 0 for the largest mean survival up to the last event time.

        Leaves of like survival keep their order.
        """
        end = float(self.times[-1])
        level = (self.restricted_mean(end) / end).round(_PROGNOSIS_DIGITS)
        return np.argsort(np.argsort(-level, kind="stable"))

    def quantile(self, q: float, leaf: IntArray | None = None, after: FloatArray | None = None) -> FloatArray:
        """First time t with S(after + t) <= (1 - q) S(after), +inf if there is none.

        Of each leaf from time zero, (L,); or of the leaf (n,) of each row from its time `after` (n,) on,
        where S > 0. Raises ConfigError: `q` is not in (0, 1).
        """
        leaf, after = self._from(leaf, after)
        level = (1.0 - check_share(q, "q")) * self.survival_at(after[:, None], leaf)[:, 0] + _ROUNDING
        times = np.append(self.times, math.inf)
        found = np.empty(len(leaf))
        for number in np.unique(leaf):
            rows = leaf == number
            found[rows] = times[np.searchsorted(-self.survival[number], -level[rows], side="left")]
        return found - after

    def restricted_mean(
        self, tau: float, leaf: IntArray | None = None, after: FloatArray | None = None
    ) -> FloatArray:
        """Area under S(after + t) / S(after) from 0 to `tau`; arguments and shape as in :meth:`quantile`.

        For an infinite `tau` it is +inf if S stays above 0. Raises ConfigError: `tau` is not positive.
        """
        leaf, after = self._from(leaf, after)
        until = after + check_truncation(tau)
        edges = np.concatenate(([0.0], self.times))
        heights = np.column_stack([np.ones(len(self.survival)), self.survival])
        area = np.zeros(heights.shape)
        area[:, 1:] = np.cumsum(heights[:, :-1] * np.diff(edges), axis=1)

        def below(time: FloatArray) -> FloatArray:
            place = np.searchsorted(self.times, time, side="right")
            height, width = heights[leaf, place], time - edges[place]
            # A curve that has ended at zero has a mean, however late.
            last = np.multiply(height, width, out=np.zeros_like(height), where=height > 0)
            return np.asarray(area[leaf, place] + last)

        return (below(until) - below(after)) / self.survival_at(after[:, None], leaf)[:, 0]

    def _from(self, leaf: IntArray | None, after: FloatArray | None) -> tuple[IntArray, FloatArray]:
        """Leaves, each one once by default, and times, by default zero."""
        leaf = np.arange(len(self.survival)) if leaf is None else leaf
        return leaf, np.zeros(len(leaf)) if after is None else after

    def _read(
        self, steps: FloatArray, before: float, grid: FloatArray, leaf: IntArray | None = None
    ) -> FloatArray:
        position = steps_up_to(self.times, grid)
        table = np.column_stack([np.full(len(steps), before), steps])
        read: FloatArray = table[:, position] if leaf is None else table[leaf[:, None], position]
        return read


def leaf_curves(leaf: IntArray, n_leaves: int, rows: Observed, curve: LeafCurveKind) -> LeafCurves:
    """Estimate the curves of all leaves from leaf (N,) and outcome of each row, some with events.

    A row counts with its weight and is at risk where entry < t <= time; no entry times with ``"ipcw"``.

    ``"kaplan_meier"``: Kaplan-Meier and Nelson-Aalen estimates of the leaf's rows.
    ``"proportional_hazards"``: H_l = theta_l Λ, with the Nelson-Aalen estimate Λ of all rows and theta from
    `hazard_ratios`, and S_l = exp(-H_l).
    ``"ipcw"``: the falling steps with the smallest Brier score of the leaf's rows, weighted for censoring
    and integrated over the observed times; with it the leaf's Nelson-Aalen estimate.
    """
    event, weight = rows.event, rows.weights
    times = np.unique(rows.time[event])
    seen = np.searchsorted(times, rows.time, side="right")  # event times that the row was at risk at
    shape = (n_leaves, len(times))
    leaving = np.zeros((n_leaves, len(times) + 1))
    np.add.at(leaving, (leaf, seen), weight)
    if rows.entry is not None:
        np.subtract.at(leaving, (leaf, np.searchsorted(times, rows.entry, side="right")), weight)
    at_risk = np.cumsum(leaving[:, ::-1], axis=1)[:, ::-1][:, 1:]
    events = np.zeros(shape)
    np.add.at(events, (leaf[event], seen[event] - 1), weight[event])
    if curve == "proportional_hazards":
        whole = BaselineHazard.of(rows)
        ratios = hazard_ratios(leaf, n_leaves, rows, whole.exposure(rows))
        hazard = ratios[:, None] * whole.values[1:]
        return LeafCurves(times, np.exp(-hazard), hazard)
    rate = events / np.maximum(at_risk, 1.0)  # weights are whole numbers
    hazard = np.cumsum(rate, axis=1)
    if curve == "kaplan_meier":
        return LeafCurves(times, np.cumprod(1.0 - rate, axis=1, dtype=np.float64), hazard)
    return LeafCurves(times, _least_brier(leaf, n_leaves, rows, times), hazard)


def hazard_ratios(leaf: IntArray, n_leaves: int, rows: Observed, exposure: FloatArray) -> FloatArray:
    """Maximum likelihood hazard ratio of each leaf to the baseline of all rows, shape (L,).

    E / H, with E events and H the sum of the exposures in the leaf, `BaselineHazard.exposure` of each row,
    both weighted; half an event of the smallest weight is counted in a leaf without any, and a leaf without
    exposure, whose rows entered late and left before any event, has the ratio 1. See LeBlanc and Crowley
    (1992), Biometrics 48, 411-425.
    """
    events = np.bincount(leaf, weights=rows.weights * rows.event, minlength=n_leaves)
    hazard = np.bincount(leaf, weights=rows.weights * exposure, minlength=n_leaves)
    least = 0.5 * smallest(rows.weights)
    return np.divide(np.maximum(events, least), hazard, out=np.ones(n_leaves), where=hazard > 0.0)


@dataclass(frozen=True)
class BaselineHazard:
    """Nelson-Aalen estimate Λ of all rows, kept positive: `least_hazard` before the first event.

    It is `values[0]` before the distinct event `times` (T,), and `values[k]` from the k-th of them on. Where
    rows entered late it is the plain estimate, 0 before the first event: a row that is split in two keeps its
    exposure, Λ(t) - Λ(entry).
    """

    times: FloatArray
    values: FloatArray

    @classmethod
    def of(cls, rows: Observed) -> BaselineHazard:
        """Estimate it from weighted rows that are at risk where entry < t <= time."""
        sets = risk_sets(rows)
        had = sets.n_events > 0.0
        first = least_hazard(rows.weights) if rows.entry is None else 0.0
        rises = sets.n_events[had] / sets.at_risk[had]
        return cls(sets.times[had], np.concatenate(([first], np.cumsum(rises))))

    def exposure(self, rows: Observed) -> FloatArray:
        """Λ(t_i) - Λ(entry_i), or Λ(t_i) without left truncation, shape (N,)."""
        return self.at(rows.time) if rows.entry is None else self.at(rows.time) - self.at(rows.entry)

    def at(self, time: npt.ArrayLike) -> FloatArray:
        """Λ(t)."""
        read: FloatArray = self.values[np.searchsorted(self.times, time, side="right")]
        return read


def martingale_residuals(rows: Observed) -> FloatArray:
    """Events less expected ones by the Nelson-Aalen estimate of all rows, (N,): log-rank scores."""
    residuals: FloatArray = rows.event - BaselineHazard.of(rows).exposure(rows)
    return residuals


def _least_brier(leaf: IntArray, n_leaves: int, rows: Observed, times: FloatArray) -> FloatArray:
    """Of each leaf the falling steps at `times` that minimise Σ_k (1 - S_k)² a_k + S_k² b_k, shape (L, T).

    a_k and b_k integrate, from one event time to the next, the weights of the rows that are observed longer
    and of those that had their event; without weight in a leaf the curve keeps its value.
    """
    grid, position = np.unique(rows.time, return_inverse=True)
    width = np.append(np.diff(grid), 0.0)
    weight, event = rows.weights, rows.event
    censoring = censoring_distribution((rows.time, event), tied_events="at_risk", sample_weight=weight).values
    inverse = np.divide(1.0, censoring, out=np.zeros_like(censoring), where=censoring > 0.0)
    begin = np.searchsorted(grid, times)
    curves = np.ones((n_leaves, len(times)))
    for number in range(n_leaves):
        inside = np.flatnonzero(leaf == number)
        counts = np.bincount(position[inside], weights=weight[inside], minlength=len(grid))
        events = np.bincount(position[inside], weights=(weight * event)[inside], minlength=len(grid))
        longer = counts.sum() - np.cumsum(counts)
        a = np.add.reduceat(width * inverse * longer, begin)
        b = np.add.reduceat(width * np.cumsum(events * inverse), begin)
        known = a + b > 0.0
        if not known.any():
            continue
        best = isotonic_regression(
            a[known] / (a + b)[known], sample_weight=(a + b)[known], y_min=0.0, y_max=1.0, increasing=False
        )
        filled = np.concatenate(([1.0], best))
        curves[number] = filled[np.cumsum(known)]
    return curves

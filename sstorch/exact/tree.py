"""Binary trees over binary features."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from sstorch._types import BoolArray, IntArray
from sstorch.exceptions import DataError

# A branch node is (feature, subtree where 0, subtree where 1), a leaf its decision, or None.
Nested = tuple[int, "Nested", "Nested"] | int | None


@dataclass(frozen=True)
class BinaryTree:
    """Binary tree; each branch node tests whether a binary feature is 1.

    Nodes are numbered in preorder from the root, 0: a node, its subtree for feature 0, its subtree for
    feature 1. Leaves are numbered 0 .. n_leaves - 1, in the same order or by `order`.
    """

    feature: IntArray  #: (n_all,), tested column of a branch node, -1 at leaves
    absent: IntArray  #: (n_all,), child for feature 0; -1 at leaves
    present: IntArray  #: (n_all,), child for feature 1; -1 at leaves
    names: tuple[str, ...]  #: of the columns
    order: IntArray | None = None  #: (n_leaves,), the number of each leaf in preorder

    @classmethod
    def build(cls, nested: Nested, names: Sequence[str]) -> BinaryTree:
        """Build a tree from nested (feature, subtree for 0, subtree for 1)."""
        nodes = list[list[int]]()
        _number(nested, nodes)
        feature, absent, present = np.array(nodes, dtype=np.int64).T.copy()
        return cls(feature, absent, present, tuple(names))

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
        return max(map(len, self.paths()))

    @property
    def leaf_number(self) -> IntArray:
        """(n_all,), the number of each leaf, -1 at branch nodes."""
        place = np.cumsum(self.is_leaf) - 1
        return np.where(self.is_leaf, place if self.order is None else self.order[place], -1)

    def apply(self, features: npt.ArrayLike) -> IntArray:
        """The leaf of each row of a binary matrix (n, p), (n,); DataError if p is not the tree's."""
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
        for node, feature in enumerate(self.feature.tolist()):
            if feature >= 0:
                path = above.pop(node)
                above[int(self.absent[node])] = (*path, (feature, False))
                above[int(self.present[node])] = (*path, (feature, True))
        found = [above[leaf] for leaf in sorted(above)]
        return found if self.order is None else [found[place] for place in np.argsort(self.order)]

    def _export_text(self, n_terms: int | None = None, leaf_texts: Sequence[str] | None = None) -> str:
        """The tree as indented rules, a line for each branch and leaf."""
        texts = leaf_texts or [f"leaf {number}" for number in range(self.n_leaves)]
        return "\n".join(self._lines(0, texts))

    def _lines(self, node: int, texts: Sequence[str]) -> list[str]:
        if self.feature[node] < 0:
            return [texts[self.leaf_number[node]]]
        present, absent = (self._lines(int(side[node]), texts) for side in (self.present, self.absent))
        parts = [f"if {self.names[self.feature[node]]}:"], present, ["else:"], absent
        return [f"{'  ' * (k % 2)}{line}" for k, lines in enumerate(parts) for line in lines]


def _number(nested: Nested, nodes: list[list[int]]) -> int:
    """Add the nodes of a tree in preorder, as feature and children; returns the number of its root."""
    index = len(nodes)
    nodes.append([-1, -1, -1])
    if isinstance(nested, tuple):
        nodes[index] = [nested[0], _number(nested[1], nodes), _number(nested[2], nodes)]
    return index

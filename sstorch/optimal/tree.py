"""A tree of tests on binary features."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from sstorch.exceptions import DataError
from sstorch.optimal.patterns import BoolArray, IntArray


@dataclass(frozen=True)
class BinaryTree:
    """A tree whose branch nodes test whether a binary feature is 1.

    Nodes are numbered from the root, 0, in preorder: a node, its subtree where the feature is 0, its subtree
    where it is 1. Leaves are numbered 0 .. n_leaves - 1 in the same order.

    Attributes:
        feature: (n_all,), the column that a branch node tests, -1 at leaves.
        absent: (n_all,), the child of rows where the feature is 0; -1 at leaves.
        present: (n_all,), the child of rows where it is 1; -1 at leaves.
        names: names of the columns.
    """

    feature: IntArray
    absent: IntArray
    present: IntArray
    names: tuple[str, ...]

    @classmethod
    def build(cls, nested: Nested, names: Sequence[str]) -> BinaryTree:
        """A tree from nested (feature, subtree where 0, subtree where 1); None is a leaf."""
        feature: list[int] = []
        children: list[list[int]] = []

        def add(node: Nested) -> int:
            index = len(feature)
            feature.append(-1 if node is None else node[0])
            children.append([-1, -1])
            if node is not None:
                children[index] = [add(node[1]), add(node[2])]
            return index

        add(nested)
        pairs = np.array(children, dtype=np.int64)
        return cls(np.array(feature, dtype=np.int64), pairs[:, 0], pairs[:, 1], tuple(names))

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
        """Number of branch nodes, one less than leaves."""
        return self.n_leaves - 1

    @property
    def depth(self) -> int:
        """Tests on the longest path; 0 for a single leaf."""
        return max(len(path) for path in self.paths())

    @property
    def leaf_number(self) -> IntArray:
        """(n_all,), the number of each leaf, -1 at branch nodes."""
        number: IntArray = np.where(self.is_leaf, np.cumsum(self.is_leaf) - 1, -1)
        return number

    def apply(self, features: npt.ArrayLike) -> IntArray:
        """The leaf of each row of a binary matrix (n, p), 0 .. n_leaves - 1, shape (n,).

        Raises:
            DataError: another number of columns than the tree was grown on.
        """
        x = np.asarray(features).astype(np.bool_)
        if x.ndim != 2 or x.shape[1] != len(self.names):
            raise DataError(f"features: expected {len(self.names)} columns, got the shape {x.shape}")
        node = np.zeros(len(x), dtype=np.int64)
        rows = np.arange(len(x))
        for _ in range(self.depth):
            inner = self.feature[node] >= 0
            feature = np.maximum(self.feature[node], 0)
            child = np.where(x[rows, feature], self.present[node], self.absent[node])
            node = np.where(inner, child, node)
        return self.leaf_number[node]

    def paths(self) -> list[tuple[tuple[int, bool], ...]]:
        """The tests above every leaf, in the order of leaves: pairs of column and answer."""

        def walk(node: int, above: tuple[tuple[int, bool], ...]) -> Iterator[tuple[tuple[int, bool], ...]]:
            feature = int(self.feature[node])
            if feature < 0:
                yield above
                return
            yield from walk(int(self.absent[node]), (*above, (feature, False)))
            yield from walk(int(self.present[node]), (*above, (feature, True)))

        return list(walk(0, ()))

    def export_text(self, leaf_text: Sequence[str] | None = None) -> str:
        """The tree as indented rules, one line per branch and leaf.

        Args:
            leaf_text: what to say of each leaf; its number by default.
        """
        lines: list[str] = []

        def walk(node: int, indent: str) -> None:
            if self.feature[node] < 0:
                number = int(self.leaf_number[node])
                lines.append(indent + (f"leaf {number}" if leaf_text is None else leaf_text[number]))
                return
            name = self.names[self.feature[node]]
            lines.append(f"{indent}if {name}:")
            walk(int(self.present[node]), indent + "  ")
            lines.append(f"{indent}else:")
            walk(int(self.absent[node]), indent + "  ")

        walk(0, "")
        return "\n".join(lines)


Nested = tuple[int, "Nested", "Nested"] | None

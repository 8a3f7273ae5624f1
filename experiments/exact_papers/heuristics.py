"""Heuristic survival trees for comparison: greedy, local search, and conditional inference trees of R."""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pandas as pd

from sstorch.exact import LogLikelihood

IntArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]
# Smallest decrease of the loss that counts.
_GAIN = 1e-9


class HeapTree:
    """Tree over binary features, as an array of splits, improved one split at a time.

    Node 1 is the root, the children of node k are 2k (feature 0) and 2k + 1 (feature 1).

    Args:
        features: binary matrix (n, p) of the training rows.
        task: the deviance of the same rows.
        depth: largest depth.

    Attributes:
        split: feature of each node, -1 at leaves, shape (2 ** (depth + 1),).
    """

    def __init__(self, features: npt.ArrayLike, task: LogLikelihood, depth: int) -> None:
        self._x = np.asarray(features, dtype=np.float64)
        self._sums = np.stack([task.event.astype(np.float64), task.hazards[0]])  # (2, n)
        self.depth = depth
        self.split = np.full(2 ** (depth + 1), -1)

    def apply(self, features: npt.ArrayLike, root: int = 1) -> IntArray:
        """Leaf below `root` of each row of a binary matrix, as the number of its node, shape (n,)."""
        x = np.asarray(features)
        node = np.full(len(x), root)
        while (inner := np.flatnonzero(self.split[node] >= 0)).size:
            at = node[inner]
            node[inner] = 2 * at + (x[inner, self.split[at]] > 0)
        return node

    @property
    def cost(self) -> float:
        """Sum over leaves of -E log(E / H): the loss but for a constant."""
        return float(_cost(self._by_leaf(self.apply(self._x), slice(None)).sum(0)))

    def improve(self, node: int, features: IntArray) -> bool:
        """Give a node the best of some features, with the subtrees below it as they are.

        Returns:
            Whether the loss has decreased.
        """
        rows = np.arange(len(self._x))
        for child in (node >> level for level in range(node.bit_length() - 2, -1, -1)):
            if self.split[child // 2] < 0:
                return False
            rows = rows[self._x[rows, self.split[child // 2]] == child % 2]
        x = self._x[rows]
        absent, present = (self._by_leaf(self.apply(x, 2 * node + side), rows) for side in (0, 1))
        cost = (_cost(absent.sum(0) - x.T @ absent) + _cost(x.T @ present))[features]
        old = _cost(self._by_leaf(self.apply(x, node), rows).sum(0))
        best = int(cost.argmin())
        if cost[best] >= old - _GAIN:
            return False
        self.split[node] = features[best]
        return True

    def grow(self, features: IntArray) -> None:
        """Divide every node by the best of some features, from the root downwards."""
        for node in range(1, 2**self.depth):
            self.improve(node, features)

    def descend(self, rng: np.random.Generator) -> None:
        """Improve nodes in random order until none can be improved."""
        every = np.arange(self._x.shape[1])
        while sum(self.improve(int(node), every) for node in 1 + rng.permutation(2**self.depth - 1)):
            pass

    def _by_leaf(self, leaf: IntArray, rows: IntArray | slice) -> FloatArray:
        """Events and hazard of each row in the columns of its leaf, events first, shape (n, 2 leaves)."""
        numbers, place = np.unique(leaf, return_inverse=True)
        here = place[:, None] == np.arange(len(numbers))
        return np.hstack([here * sums[rows, None] for sums in self._sums])


def _cost(sums: FloatArray) -> FloatArray:
    """Sum over leaves of -E log(E / H), of E and H in the last dimension; 0 in a leaf without events."""
    events, hazard = np.split(sums, 2, axis=-1)
    events = np.round(events)  # differences of sums
    cost = -events * np.log(np.maximum(events, 1.0) / np.maximum(hazard, 1e-12))
    return cost.sum(-1)


def greedy(features: npt.ArrayLike, task: LogLikelihood, depth: int) -> HeapTree:
    """Every split the best one by itself, to the given depth."""
    tree = HeapTree(features, task, depth)
    tree.grow(np.arange(np.shape(features)[1]))
    return tree


def local_search(
    features: npt.ArrayLike, task: LogLikelihood, depth: int, n_starts: int = 10, seed: int = 0
) -> HeapTree:
    """The best of the local optima from the greedy tree and from `n_starts` greedy trees of random features.

    The moves are those of Optimal Trees (Bertsimas and Dunn, 2017, Machine Learning 106, 1039-1082), but for
    the removal of a split, which cannot decrease a loss without a penalty per leaf. Random starts use as many
    features as the square root of their number.
    """
    rng = np.random.default_rng(seed)
    p = np.shape(features)[1]
    found = []
    for start in range(1 + n_starts):
        tree = HeapTree(features, task, depth)
        tree.grow(rng.choice(p, round(np.sqrt(p)), replace=False) if start else np.arange(p))
        tree.descend(rng)
        found.append(tree)
    return min(found, key=lambda tree: tree.cost)


@dataclass(frozen=True)
class CTree:
    """A conditional inference tree of partykit.

    Attributes:
        nodes: of the tree, a row per node, see `sstorch.bench.baselines.models.leaf_of`.
        p: p-value of each node's test of independence, 1 at leaves, shape (n_nodes,).
        seconds: processor time of the fit in R.
    """

    nodes: pd.DataFrame
    p: FloatArray
    seconds: float

    def pruned(self, mincriterion: float, depth: int) -> pd.DataFrame:
        """The tree of a larger `mincriterion` or smaller depth: no test depends on those below it."""
        nodes = self.nodes
        level = np.zeros(len(self.p), dtype=np.int64)
        for node in np.flatnonzero(nodes["feature"] >= 0):  # a node comes before its children
            level[nodes.loc[node, ["left", "right"]].to_numpy(np.int64)] = level[node] + 1
        inner = (self.p <= 1.0 - mincriterion) & (level < depth)
        return nodes.assign(feature=nodes["feature"].where(inner, -1))


def ctree(
    tables: Mapping[str, pd.DataFrame],
    depth: int,
    mincriterion: float = 0.95,
    minsplit: int = 20,
    minbucket: int = 7,
) -> dict[str, CTree]:
    """Fit conditional inference trees in one run of R; the defaults are those of partykit.

    Args:
        tables: training rows by name: columns time, event, and numeric features.
        depth: largest depth.
        mincriterion: least 1 - p of a split, adjusted for the number of features.
        minsplit: least rows of a node that is split.
        minbucket: least rows of a leaf.

    Returns:
        Tree by name.
    """
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for key, table in tables.items():
            table.to_csv(folder / f"{key}.csv", index=False, float_format="%.17g")
        sizes = [str(size) for size in (depth, mincriterion, minsplit, minbucket)]
        command = ["Rscript", "--vanilla", str(Path(__file__).with_name("ctree.R")), name, *sizes]
        subprocess.run(command, check=True)
        return {key: _read(folder / f"{key}.nodes") for key in tables}


def _read(file: Path) -> CTree:
    table = pd.read_csv(file, float_precision="round_trip")
    return CTree(table, table["p"].to_numpy(), float(table["seconds"].iloc[0]))

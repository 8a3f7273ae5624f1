"""Interactions of two columns, in addition to their single effects."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch

from sstorch._types import FloatArray
from sstorch.checks import check_integer
from sstorch.data.coded import dense
from sstorch.exceptions import ConfigError
from sstorch.fitted.tree import FittedTree
from sstorch.reading.effects import KnownValues, known_values
from sstorch.reading.hooks import ReadableTree, fitted_tree


@dataclass(frozen=True)
class _Axis:
    """Values of a column on the grid of a pair, (A,), and shares of the rows that they represent."""

    value: npt.NDArray[np.object_] | FloatArray  # numbers or categories
    share: FloatArray  # of sum one

    @classmethod
    def of(cls, known: KnownValues, n_points: int) -> _Axis:
        """All values; of a number at most ``n_points``, middles of parts with as many rows."""
        if known.categories is not None:
            counts = np.array(known.counts)
            return cls(np.array(known.categories, dtype=object), counts / counts.sum())
        value, counts = np.unique(known.cells.astype(np.float64), return_counts=True)
        if len(value) > n_points:
            middles = (np.arange(n_points) + 0.5) / n_points
            value, counts = np.unique(
                np.quantile(known.cells.astype(np.float64), middles, method="lower"), return_counts=True
            )
        return cls(value, counts / counts.sum())


@dataclass(frozen=True)
class _Pair:
    """Grid of two columns."""

    names: tuple[str, str]  # of the columns
    axes: tuple[_Axis, _Axis]  # of the columns
    effects: FloatArray  # of each leaf, less the means along both columns, (L, A, B)

    @property
    def size(self) -> float:
        """Standard deviation of the effect, the largest among leaves."""
        first, second = (own.share for own in self.axes)
        return float(np.sqrt(np.einsum("lab,a,b->l", self.effects**2, first, second).max()))

    def table(self, tree: FittedTree) -> pd.DataFrame:
        """A row for each group and cell."""
        (first, second), n_groups = self.axes, len(self.effects)
        effect = self.effects[tree.group_numbers.argsort()].ravel()
        n_first, n_second = len(first.value), len(second.value)
        return pd.DataFrame(
            {
                "group": np.repeat(np.arange(1, n_groups + 1), n_first * n_second),
                "column": self.names[0],
                "other": self.names[1],
                "value": np.tile(np.repeat(first.value.astype(object), n_second), n_groups),
                "other value": np.tile(second.value.astype(object), n_groups * n_first),
                "effect": effect,
            }
        )


def interactions(tree: ReadableTree, X: object, n_pairs: int = 6, n_points: int = 9) -> pd.DataFrame:
    """Compute interactions of pairs of columns, the strongest first.

    Each pair is evaluated on a grid: quantiles of a number in X, with equal numbers of rows per value; all
    training categories of a categorical column, with their shares in X. Other columns are at their reference,
    as in :func:`effects`. The interaction (Cox, 1984) is the linear predictor on the grid minus row and
    column means, with mean zero along either column.

    Args:
        tree: fitted with ``Columns(interactions=...)``.
        X: rows with the training columns.
        n_pairs: maximum number of pairs, >= 1.
        n_points: maximum number of values of a number, >= 2.

    Returns:
        Columns ``cause`` with competing causes, ``group``, ``column``, ``other``, ``value``, ``other value``,
        ``effect`` (on the linear predictor, in addition to the effects of both columns), its exponential as
        ``hazard ratio``, ``time ratio`` or ``odds ratio``, depending on the family, and ``size``, the
        standard deviation of the effect, the maximum over causes and groups, which determines the order.

    Raises:
        ConfigError: the tree has no products, or a number is out of range.
        DataError: columns are missing, or have only missing values.
    """
    fitted, frame = fitted_tree(tree), tree._cleaned(X)
    n_pairs = check_integer("n_pairs", n_pairs, 1)
    known = known_values(fitted.preprocessor, frame)
    axes = {name: _Axis.of(own, check_integer("n_points", n_points, 2)) for name, own in known.items()}
    reference = {name: own.reference for name, own in known.items()}
    own_trees = {name: fitted.of_cause(name) for name in fitted.causes} if fitted.competing else {"": fitted}
    pairs = {
        cause: {pair.names: pair for pair in _pairs(own, axes, reference)} for cause, own in own_trees.items()
    }
    sizes = {names: max(own[names].size for own in pairs.values()) for names in next(iter(pairs.values()))}
    tables = []
    for names in sorted(sizes, key=lambda names: -sizes[names])[:n_pairs]:
        for cause, own_tree in own_trees.items():
            table, family = pairs[cause][names].table(own_tree), own_tree.module.family
            if family.ratio is not None and family.ancillary == "constant":
                table[family.ratio] = np.exp(table["effect"])
            table["size"] = sizes[names]
            if fitted.competing:
                table.insert(0, "cause", cause)
            tables.append(table)
    return pd.concat(tables, ignore_index=True)


def _pairs(tree: FittedTree, axes: dict[str, _Axis], reference: dict[str, float | str]) -> Iterator[_Pair]:
    """Every pair of columns that has a product."""
    features = tree.preprocessor.leaf_features
    names = {feature.columns: None for feature in features if feature.kind == "product"}
    if not names:
        raise ConfigError(
            "the tree has no products of columns: fit it with Columns(interactions='all'), or with the pairs"
        )
    leaves = tree.module.leaf_parameters()
    for first, second in names:
        one, other = axes[first], axes[second]
        shape = len(one.value), len(other.value)
        rows = pd.DataFrame(reference, index=range(shape[0] * shape[1]))
        rows[first], rows[second] = np.repeat(one.value, shape[1]), np.tile(other.value, shape[0])
        with torch.no_grad():
            x = leaves.features(dense(tree.encode(rows))).double()
            linear = (leaves.slope.double() @ x.mT).unflatten(-1, shape).cpu().numpy()
        linear = linear - np.einsum("lab,a->lb", linear, one.share)[:, None]
        linear = linear - np.einsum("lab,b->la", linear, other.share)[..., None]
        yield _Pair((first, second), (one, other), linear)

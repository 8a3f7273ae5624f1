"""Effects of columns in the groups: how far the linear predictor moves when one column alone varies."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch
from scipy.stats import norm

from sstorch._types import FloatArray
from sstorch.checks import check_columns_exist, check_integer, check_share, names_text
from sstorch.data import Preprocessor
from sstorch.data.coded import dense
from sstorch.data.columns import labels, numeric_values
from sstorch.exceptions import ConfigError, DataError
from sstorch.fitted.tree import FittedTree
from sstorch.inference import HazardCovariance
from sstorch.inference.covariance import covariance_of
from sstorch.reading.hooks import ReadableTree, fitted_tree
from sstorch.threads import torch_threads

_OTHER_TREES = (
    "sample holds trees of other columns, causes or another leaf; draw it by bootstrap_trees with the "
    "parameters and the rows of this tree"
)


class SampleOfTrees(Protocol):
    """Exchangeable trees, such as those of resamples."""

    def fitted_trees(self) -> Iterator[FittedTree]:
        """Each tree."""


@torch_threads(1)  # a second one gains nothing on small matrices
def effects(
    tree: ReadableTree,
    X: object,
    columns: Sequence[str] | None = None,
    n_points: int = 60,
    sample: SampleOfTrees | None = None,
    level: float = 0.9,
    intervals: bool = False,
) -> pd.DataFrame:
    """Compute effects: the change of the linear predictor when one column varies, per group.

    The reference is the median of every number in X (the lower middle value for an even number of rows) and
    the most frequent category of the other columns. A number takes ``n_points`` evenly spaced values between
    its minimum and maximum in X, and its median, or all its values if there are fewer. A categorical column
    takes all categories of the training rows.

    Args:
        tree: fitted.
        X: rows with the training columns.
        columns: varied columns; None for all.
        n_points: >= 2.
        sample: trees for a band, from :func:`~sstorch.soft.bootstrap_trees` with the same parameters and
            rows.
        level: share of the sample between lower and upper end at each value, or level of the confidence
            limits, in (0, 1).
        intervals: True for confidence limits from the covariance of the coefficients
            (:mod:`sstorch.inference`), for groups conditional on the gates.

    Returns:
        Columns ``cause`` with competing causes, ``group``, ``column``, ``value`` (a number or a category),
        ``effect`` (change of the linear predictor in the group), and its exponential as ``hazard ratio``,
        ``time ratio`` or ``odds ratio``, depending on the family; with a sample or ``intervals`` ``lower``
        and ``upper`` of the effect.

    Raises:
        DataError: columns are missing, or have only missing values.
        ConfigError: ``n_points`` or ``level`` is out of range; the model has no covariance; or a band of a
            sample is requested for groups with different slopes, since groups of different trees cannot be
            matched.
    """
    fitted, frame = fitted_tree(tree), tree._cleaned(X)
    covariance = covariance_of(tree) if intervals else None
    if sample is not None and covariance is not None:
        raise ConfigError("limits come from a sample or from intervals=True: give one of them")
    level = check_share(level, "level")
    varied = _Varied.of(fitted.preprocessor, frame, columns, check_integer("n_points", n_points, 2))
    trees = None if sample is None else list(sample.fitted_trees())
    hazards = {} if covariance is None else covariance.hazards
    if not fitted.competing:
        return _table(fitted, varied, trees, level, hazards.get(fitted.causes[0]))
    if trees and trees[0].causes != fitted.causes:
        raise ConfigError(_OTHER_TREES)
    tables = []
    for name in fitted.causes:
        own = None if trees is None else [each.of_cause(name) for each in trees]
        tables.append(_table(fitted.of_cause(name), varied, own, level, hazards.get(name)))
        tables[-1].insert(0, "cause", name)
    return pd.concat(tables, ignore_index=True)


def _table(
    tree: FittedTree,
    varied: _Varied,
    trees: Sequence[FittedTree] | None,
    level: float,
    hazard: HazardCovariance | None,
) -> pd.DataFrame:
    order = tree.group_numbers.argsort()
    by_leaf = varied.effects(tree)[order]
    n_leaves, family = len(by_leaf), tree.module.family
    table = pd.DataFrame(
        {
            "group": np.repeat(np.arange(1, n_leaves + 1), by_leaf.shape[1]),
            "column": np.tile(varied.column, n_leaves),
            "value": np.tile(varied.value, n_leaves),
            "effect": by_leaf.ravel(),
        }
    )
    if family.constant_ratio is not None:
        table[family.constant_ratio] = np.exp(table["effect"])
    if trees is not None:
        tail = (1 - level) / 2
        draws = _of_sample(tree, varied, trees)
        for name, share in (("lower", tail), ("upper", 1 - tail)):
            table[name] = np.tile(np.quantile(draws, share, axis=0), n_leaves)
    if hazard is not None:
        width = norm.ppf((1 + level) / 2) * varied.errors(tree, hazard)[order].ravel()
        table["lower"], table["upper"] = table["effect"] - width, table["effect"] + width
    return table


@dataclass(frozen=True)
class _Varied:
    """Rows in which one column has other values than the reference."""

    rows: pd.DataFrame  # the reference, then a row for each value of each column
    column: npt.NDArray[np.object_]  # that varies, (R,)
    value: npt.NDArray[np.object_]  # that it has, (R,)

    @classmethod
    def of(
        cls, preprocessor: Preprocessor, frame: pd.DataFrame, columns: Sequence[str] | None, n_points: int
    ) -> _Varied:
        """The rows of some columns of a tree."""
        names = preprocessor.schema.columns
        chosen = [columns] if isinstance(columns, str) else list(names if columns is None else columns)
        check_columns_exist(chosen, names)
        known = _known_values(preprocessor, frame)
        values = {name: own.span(n_points) for name, own in known.items()}
        column = np.array([name for name in chosen for _ in values[name]], dtype=object)
        value = np.array([value for name in chosen for value in values[name]], dtype=object)
        rows = {}
        for name, own in known.items():
            cells = np.array([own.reference, *np.where(column == name, value, own.reference)], dtype=object)
            rows[name] = cells.astype(np.float64) if own.categories is None else cells
        return cls(pd.DataFrame(rows), column, value)

    def effects(self, tree: FittedTree) -> FloatArray:
        """Difference of each leaf's linear predictor from that of the reference, (L, R)."""
        leaves, x = tree.module.leaf_parameters(), dense(tree.encode(self.rows))
        with torch.no_grad():
            moved = leaves.features(x[1:] - x[:1]).double()
            return (leaves.slope.double() @ moved.mT).cpu().numpy()

    def errors(self, tree: FittedTree, hazard: HazardCovariance) -> FloatArray:
        """Standard errors of :meth:`effects`, (L, R); zero at the reference, NaN if the data give none."""
        x = dense(tree.encode(self.rows))
        moved = tree.module.leaf_parameters().features(x[1:] - x[:1]).detach().cpu().double()
        out: FloatArray = np.empty((hazard.n_groups, len(moved)))
        for group, map in enumerate(hazard.by_group):
            combined = moved @ map[: moved.shape[1]]
            unseen = hazard.unseen(combined) & (moved != 0).any(-1)
            out[group] = torch.where(unseen, torch.nan, (combined @ hazard.root).norm(dim=-1)).numpy()
        errors: FloatArray = out[hazard.groups.numpy()]
        return errors


@dataclass(frozen=True)
class _KnownValues:
    """Values of a column that are there and known to a tree."""

    cells: npt.NDArray[np.object_] | FloatArray  # of the rows, (n,)
    categories: list[str] | None  # that some training row had; None of a number

    @property
    def counts(self) -> list[int]:
        """Rows with each category."""
        return [int((self.cells == category).sum()) for category in self.categories or ()]

    @property
    def reference(self) -> float | str:
        """The median, of an even number of rows the lower middle one: a value that occurs; or the mode."""
        if self.categories is None:
            return float(np.quantile(self.cells, 0.5, method="lower"))
        return self.categories[int(np.argmax(self.counts))]

    def span(self, n_points: int) -> list[float] | list[str]:
        """All values; of a number at most ``n_points`` evenly spaced ones, and the reference."""
        if self.categories is not None:
            return self.categories
        grid = np.unique(self.cells)
        if len(grid) > n_points:
            grid = np.union1d(np.linspace(grid[0], grid[-1], n_points), self.reference)
        return [float(value) for value in grid]


def _known_values(preprocessor: Preprocessor, frame: pd.DataFrame) -> dict[str, _KnownValues]:
    """Of each column of a tree."""
    categories: dict[str, list[str]] = {name: [] for name in preprocessor.schema.categories}
    for (column, category), scale in zip(preprocessor.schema.origins, preprocessor.scale_, strict=True):
        if category is not None and scale:
            categories[column].append(category)
    found = {}
    for name in preprocessor.schema.columns:
        if (known := categories.get(name)) is not None:
            words = labels(frame[name])
            found[name] = _KnownValues(words[np.isin(words, np.array(known, dtype=object))], known)
        else:
            numbers = numeric_values(frame[name], f"column {name!r}")
            found[name] = _KnownValues(numbers[~np.isnan(numbers)], None)
    if missing := [name for name, own in found.items() if not own.cells.size]:
        raise DataError(
            f"column {names_text(missing)} has no value known to the tree in any row of X, and so no "
            "reference to compare with; give rows that have one"
        )
    return found


def _of_sample(tree: FittedTree, varied: _Varied, trees: Sequence[FittedTree]) -> FloatArray:
    """Effects in the groups of each tree, all alike, (K, R)."""
    if (
        trees[0].preprocessor.schema != tree.preprocessor.schema
        or trees[0].module.family.name != tree.module.family.name
    ):
        raise ConfigError(_OTHER_TREES)
    if not all(each.shares_slopes() for each in (tree, *trees)):
        raise ConfigError(
            "groups of different trees do not correspond: there is no band where groups have slopes of their "
            "own; use a SurvivalRegression, or leave sample out"
        )
    return np.stack([varied.effects(each)[0] for each in trees])

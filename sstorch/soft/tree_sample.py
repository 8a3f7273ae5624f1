"""Samples of trees of one batch, and bands of their curves."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple, Self

import numpy as np
import numpy.typing as npt
import pandas as pd

from sstorch._types import BoolArray, FloatArray, IntArray
from sstorch.base import check_times
from sstorch.data.design_matrix import RowFeatures
from sstorch.exceptions import ConfigError
from sstorch.fitted.tree import FittedTree, Prediction
from sstorch.groups.stability import Partition
from sstorch.reading.scores import Score, to_numbers
from sstorch.soft.trained_batch import TrainedBatch


class Band(NamedTuple):
    """Quantiles of curves at each time, each of shape (n, n_times)."""

    lower: FloatArray
    median: FloatArray
    upper: FloatArray


@dataclass(frozen=True)
class TreeSample:
    """Sample of trees of one batch, for example from resamples.

    Attributes:
        batch: trained trees.
        members: split and start of each of the K trees of the sample.
        prediction: prediction rule of the trees.
        draws: number of draws of each row of positive weight for each tree, shape (K, n); None if all trees
            were trained on the same rows.
    """

    batch: TrainedBatch
    members: tuple[tuple[int, int], ...]
    prediction: Prediction
    draws: IntArray | None = None

    @classmethod
    def of_splits(cls, batch: TrainedBatch, prediction: Prediction, draws: IntArray | None = None) -> Self:
        """The tree of the best start of every split; ``draws`` as in the attributes."""
        splits = range(len(batch.preprocessors))
        return cls(batch, tuple((split, batch.best_start(split)) for split in splits), prediction, draws)

    def __len__(self) -> int:
        return len(self.members)

    def survival(self, X: object, times: npt.ArrayLike) -> FloatArray:
        """Survival functions of all trees, shape (K, n, n_times), times in original units."""
        grid = check_times(times)
        curves = np.empty((0, 0, 0))
        for number, (tree, x) in enumerate(self.trees(X)):
            if number == 0:
                curves = np.empty((len(self), len(x), len(grid)))
            curves[number] = tree.curves(x, grid)
        return curves

    def apply(self, X: object) -> IntArray:
        """Leaf of each row in all trees, 1 .. L from left to right, shape (K, n)."""
        return np.stack([tree.apply(x) for tree, x in self.trees(X)])

    def trees(self, X: object) -> Iterator[tuple[FittedTree, RowFeatures]]:
        """Each tree with its encoded rows, (n, p)."""
        frame = self.batch.preprocessors[0].schema.clean(X)
        encoded: dict[int, RowFeatures] = {}
        for split, start in self.members:
            tree = self.batch.fitted(split, start, prediction=self.prediction)
            if split not in encoded:
                encoded = {split: tree.encode(frame)}
            yield tree, encoded[split]

    def fitted_trees(self) -> Iterator[FittedTree]:
        """Each tree."""
        return (self.batch.fitted(split, start, prediction=self.prediction) for split, start in self.members)

    def band(self, X: object, times: npt.ArrayLike, level: float = 0.9) -> Band:
        """Compute a pointwise percentile band of the curves at times (n_times,) in original units.

        Args:
            X: rows with the training columns.
            times: times of the band.
            level: share of the trees between lower and upper curve at each time, in (0, 1).

        Raises:
            ConfigError: ``level`` is out of range.
        """
        if not 0 < level < 1:
            raise ConfigError(f"level must be in (0, 1), got {level!r}")
        tail = (1 - level) / 2
        return Band(*np.quantile(self.survival(X, times), [tail, 0.5, 1 - tail], axis=0))


def partition(tree: FittedTree, frame: pd.DataFrame) -> Partition:
    """Groups that a tree makes of rows that were read, and the columns of its gates."""
    topology, leaf = tree.module.topology, tree.leaf(tree.encode(frame))

    def columns(node: int) -> BoolArray:
        score = Score.of_gate(tree.preprocessor, to_numbers(tree.module.gate(node).weight))
        return (score.effect_by_column(tree.preprocessor.schema) != 0).to_numpy()

    return Partition(tree.group_numbers[leaf], leaf, topology.depth, tuple(topology.branches), columns)

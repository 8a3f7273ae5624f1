"""Trees of bootstrap resamples, and bands of their curves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from sstorch._types import FloatArray, IntArray
from sstorch.base import check_times
from sstorch.checks import check_share
from sstorch.data import Schema
from sstorch.fitted import FittedTree
from sstorch.groups.stability import resamples
from sstorch.soft.batch import train_batch, training_rows
from sstorch.soft.estimator import SoftEstimator


class Band(NamedTuple):
    """Quantiles of curves at each time, each of shape (n, n_times)."""

    lower: FloatArray
    median: FloatArray
    upper: FloatArray


@dataclass(frozen=True)
class TreeSample:
    """Sample of K trees with one schema, for example from resamples."""

    trees: Sequence[FittedTree]

    def __len__(self) -> int:
        return len(self.trees)

    def survival(self, X: object, times: npt.ArrayLike) -> FloatArray:
        """Survival functions of all trees, shape (K, n, n_times), times in original units."""
        grid, frame = check_times(times), self.trees[0].preprocessor.schema.clean(X)
        curves = np.empty((len(self), len(frame), len(grid)))
        for number, tree in enumerate(self.trees):
            curves[number] = tree.curves(tree.encode(frame), grid)
        return curves

    def apply(self, X: object) -> IntArray:
        """Leaf of each row in all trees, 1 .. L from left to right, shape (K, n)."""
        frame = self.trees[0].preprocessor.schema.clean(X)
        return np.stack([tree.apply(tree.encode(frame)) for tree in self.trees])

    def band(self, X: object, times: npt.ArrayLike, level: float = 0.9) -> Band:
        """Compute a pointwise percentile band of the curves at times (n_times,) in original units.

        Args:
            X: rows with the training columns.
            times: times of the band.
            level: share of the trees between lower and upper curve at each time, in (0, 1).

        Raises:
            ConfigError: ``level`` is out of range.
        """
        tail = (1 - check_share(level, "level")) / 2
        return Band(*np.quantile(self.survival(X, times), [tail, 0.5, 1 - tail], axis=0))


def bootstrap_trees(
    estimator: SoftEstimator,
    X: object,
    y: object,
    n_resamples: int = 200,
    sample_weight: object = None,
) -> TreeSample:
    """Train trees on bootstrap resamples as one batch.

    The weight of a row is the number of draws of the row or its subject. Preprocessing, starts and the choice
    of the start are repeated in each resample. Imputation, scaling and knots use each distinct drawn row
    once. A band of the sample shows the sampling variation of the fitted curve, including training and
    starts, but not the bias of penalties or leaf family.

    ``estimator`` sets the parameters and is not fitted; ``n_resamples`` is K; rows, outcomes and weights are
    as in :meth:`~sstorch.SoftSurvivalTree.fit`.

    Raises:
        DataError: the data are invalid, or a resample has no event.
        ConfigError: a parameter has an invalid value.

    References:
        Efron (1981), "Censored data and the bootstrap", Journal of the American Statistical Association 76,
        312-319.

    >>> from sstorch import SurvivalRegression, load_dataset
    >>> data = load_dataset("gbsg2")
    >>> sample = bootstrap_trees(SurvivalRegression(), data.frame, (data.time, data.event), n_resamples=20)
    >>> band = sample.band(data.frame[:1], times=[365.0, 1825.0])
    >>> bool((band.lower < band.median).all() and (band.median < band.upper).all())
    True
    """
    data, settings = training_rows(X, y, sample_weight), estimator._batch_settings()
    splits, _ = resamples(data, n_resamples, settings.seed)
    batch = train_batch(splits, settings, Schema.of(data.frame))
    return TreeSample(tuple(batch.best_trees(settings.prediction)))

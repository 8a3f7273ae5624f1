"""How sure a tree is: its curves over resamples of the rows, or over its starts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from sstorch._types import FloatArray
from sstorch.base import check_times
from sstorch.checks import check_integer
from sstorch.data import Schema
from sstorch.data.columns import clean_features
from sstorch.exceptions import ConfigError, DataError
from sstorch.nn import Prediction
from sstorch.soft.batch import TrainedBatch, train_batch
from sstorch.soft.tree import SoftSurvivalTree, training_rows


class Band(NamedTuple):
    """Quantiles of curves at each time, each of shape (n, n_times)."""

    lower: FloatArray
    median: FloatArray
    upper: FloatArray


@dataclass(frozen=True)
class TreeSample:
    """Trees of one batch that stand for each other.

    Attributes:
        batch: trained trees.
        members: split and start of each of the K trees of the sample.
        prediction: how they predict.
    """

    batch: TrainedBatch
    members: tuple[tuple[int, int], ...]
    prediction: Prediction

    def __len__(self) -> int:
        return len(self.members)

    def survival(self, X: object, times: npt.ArrayLike) -> FloatArray:
        """Survival functions of all trees, shape (K, n, n_times), times in original units."""
        frame = clean_features(self.batch.preprocessors[0].schema.frame_of(X))
        grid = check_times(times)
        curves, encoded = np.empty((len(self), len(frame), len(grid))), {}
        for number, (split, start) in enumerate(self.members):
            tree = self.batch.fitted(split, start, prediction=self.prediction)
            if split not in encoded:
                encoded = {split: tree.encode(frame)}
            curves[number] = tree.curves(encoded[split], grid)
        return curves

    def band(self, X: object, times: npt.ArrayLike, level: float = 0.9) -> Band:
        """Pointwise quantiles of the curves, a percentile band.

        Args:
            X: rows with the training columns.
            times: (n_times,), original units.
            level: share of the trees between lower and upper curve at each time, in (0, 1).

        Raises:
            ConfigError: ``level`` is out of range.
        """
        if not 0 < level < 1:
            raise ConfigError(f"level must be in (0, 1), got {level!r}")
        tail = (1 - level) / 2
        return Band(*np.quantile(self.survival(X, times), [tail, 0.5, 1 - tail], axis=0))

    def spread(self, X: object, times: npt.ArrayLike) -> FloatArray:
        """Standard deviation of the curves over the trees, shape (n, n_times).

        Raises:
            ConfigError: there is one tree alone.
        """
        if len(self) < 2:
            raise ConfigError("the spread of one tree alone is not defined: use more resamples or starts")
        return np.asarray(self.survival(X, times).std(axis=0, ddof=1), dtype=np.float64)


def bootstrap_trees(
    estimator: SoftSurvivalTree,
    X: object,
    y: object,
    n_resamples: int = 200,
    sample_weight: object = None,
    entry: object = None,
) -> TreeSample:
    """Train the tree on resamples of the rows, drawn with replacement, all as one batch.

    How often a row is drawn is its weight. Everything is done anew on each resample: preprocessing, starts
    and the choice of the start. What is imputed, scaled and where knots are comes from the different rows
    that were drawn, each counted once. So a band of the sample tells how far the fitted curve would move with
    other rows of the same population, by training and starts too, and nothing of the bias of penalties or
    leaf.

    ``estimator`` has the parameters of the trees and is not fitted itself; ``n_resamples`` is K; rows,
    targets, weights and entry times are those of :meth:`SoftSurvivalTree.fit`.

    Raises:
        DataError: the data cannot be used, or hold so few events that a resample has none.
        ConfigError: a parameter has a value that does not exist.

    References:
        Efron (1981), "Censored data and the bootstrap", Journal of the American Statistical Association 76,
        312-319.

    >>> from sstorch import load_dataset
    >>> data = load_dataset("gbsg2")
    >>> tree = SoftSurvivalTree(depth=0, n_starts=1, trainer="joint")
    >>> sample = bootstrap_trees(tree, data.frame, (data.time, data.event), n_resamples=20)
    >>> band = sample.band(data.frame[:1], times=[365.0, 1825.0])
    >>> bool((band.lower < band.median).all() and (band.median < band.upper).all())
    True
    """
    settings = estimator.settings()
    count = check_integer("n_resamples", n_resamples, 1)
    data = training_rows(X, y, sample_weight=sample_weight, entry=entry)
    draws = np.random.default_rng((settings.seed, count))
    shares = np.full(len(data), 1 / len(data))
    splits = [data.reweighted(draws.multinomial(len(data), shares)) for _ in range(count)]
    if not all(split.event.any() for split in splits):
        raise DataError(
            f"a resample of {len(data)} rows with {data.n_events} events has none: a bootstrap needs more "
            "events"
        )
    batch = train_batch(splits, settings, Schema.of(data.frame))
    members = tuple((split, batch.best_start(split)) for split in range(count))
    return TreeSample(batch, members, estimator.prediction)


def start_trees(
    estimator: SoftSurvivalTree, X: object, y: object, sample_weight: object = None, entry: object = None
) -> TreeSample:
    """Train the tree and keep all its starts, to see how much the curves depend on where training began.

    Starts that a race has dropped, or that have no finite objective, are left out. ``estimator`` has the
    parameters of the trees and is not fitted itself; rows, targets, weights and entry times are those of
    :meth:`SoftSurvivalTree.fit`.

    Raises:
        DataError: the data cannot be used.
        ConfigError: a parameter has a value that does not exist.
        TrainingError: no start has a finite objective.
    """
    data = training_rows(X, y, sample_weight=sample_weight, entry=entry)
    batch = train_batch([data], estimator.settings())
    batch.best_start(0)
    finite, dropped = batch.criterion.isfinite().tolist(), batch.history.dropped()
    members = tuple((0, start) for start, fine in enumerate(finite) if fine and start not in dropped)
    return TreeSample(batch, members, estimator.prediction)

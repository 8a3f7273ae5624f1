"""Accuracy against disparity of soft trees over the strength of their fairness penalty."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import pandas as pd
from sklearn.base import clone

from sstorch._types import IntArray
from sstorch.bench.cross_validation import make_folds
from sstorch.bench.models import fits_of
from sstorch.bench.scores import known_groups, score_fits, wide
from sstorch.data import Schema, SurvivalData
from sstorch.data.folds import split
from sstorch.exceptions import ConfigError
from sstorch.metrics.registry import names_of
from sstorch.soft.batch import TrainedBatch, check_causes, train_batch
from sstorch.soft.estimator import SoftEstimator

ACCURACY = tuple(names_of("event", "accuracy"))


@dataclass(frozen=True)
class FairnessPath:
    """Result of :func:`fairness_path`.

    Attributes:
        scores: one row per rho, fold, start and part (``train`` or ``test``): accuracy, likelihood,
            disparities, scores of the groups, the objective, and ``chosen``, true for the lowest objective.
        batch: all trained trees; split k is fold k.
        folds: fold of each row of `data`, shape (n,).
        data: all rows of positive weight.
        estimator: parameters of the trees.
    """

    scores: pd.DataFrame
    batch: TrainedBatch
    folds: IntArray
    data: SurvivalData
    estimator: SoftEstimator

    def tree(self, rho: float, fold: int, start: int | None = None) -> SoftEstimator:
        """Return the tree of a rho, fold and start; None for the start with the lowest training objective."""
        k = [each.rho for each in self.batch.coefficients].index(rho)
        start = self.batch.best_start(fold, k) if start is None else start
        tree: SoftEstimator = clone(self.estimator)
        return tree._adopt(self.batch, self.part(fold, "train"), fold, start, k)

    def part(self, fold: int, part: str) -> SurvivalData:
        """Rows of the ``train`` or ``test`` part of a fold."""
        return split(self.data, self.folds)[fold].parts[part]

    def table(self, chosen: bool = False) -> pd.DataFrame:
        """Mean of every score by part and rho, over all starts or the chosen one of each fold.

        Scores that are not defined in a fold, since a group is absent there, are excluded from the mean.
        """
        runs = self.scores[self.scores["chosen"]] if chosen else self.scores
        numbers = runs.drop(columns=["fold", "start", "chosen"])
        return numbers.groupby(["part", "rho"], sort=True).mean()


def fairness_path(
    estimator: SoftEstimator,
    data: SurvivalData,
    rhos: Sequence[float],
    n_folds: int = 5,
    seed: int = 0,
) -> FairnessPath:
    """Cross-validate a tree at every strength of its fairness penalty, all as one batch.

    Every rho has the same folds, and its starts begin from the same trees.

    Args:
        estimator: parameters of the trees, with ``penalties.fairness``; ``penalties.rho`` is not read.
        data: all rows, with their groups.
        rhos: coefficients, >= 0, different.
        n_folds: folds, stratified by event.
        seed: of the folds.

    Raises:
        ConfigError: no penalty is chosen, the groups are unknown, or a rho is out of range.
        DataError: a fold cannot be scored, or its training rows are all of one group.
    """
    data = data.counted()
    known_groups(data)
    if estimator.penalties.fairness is None:
        raise ConfigError("a fairness path needs a penalty: choose fairness='l2' or 'l2_relaxed'")
    values = [clone(estimator).set_params(penalties__rho=rho)._batch_settings().rho for rho in rhos]
    if not values or len(set(values)) < len(values):
        raise ConfigError(f"`rhos` must be different numbers, at least one, got {list(rhos)!r}")
    settings = estimator._batch_settings()
    check_causes(data, settings)
    folds = make_folds(data, n_folds, seed)
    strengths = [replace(settings.coefficients, rho=rho) for rho in values]
    parts, names = split(data, folds), dict.fromkeys(("train", "test"), ACCURACY)
    batch = train_batch([part.train for part in parts], settings, Schema.of(data.frame), strengths)
    tables = {
        rho: wide(score_fits(fits_of(batch, n_folds, settings, k), data, parts, names))
        for k, rho in enumerate(values)
    }
    table = pd.concat(tables, names=["rho"]).reset_index("rho").reset_index(drop=True)
    return FairnessPath(table, batch, folds, data, estimator)

"""Cross-validation of a soft survival tree: folds, starts and the final model in one batch."""

from __future__ import annotations

import os
import warnings
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd
from sklearn.base import clone

from sstorch.data import Schema, SurvivalData, stratified_folds
from sstorch.estimators import SoftSurvivalTree, TrainedBatch, train_batch
from sstorch.evaluation.fairness import DISPARITIES, score_fairness
from sstorch.evaluation.scores import SCORES, check_scorable, score_tree
from sstorch.exceptions import DataError, DataWarning
from sstorch.monitoring import Callback
from sstorch.optim import Checkpoint


@dataclass(frozen=True)
class CrossValidation:
    """Result of :func:`cross_validate`.

    Attributes:
        scores: one row per fold, start and part (``train`` or ``test``): the scores, those of
            :func:`~sstorch.evaluation.score_fairness` if sensitive groups are known, the training objective,
            ``chosen``, true for the start with the lowest training objective of its fold, and ``finished``,
            false for starts that were dropped from a race.
        trees: the chosen tree of each fold.
        model: the tree trained on all rows, chosen among its own starts alike; its ``metrics_`` are the means
            of the chosen trees' scores on the test rows of the folds.
        batch: all trained trees; splits 0 .. n_folds - 1 are the folds, the last is all rows.
        folds: fold of each row, shape (n,).
    """

    scores: pd.DataFrame
    trees: list[SoftSurvivalTree]
    model: SoftSurvivalTree
    batch: TrainedBatch
    folds: npt.NDArray[np.int64]

    @property
    def split_names(self) -> list[str]:
        """Names of the splits of the batch: ``fold-0`` ... and ``all-rows``."""
        return split_names(len(self.trees))

    def table(self) -> pd.DataFrame:
        """Mean and standard deviation of each score, over all starts and over the chosen one of each fold.

        Of a race, over the starts that were trained to the end.
        """
        finished = self.scores[self.scores["finished"]]
        name = "all starts" if len(finished) == len(self.scores) else "finished starts"
        runs = finished.assign(trees=name)
        chosen = self.scores[self.scores["chosen"]].assign(trees="chosen start")
        grouped = pd.concat([runs, chosen]).groupby(["part", "trees"])[self.score_names]
        return grouped.agg(["mean", "std"])

    @property
    def score_names(self) -> list[str]:
        """What the table holds: the scores, and disparities if sensitive groups are known."""
        return [*SCORES, *(name for name in DISPARITIES if name in self.scores)]


def split_names(n_folds: int) -> list[str]:
    """Names of the splits of a cross-validation, in the order of its batch."""
    return [*(f"fold-{fold}" for fold in range(n_folds)), "all-rows"]


def make_folds(data: SurvivalData, n_folds: int, seed: int) -> npt.NDArray[np.int64]:
    """Folds stratified by event, every one of which can be trained on and scored.

    Raises:
        DataError: too few rows or events for so many folds.
        ConfigError: fewer than two folds.
    """
    folds = stratified_folds(data.event, n_folds, seed)
    for fold in range(n_folds):
        try:
            check_scorable(data.subset(folds == fold), data.subset(folds != fold))
        except DataError as error:
            raise DataError(
                f"fold {fold} of {n_folds} cannot be scored, choose fewer folds: {error}"
            ) from error
    return folds


def cross_validate(
    estimator: SoftSurvivalTree,
    data: SurvivalData,
    n_folds: int = 5,
    seed: int = 0,
    callbacks: Sequence[Callback] = (),
    checkpoint: Checkpoint | str | os.PathLike[str] | None = None,
) -> CrossValidation:
    """Train and score ``n_starts`` trees on each fold, and train the final model, as one batch.

    All statistics of preprocessing and all training choices come from the training rows of a fold; only the
    vocabulary of the categorical columns is read from the whole table.

    Args:
        estimator: parameters of the trees; not fitted.
        data: all rows.
        n_folds: folds, stratified by event.
        seed: of the folds; the trees' own is the estimator's ``random_state``.
        callbacks: told of every step of the training.
        checkpoint: file that is written after every pass; if it is there already, training goes on from it.
            See :class:`~sstorch.optim.Checkpoint`.

    Raises:
        DataError: too few rows or events for so many folds; raised before any training.
        ConfigError: a parameter has a value that does not exist, or the checkpoint belongs to another run.
        FormatError: the checkpoint is truncated or altered.
    """
    folds = make_folds(data, n_folds, seed)
    if data.entry.any():
        warnings.warn(
            "entry times are in the likelihood, not in concordance and Brier scores, which take every row as "
            "observed from time zero",
            DataWarning,
            stacklevel=2,
        )
    splits = [data.subset(folds != fold) for fold in range(n_folds)] + [data]
    batch = train_batch(splits, estimator.settings(), Schema.of(data.frame), callbacks, checkpoint)
    rows, trees = [], []
    dropped = batch.history.dropped()
    for fold in range(n_folds):
        parts = {"train": splits[fold], "test": data.subset(folds == fold)}
        best = batch.best_start(fold)
        for start in range(batch.n_starts):
            tree = clone(estimator).adopt(batch, splits[fold], fold, start)
            if start == best:
                trees.append(tree)
            for part, part_rows in parts.items():
                about = {"fold": fold, "start": start, "part": part, "chosen": start == best}
                about["finished"] = batch.position(fold, start) not in dropped
                scores = score_tree(tree, part_rows, splits[fold])
                if data.groups is not None:
                    scores |= score_fairness(tree, part_rows, splits[fold])
                rows.append({**about, "objective": tree.objective_, **scores})
    model = clone(estimator).adopt(batch, data, n_folds, batch.best_start(n_folds))
    table = pd.DataFrame(rows)
    told = table[table["chosen"] & (table["part"] == "test")]
    model.metrics_ = {f"cross_validated_{score}": float(told[score].mean()) for score in SCORES}
    return CrossValidation(table, trees, model, batch, folds)

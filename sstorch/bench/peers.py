"""The plain models that a run is judged beside, on the same folds: Kaplan-Meier, one leaf, Cox, a forest."""

from __future__ import annotations

import importlib.util
import warnings
from collections.abc import Iterator, Sequence

import numpy as np
import pandas as pd
from sklearn.base import clone

from sstorch._types import IntArray
from sstorch.bench.baselines import make_baseline
from sstorch.bench.baselines.base import Baseline, KaplanMeierBaseline
from sstorch.bench.baselines.ridge_cox import RidgeCox
from sstorch.bench.cross_validation import CrossValidation
from sstorch.bench.scores import LIKELIHOOD, Predictor, score_predictor
from sstorch.data import Schema, SurvivalData
from sstorch.exceptions import DataWarning, TrainingError
from sstorch.metrics.registry import names_of
from sstorch.soft import SoftSurvivalTree, train_batch

# Of the scores of a study those that say most of one run, the likelihood last.
SCORES = (*names_of("event", "peers"), LIKELIHOOD)
TREE, KAPLAN_MEIER, ONE_LEAF, COX, FOREST = "tree", "Kaplan-Meier", "one leaf", "Cox", "random forest"
# Rows above which a forest takes minutes, and its curves gigabytes.
MOST_FOREST_ROWS = 5_000


def peers_of(data: SurvivalData, estimator: SoftSurvivalTree, forest: bool = False) -> list[str]:
    """Names of the models that a tree can be set beside.

    Args:
        data: rows. With weights or entry times, which baselines do not take, one leaf alone is left.
        estimator: of the tree; one leaf is the same with depth 0.
        forest: whether a random forest is one, where scikit-survival is installed and rows are 5 000 at most.
    """
    plain = not data.entry.any() and not np.ptp(data.sample_weight)
    names = [KAPLAN_MEIER] if plain else []
    names += [ONE_LEAF] if estimator.depth else []
    names += [COX] if plain else []
    small = len(data) <= MOST_FOREST_ROWS
    if forest and plain and small and importlib.util.find_spec("sksurv") is not None:
        names.append(FOREST)
    return names


def score_peers(
    names: Sequence[str], estimator: SoftSurvivalTree, data: SurvivalData, folds: IntArray
) -> pd.DataFrame:
    """Scores of some models on the rows that each was not trained on.

    Args:
        names: of the models, :func:`peers_of`.
        estimator: of the tree that they are set beside.
        data: all rows.
        folds: fold of each row, (n,).

    Returns:
        Columns ``model``, ``fold`` and ``SCORES``; nan where a score is not defined, such as the likelihood
        of step functions. A model that cannot be fitted outside some fold has no row there.
    """
    rows = []
    for name in names:
        for fold, predictor in _fits(name, estimator, data, folds):
            rows.append(score_row(name, fold, predictor, data, folds))
    return pd.DataFrame(rows, columns=["model", "fold", *SCORES])


def score_row(
    name: str, fold: int, predictor: Predictor, data: SurvivalData, folds: IntArray
) -> dict[str, object]:
    """The row of a model that was trained outside a fold; see :func:`score_peers`."""
    rows, train = data.subset(folds == fold), data.subset(folds != fold)
    found = score_predictor(predictor, rows, train, names=SCORES[:-1])
    return {"model": name, "fold": fold, **{score: found[score].value for score in SCORES}}


def _fits(
    name: str, estimator: SoftSurvivalTree, data: SurvivalData, folds: IntArray
) -> Iterator[tuple[int, Predictor]]:
    """A model fitted outside each fold."""
    schema, n_folds = Schema.of(data.frame), int(folds.max()) + 1
    splits = [data.subset(folds != fold) for fold in range(n_folds)]
    if name == ONE_LEAF:
        leaf = clone(estimator).set_params(depth=0, n_starts=1, fairness=None, rho=0.0)
        batch = train_batch(splits, leaf.settings(), schema)
        yield from ((fold, clone(leaf).adopt(batch, splits[fold], fold, 0)) for fold in range(n_folds))
        return
    baselines: dict[str, Baseline] = {KAPLAN_MEIER: KaplanMeierBaseline(), COX: RidgeCox()}
    baseline = baselines[name] if name in baselines else make_baseline("rsf")
    for fold, train in enumerate(splits):
        try:
            yield fold, baseline.fit(train, schema, seed=0)
        except TrainingError as error:
            warnings.warn(
                f"{name} cannot be fitted outside fold {fold} and is scored on the others: {error}",
                DataWarning,
                stacklevel=4,
            )


def score_run(result: CrossValidation, estimator: SoftSurvivalTree, data: SurvivalData) -> pd.DataFrame:
    """Scores of plain models and, last, of the chosen trees of a run; see :func:`score_peers`.

    Args:
        result: of the run.
        estimator: its parameters.
        data: all rows.
    """
    peers = score_peers(peers_of(data, estimator), estimator, data, result.folds)
    trees = [score_row(TREE, fold, tree, data, result.folds) for fold, tree in enumerate(result.trees)]
    return pd.concat([peers, pd.DataFrame(trees)], ignore_index=True)


def peer_table(scores: pd.DataFrame) -> pd.DataFrame:
    """Mean over folds of each score, by model, in the order of the rows, with the number of ``folds``."""
    grouped = scores.groupby("model", sort=False)
    return grouped[list(SCORES)].mean().assign(folds=grouped.size())

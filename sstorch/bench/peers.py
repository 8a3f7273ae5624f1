"""Reference models scored on the same folds as a run: nonparametric, one leaf, regressions, a forest."""

from __future__ import annotations

import importlib.util
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial

import numpy as np
import pandas as pd

from sstorch._types import IntArray
from sstorch.bench.baselines import make_baseline
from sstorch.bench.baselines.base import Baseline, KaplanMeierBaseline
from sstorch.bench.baselines.competing import model_for
from sstorch.bench.baselines.ridge_cox import RidgeCox
from sstorch.bench.cross_validation import CrossValidation
from sstorch.bench.scores import LIKELIHOOD, Predictor, score_predictor, scores_of
from sstorch.bench.study_model import EncodedRows, EncodedTree
from sstorch.data import Fold, Schema, SurvivalData
from sstorch.data.folds import split, train_outside_score_inside
from sstorch.exceptions import DataWarning, TrainingError
from sstorch.fitted import FittedTree
from sstorch.metrics.incidence_evaluation import PredictsIncidence
from sstorch.metrics.registry import names_of
from sstorch.optim.checkpoint import Checkpoint, kept
from sstorch.progress import report, silenced
from sstorch.soft import train_batch
from sstorch.soft.estimator import SoftEstimator

# Of the scores of a study those that describe one run best, the likelihood last.
SCORES = (*names_of("event", "peers"), LIKELIHOOD)
TREE, KAPLAN_MEIER, ONE_LEAF, COX, FOREST = "tree", "Kaplan-Meier", "one leaf", "Cox", "random forest"
AALEN_JOHANSEN, CAUSE_COX = "Aalen-Johansen", "cause-specific Cox"
# One estimate for all rows: a reference, never the best model.
NULL_MODELS = KAPLAN_MEIER, AALEN_JOHANSEN
# Rows above which a forest takes minutes, and its curves gigabytes.
MOST_FOREST_ROWS = 5_000


def peers_of(data: SurvivalData, estimator: SoftEstimator) -> list[str]:
    """Names of the models that a tree is compared with.

    With competing causes Aalen-Johansen and cause-specific Cox regressions take the place of Kaplan-Meier and
    Cox. Models that do not support entry times or weights are excluded if any; a random forest also
    without scikit-survival and above 5,000 rows. One leaf is the same tree with depth 0.
    """
    plain, even = not data.entry.any(), not np.ptp(data.sample_weight)
    leaf = [ONE_LEAF] if estimator._batch_settings().depth else []
    if data.causes is not None:
        return [AALEN_JOHANSEN, *leaf, CAUSE_COX]
    names = [KAPLAN_MEIER, *leaf, COX]
    small = len(data) <= MOST_FOREST_ROWS
    if plain and even and small and importlib.util.find_spec("sksurv") is not None:
        names.append(FOREST)
    return names


def score_peers(
    names: Sequence[str],
    estimator: SoftEstimator,
    data: SurvivalData,
    folds: IntArray,
    checkpoint: Checkpoint | None = None,
    regressions: Sequence[FittedTree] = (),
) -> pd.DataFrame:
    """Scores of some models on the test rows of each fold, kept in the checkpoint of the run.

    Args:
        names: of the models, :func:`peers_of`.
        estimator: of the tree that they are compared with.
        data: all rows.
        folds: fold of each row, (n,).
        checkpoint: of the run, held.
        regressions: one leaf of each fold; trained here if empty.

    Returns:
        Columns ``model``, ``fold`` and the scores of the outcome; nan if a score is not defined, such as the
        likelihood of step functions. A model that cannot be fitted outside some fold has no row there.
    """
    parts, schema, rows = split(data, folds), Schema.of(data.frame), list[dict[str, object]]()

    def scored(name: str) -> list[dict[str, object]]:
        train = partial(_fits, name, estimator, schema=schema, regressions=regressions)
        with silenced():
            return list(train_outside_score_inside(parts, train, partial(score_row, name)))

    for number, name in enumerate(names):
        report("reference models", number, len(names))
        rows += kept(checkpoint, f"reference models/{name}", partial(scored, name))
    return pd.DataFrame(rows, columns=["model", "fold", *scores_of(data, SCORES)])


def score_row(name: str, fold: Fold, predictor: Predictor | PredictsIncidence) -> dict[str, object]:
    """The row of a model that was trained outside a fold; see :func:`score_peers`."""
    found = score_predictor(predictor, fold.test, fold.train, names=SCORES[:-1])
    scores = {score: found[score].value for score in scores_of(fold.test, SCORES)}
    return {"model": name, "fold": fold.number, **scores}


def _fits(
    name: str,
    estimator: SoftEstimator,
    splits: list[SurvivalData],
    schema: Schema,
    regressions: Sequence[FittedTree],
) -> Iterator[tuple[int, Predictor | PredictsIncidence]]:
    """A model fitted to each training part."""
    if name == ONE_LEAF:
        trees = regressions
        if not trees:
            leaf = estimator._batch_settings()
            leaf = replace(leaf, depth=0, n_starts=1, fairness=None, rho=0.0, teacher=None)
            batch = train_batch(splits, leaf, schema)
            trees = [batch.fitted(fold, 0) for fold in range(len(splits))]
        yield from ((fold, EncodedTree(tree, EncodedRows(tree.encode))) for fold, tree in enumerate(trees))
        return
    baselines: dict[str, Baseline] = {COX: RidgeCox(), CAUSE_COX: RidgeCox()}
    baselines |= dict.fromkeys(NULL_MODELS, KaplanMeierBaseline())
    baseline = baselines[name] if name in baselines else make_baseline("rsf")
    for fold, train in enumerate(splits):
        try:
            yield fold, model_for(baseline, train).fit(train, schema, 0)
        except TrainingError as error:
            warnings.warn(
                f"{name} could not be fitted outside fold {fold} and is scored on the others: {error}",
                DataWarning,
                stacklevel=4,
            )


def score_run(
    result: CrossValidation,
    estimator: SoftEstimator,
    data: SurvivalData,
    checkpoint: Checkpoint | None = None,
) -> pd.DataFrame:
    """Scores of reference models and, last, of the chosen trees of a run; see :func:`score_peers`."""
    batch, data = result.batch, data.counted()
    trained = [batch.regression(fold) for fold in range(len(result.trees))] if batch.regressions else []
    peers = score_peers(peers_of(data, estimator), estimator, data, result.folds, checkpoint, trained)
    parts = split(data, result.folds)
    trees = [score_row(TREE, fold, tree) for fold, tree in zip(parts, result.trees, strict=True)]
    return pd.concat([peers, pd.DataFrame(trees)], ignore_index=True)


def peer_table(scores: pd.DataFrame) -> pd.DataFrame:
    """Mean over folds of each score, by model, in the order of the rows, with the number of ``folds``."""
    grouped = scores.groupby("model", sort=False)
    names = [name for name in scores if name not in ("model", "fold")]
    return grouped[names].mean().assign(folds=grouped.size())

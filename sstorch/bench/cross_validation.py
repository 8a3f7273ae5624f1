"""Cross-validation of soft trees, and of their accuracy against disparity over fairness penalties."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from sklearn.base import clone

from sstorch import metrics
from sstorch._types import IntArray
from sstorch.bench.scores import (
    DISPARITIES,
    GROUP_SCORES,
    SCORES,
    agreement_of_folds,
    check_scorable,
    known_groups,
    score_fairness,
    score_groups,
    score_tree,
)
from sstorch.data import Schema, SurvivalData, stratified_folds
from sstorch.data.time_unit import round_horizons
from sstorch.exceptions import ConfigError, DataError, DataWarning
from sstorch.metrics.registry import METRICS, names_of
from sstorch.monitoring import Callback
from sstorch.optim import Checkpoint
from sstorch.soft import GroupValidation, SoftSurvivalTree, TrainedBatch, TreeSample, train_batch
from sstorch.soft.batch import with_heats
from sstorch.soft.group_validation import held_out_groups

ACCURACY = tuple(names_of("event", "accuracy"))


@dataclass(frozen=True)
class CrossValidation:
    """Result of :func:`cross_validate`.

    Attributes:
        scores: one row per fold, start and part (``train`` or ``test``): the scores, those of the groups of
            trees with gates (``GROUP_SCORES``; ``ari`` is with the chosen trees of the other folds, on all
            rows), those of :func:`~sstorch.bench.score_fairness` if sensitive groups are
            known, the training objective, ``chosen``, true for the start with the lowest training objective
            of its fold, and ``finished``, false for starts that were dropped from a race.
        trees: the chosen tree of each fold.
        model: the tree trained on all rows, chosen among its own starts alike; its ``metrics_`` are the means
            of the chosen trees' scores on the test rows of the folds, its ``group_validation_`` is that of
            their groups.
        batch: all trained trees; splits 0 .. n_folds - 1 are the folds, the last is all rows.
        folds: fold of each row, shape (n,).
    """

    scores: pd.DataFrame
    trees: list[SoftSurvivalTree]
    model: SoftSurvivalTree
    batch: TrainedBatch
    folds: IntArray

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

    def held_out(self, data: SurvivalData) -> pd.DataFrame:
        """What the chosen tree of each fold predicts for the rows of the fold.

        Args:
            data: all rows.

        Returns:
            A row for each row: ``row`` from 0, ``fold``, ``leaf`` in the tree of the fold, and ``S(t)`` at
            round times near the quartiles of the event times.
        """
        times = round_horizons(np.unique(data.time[data.event]), self.model.time_unit_)
        parts = []
        for fold, tree in enumerate(self.trees):
            rows = np.flatnonzero(self.folds == fold)
            frame = data.frame.iloc[rows]
            names = [f"S({time:g})" for time in times]
            table = pd.DataFrame(tree.falling_curves(frame, times), index=frame.index, columns=names)
            parts.append(table.assign(row=rows, fold=fold, leaf=tree.apply(frame)))
        whole = pd.concat(parts).sort_values("row", ignore_index=True)
        return whole[["row", "fold", "leaf", *(f"S({time:g})" for time in times)]]

    @property
    def score_names(self) -> list[str]:
        """Columns of the table: the scores, those of groups and, if sensitive ones are known, disparities."""
        return [*SCORES, *(name for name in (*GROUP_SCORES, *DISPARITIES) if name in self.scores)]


def split_names(n_folds: int) -> list[str]:
    """Names of the splits of a cross-validation, in the order of its batch."""
    return [*(f"fold-{fold}" for fold in range(n_folds)), "all-rows"]


def make_folds(data: SurvivalData, n_folds: int, seed: int) -> IntArray:
    """Folds stratified by event, every one of which can be trained on and scored.

    Raises:
        DataError: too few rows or events for so many folds.
        ConfigError: fewer than two folds.
    """
    folds = stratified_folds(data.event, n_folds, seed, data.person)
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
        callbacks: called at every step of the training.
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
            "rows entered late: likelihood and concordance, of pairs at risk together, know it; Brier scores "
            "do not and are left out (nan)",
            DataWarning,
            stacklevel=2,
        )
    splits = [data.subset(folds != fold) for fold in range(n_folds)] + [data]
    batch = train_batch(splits, estimator.settings(), Schema.of(data.frame), callbacks, checkpoint)
    rows: list[dict[str, Any]] = []
    trees: dict[int, SoftSurvivalTree] = {}
    dropped = batch.history.dropped()
    groups = _score_leaves(batch, estimator, data, folds) if estimator.depth else None
    for about, tree, part, train in _trees_on_parts(batch, estimator, splits[:n_folds], data, folds):
        if about["chosen"]:
            trees[about["fold"]] = tree
        about["finished"] = batch.position(about["fold"], about["start"]) not in dropped
        scores = score_tree(tree, part, train)
        if groups is not None:
            scores |= groups.scores[about["fold"], about["start"], about["part"]]
        if data.groups is not None:
            scores |= score_fairness(tree, part, train)
        rows.append({**about, "objective": tree.objective_, **scores})
    model = clone(estimator).adopt(batch, data, n_folds, batch.best_start(n_folds))
    model.warn_of_step_curves(data)
    table = pd.DataFrame(rows)
    tests = table[table["chosen"] & (table["part"] == "test")]
    known = [score for score in SCORES if tests[score].notna().all()]
    model.metrics_ = {f"cross_validated_{score}": float(tests[score].mean()) for score in known}
    if groups is not None:
        model.group_validation_ = groups.validation
    return CrossValidation(table, list(trees.values()), model, batch, folds)


class _ScoredLeaves(NamedTuple):
    """Scores of the leaves of every tree, by fold, start and part, and the validation of the chosen ones."""

    scores: dict[tuple[int, int, str], dict[str, float]]
    validation: GroupValidation


def _score_leaves(
    batch: TrainedBatch, estimator: SoftSurvivalTree, data: SurvivalData, folds: IntArray
) -> _ScoredLeaves:
    n_folds, n_starts = int(folds.max()) + 1, batch.n_starts
    members = tuple((fold, start) for fold in range(n_folds) for start in range(n_starts))
    leaves = TreeSample(batch, members, estimator.prediction).apply(data.frame)
    leaves = leaves.reshape(n_folds, n_starts, len(data))
    chosen = np.stack([leaves[fold, batch.best_start(fold)] for fold in range(n_folds)])
    scores = {}
    for start in range(n_starts):
        for fold, ari in enumerate(agreement_of_folds(leaves[:, start], chosen)):
            leaf, outside = leaves[fold, start], folds != fold
            train = data.subset(outside)
            for part, inside in (("train", outside), ("test", ~outside)):
                found = score_groups(leaf[inside], data.subset(inside), leaf[outside], train)
                values = {name: score.value for name, score in (found | {"ari": ari}).items()}
                scores[fold, start, part] = values
    return _ScoredLeaves(scores, held_out_groups(data, folds, chosen))


@dataclass(frozen=True)
class FairnessPath:
    """Result of :func:`fairness_path`.

    Attributes:
        scores: one row per rho, fold, start and part (``train`` or ``test``): accuracy, disparities, the
            training objective, and ``chosen``, true for the start with the lowest training objective.
        batch: all trained trees; split k is fold k.
        folds: fold of each row, shape (n,).
        data: all rows.
        estimator: parameters of the trees.
    """

    scores: pd.DataFrame
    batch: TrainedBatch
    folds: IntArray
    data: SurvivalData
    estimator: SoftSurvivalTree

    def tree(self, rho: float, fold: int, start: int | None = None) -> SoftSurvivalTree:
        """The tree of a rho, fold and start; of the start with the lowest training objective if None."""
        k = self.batch.rhos.index(rho)
        start = self.batch.best_start(fold, k) if start is None else start
        tree: SoftSurvivalTree = clone(self.estimator)
        return tree.adopt(self.batch, self.part(fold, "train"), fold, start, k)

    def part(self, fold: int, part: str) -> SurvivalData:
        """Rows of the ``train`` or ``test`` part of a fold."""
        inside = self.folds == fold
        return self.data.subset(inside if part == "test" else ~inside)

    def table(self, chosen: bool = False) -> pd.DataFrame:
        """Mean of every score by part and rho, over all starts or the chosen one of each fold.

        Scores that are not defined in a fold, since a group is absent there, are left out of the mean.
        """
        runs = self.scores[self.scores["chosen"]] if chosen else self.scores
        numbers = runs.drop(columns=["fold", "start", "chosen"])
        return numbers.groupby(["part", "rho"], sort=True).mean()

    def pareto(
        self, accuracy: str = "c_harrell", disparity: str = "parity", part: str = "test", chosen: bool = False
    ) -> pd.DataFrame:
        """The rhos that no other beats in both accuracy and disparity, means over the runs."""
        table = self.table(chosen)
        rows = table[table.index.get_level_values("part") == part].droplevel("part")
        return pareto_front(rows, accuracy, disparity)


def fairness_path(
    estimator: SoftSurvivalTree,
    data: SurvivalData,
    rhos: Sequence[float],
    n_folds: int = 5,
    seed: int = 0,
    callbacks: Sequence[Callback] = (),
) -> FairnessPath:
    """Cross-validate a tree at every strength of its fairness penalty, all as one batch.

    Every rho has the same folds, and its starts begin from the same trees.

    Args:
        estimator: parameters of the trees, with ``fairness``; its ``rho`` is not read.
        data: all rows, with their groups.
        rhos: coefficients, >= 0, different.
        n_folds: folds, stratified by event.
        seed: of the folds.
        callbacks: called at every step of the training.

    Raises:
        ConfigError: no penalty is chosen, the groups are not known, or a rho is out of range.
        DataError: a fold cannot be scored, or its training rows are all of one group.
    """
    known_groups(data)
    if estimator.fairness is None:
        raise ConfigError("a fairness path needs a penalty: choose fairness='l2' or 'l2_relaxed'")
    values = [clone(estimator).set_params(rho=rho).settings().rho for rho in rhos]
    if not values or len(set(values)) < len(values):
        raise ConfigError(f"rhos must be different numbers, at least one, got {list(rhos)!r}")
    folds = make_folds(data, n_folds, seed)
    splits = [data.subset(folds != fold) for fold in range(n_folds)]
    settings = estimator.settings()
    # All runs are averaged, so all are trained to the end.
    settings = replace(settings, trainer=with_heats(settings.trainer, 0))
    strengths = [replace(settings.coefficients, rho=rho) for rho in values]
    batch = train_batch(splits, settings, Schema.of(data.frame), callbacks, coefficients=strengths)
    rows: list[dict[str, Any]] = []
    for about, tree, part, train in _trees_on_parts(batch, estimator, splits, data, folds, values):
        accuracy = metrics.evaluate(tree, train, part, metrics=ACCURACY)["value"]
        scores = dict(zip(ACCURACY, accuracy, strict=True)) | score_fairness(tree, part, train)
        rows.append({**about, "objective": tree.objective_, **scores})
    return FairnessPath(pd.DataFrame(rows), batch, folds, data, estimator)


def _trees_on_parts(
    batch: TrainedBatch,
    estimator: SoftSurvivalTree,
    splits: Sequence[SurvivalData],
    data: SurvivalData,
    folds: IntArray,
    rhos: Sequence[float] = (),
) -> Iterator[tuple[dict[str, Any], SoftSurvivalTree, SurvivalData, SurvivalData]]:
    """Every tree of the folds with each part of its fold to score it on.

    Yields:
        rho (if there are several), fold, start, part, and whether the start is the chosen one; the tree; the
        rows of the part; the training rows.
    """
    for fold, train in enumerate(splits):
        parts = {"train": train, "test": data.subset(folds == fold)}
        for k, rho in enumerate(rhos or [None]):
            best = batch.best_start(fold, k)
            for start in range(batch.n_starts):
                tree = clone(estimator).adopt(batch, train, fold, start, k)
                for part, rows in parts.items():
                    about = dict[str, Any](fold=fold, start=start, part=part, chosen=start == best)
                    yield (about if rho is None else {"rho": rho, **about}), tree, rows, train


def pareto_front(table: pd.DataFrame, accuracy: str, disparity: str) -> pd.DataFrame:
    """Rows of a table that no other row beats: at least as good in both, and better in one.

    Args:
        table: one row a candidate.
        accuracy: column, a metric of :func:`sstorch.metrics.evaluate`; whether more is better is known.
        disparity: column; less is better.

    Raises:
        ConfigError: a column that the table does not have.
        DataError: values are missing.
    """
    for name in (accuracy, disparity):
        if name not in table.columns:
            raise ConfigError(f"no score {name!r}; there are {', '.join(map(str, table.columns))}")
    known = METRICS.get(accuracy)
    if known is None or known.higher_is_better is None:
        raise ConfigError(f"{accuracy!r} has no direction; choose a metric that has one")
    sign = 1.0 if known.higher_is_better else -1.0
    good, bad = sign * table[accuracy].to_numpy(float), table[disparity].to_numpy(float)
    if np.isnan(good).any() or np.isnan(bad).any():
        raise DataError(f"{accuracy} or {disparity} is not defined in some rows of the table")
    beaten = [
        bool(((good >= good[k]) & (bad <= bad[k]) & ((good > good[k]) | (bad < bad[k]))).any())
        for k in range(len(table))
    ]
    return table[~np.array(beaten)].sort_values(disparity)

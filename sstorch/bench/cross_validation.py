"""Cross-validation of soft trees, and of their accuracy against disparity over fairness penalties."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import torch
from sklearn.base import clone

from sstorch import metrics
from sstorch._types import IntArray
from sstorch.bench.scores import (
    CAUSE_SCORES,
    DISPARITIES,
    GROUP_SCORES,
    SCORES,
    agreements,
    check_scorable,
    known_groups,
    score_fairness,
    score_groups,
    score_tree,
    scores_of,
)
from sstorch.bench.study_model import EstimatorModel, FittedModel
from sstorch.checks import has_method
from sstorch.data import Fold, Schema, SurvivalData, folds_of
from sstorch.data.design_matrix import RowFeatures
from sstorch.data.folds import scoring_of, split, train_outside_score_inside
from sstorch.data.time_unit import round_horizons
from sstorch.exceptions import ConfigError, DataError, DataWarning
from sstorch.groups.validation import held_out_groups
from sstorch.metrics.registry import METRICS, names_of
from sstorch.monitoring import Callback
from sstorch.optim.checkpoint import Checkpoint, kept, opened
from sstorch.optim.trainer import environment
from sstorch.progress import report
from sstorch.soft import TrainedBatch, train_batch
from sstorch.soft.batch import check_causes, train_encoded
from sstorch.soft.estimator import SoftEstimator
from sstorch.soft.group_choice import GroupChoice

ACCURACY = tuple(names_of("event", "accuracy"))


@dataclass(frozen=True)
class CrossValidation:
    """Result of :func:`cross_validate`.

    Attributes:
        scores: one row per fold, start and part (``train`` or ``test``): the scores that the type of the
            outcome has (:func:`~sstorch.bench.scores.scores_of`), those of the groups of trees with gates
            (``GROUP_SCORES``; ``ari`` is with the chosen trees of the other folds, on all rows), those of
            :func:`~sstorch.bench.score_fairness` if sensitive groups are known, the training objective,
            and ``chosen``, true for the start with the lowest training objective of its fold.
        trees: the chosen tree of each fold.
        model: the tree trained on all rows, with the same choice of the start; ``metrics_`` are mean scores
            of the chosen trees on the test folds, ``group_validation_`` is the validation of their groups.
        batch: all trained trees; splits 0 .. n_folds - 1 are the folds, the last is all rows. None for an
            estimator of another class, whose trees are :class:`~sstorch.bench.study_model.FittedModel`.
        folds: fold of each row of positive weight, shape (n,); the others are left out.
    """

    scores: pd.DataFrame
    trees: list[Any]
    model: Any
    batch: TrainedBatch | None
    folds: IntArray

    @property
    def split_names(self) -> list[str]:
        """Names of the splits of the batch: ``fold-0`` ... and ``all-rows``."""
        return split_names(len(self.trees))

    def table(self) -> pd.DataFrame:
        """Mean and standard deviation of each score, over all starts and over the chosen one of each fold."""
        runs = self.scores.assign(trees="all starts")
        chosen = self.scores[self.scores["chosen"]].assign(trees="chosen start")
        grouped = pd.concat([runs, chosen]).groupby(["part", "trees"])[self.score_names]
        return grouped.agg(["mean", "std"])

    @property
    def choices(self) -> dict[str, GroupChoice]:
        """Groups and penalties of each split, chosen by evidence; empty for fixed penalties."""
        trees = zip(self.split_names, [*self.trees, self.model], strict=True)
        return {name: tree.choice_ for name, tree in trees if tree.choice_ is not None}

    def evidence(self) -> pd.DataFrame:
        """A row per split: ``chosen``, ``n_groups``, ``gain``, and each candidate's evidence, in nats."""
        rows = {
            name: {"chosen": each.chosen, "n_groups": each.n_groups, "gain": each.gain, **each.evidence}
            for name, each in self.choices.items()
        }
        return pd.DataFrame.from_dict(rows, orient="index").rename_axis("split")

    def penalties(self) -> pd.DataFrame:
        """:attr:`~sstorch.soft.group_choice.GroupChoice.penalties` of every split."""
        return pd.concat({name: each.penalties for name, each in self.choices.items()}, names=["split"])

    def held_out(self, data: SurvivalData) -> pd.DataFrame:
        """Predictions of the chosen tree of each fold for the rows of the fold.

        Args:
            data: all rows.

        Returns:
            A row for each row of positive weight: ``row`` in `data`, from 0, ``fold``, ``group`` in the tree
            of the fold, and ``S(t)``, or with competing causes the cumulative incidence ``F(t):cause`` of
            each, at round times near quantiles of the event times.
        """
        number, data = np.flatnonzero(data.sample_weight), data.counted()
        times = round_horizons(data.event_times, self.model.time_unit_)
        names = [f"S({time:g})" for time in times]
        if data.causes is not None:
            names = [f"F({time:g}):{cause}" for cause in data.cause_names for time in times]
        parts = []
        for fold, tree in enumerate(self.trees):
            rows = np.flatnonzero(self.folds == fold)
            frame = data.frame.iloc[rows]
            if data.causes is not None:
                values = tree.predict_cumulative_incidence(frame, times).reshape(len(frame), -1)
            else:
                values = tree.falling_curves(frame, times)
            table = pd.DataFrame(values, index=frame.index, columns=names)
            group = tree.apply(frame) if has_method(tree, "apply") else 1
            parts.append(table.assign(row=number[rows], fold=fold, group=group))
        whole = pd.concat(parts).sort_values("row", ignore_index=True)
        return whole[["row", "fold", "group", *names]]

    def held_out_score(self, name: str | None = None) -> float:
        """Mean of a score over the test folds, with competing causes over the causes, too.

        Args:
            name: of the score, such as ``"ibs_graf"``; None for the first of the outcome.

        Raises:
            ConfigError: the run has no such score.
        """
        return held_out_score(self.scores, name)

    @property
    def score_names(self) -> list[str]:
        """Columns of the table: the scores, those of groups and, if sensitive ones are known, disparities."""
        causes = self.model.outcome_type_.causes or ()
        of_causes = [f"{name}:{cause}" for cause in causes for name in CAUSE_SCORES]
        plain = [*SCORES[:-1], *of_causes]
        of_groups = [name for name in GROUP_SCORES if name in self.scores and self.scores[name].notna().any()]
        shown = [*plain, SCORES[-1], *of_groups, *DISPARITIES]
        return [name for name in shown if name in self.scores]


def held_out_score(scores: pd.DataFrame, name: str | None = None) -> float:
    """:meth:`CrossValidation.held_out_score` of a table of scores, such as ``scores.csv``."""
    known = [column for column in scores if str(column).partition(":")[0] in METRICS]
    heads = {str(column).partition(":")[0] for column in known}
    wanted = (
        next((each for each in (*SCORES, *CAUSE_SCORES) if each in heads), None) if name is None else name
    )
    chosen = [column for column in known if wanted in (column, str(column).partition(":")[0])]
    if not chosen:
        raise ConfigError(f"cv.score must be one of {', '.join(map(str, known))}, got {name!r}")
    tests = scores[scores["chosen"] & (scores["part"] == "test")]
    return float(tests[chosen].to_numpy(np.float64).mean())


def split_names(n_folds: int) -> list[str]:
    """Names of the splits of a cross-validation, in the order of its batch."""
    return [*(f"fold-{fold}" for fold in range(n_folds)), "all-rows"]


def make_folds(data: SurvivalData, n_folds: int, seed: int) -> IntArray:
    """Folds by subject, stratified by event or cause, every one of which can be trained on and scored.

    Raises:
        DataError: too few rows, events or events of a cause for so many folds.
        ConfigError: fewer than two folds.
    """
    folds = folds_of(data, n_folds, seed)
    for fold in split(data, folds):
        with scoring_of(fold.number, n_folds):
            check_scorable(fold.test, fold.train)
    return folds


class _Fit(NamedTuple):
    """A tree that was trained outside a fold."""

    start: int
    chosen: bool
    tree: SoftEstimator


def cross_validate(
    estimator: Any,
    data: SurvivalData,
    n_folds: int = 5,
    seed: int = 0,
    callbacks: Sequence[Callback] = (),
    checkpoint: Checkpoint | str | os.PathLike[str] | None = None,
) -> CrossValidation:
    """Train trees outside each fold and on all rows, and score those of the folds.

    All starts on all folds, and those on all rows, are one batch; with competing causes one for each cause,
    under gates that all share. All statistics of preprocessing and all training choices come from the
    training rows of a fold; only the vocabulary of the categorical columns is read from the whole table.

    Args:
        estimator: a soft estimator, not fitted; or one of any class with ``fit(X, y)`` and
            ``predict_survival_function(X, times)``, of which a copy is fitted to each fold after the other.
        data: all rows; weights count in training and scores, and rows of weight zero are left out.
        n_folds: folds, by subject, stratified by event or cause.
        seed: of the folds; the trees' own is the estimator's ``random_state``.
        callbacks: called at every step of the training of a batch.
        checkpoint: path of a file that is written after every finished part of the work and every pass of a
            batch; if it exists, work continues from it. A checkpoint that is open is used as it is.

    Raises:
        DataError: too few rows or events for so many folds; raised before any training.
        ConfigError: a parameter has an invalid value, gates are to be trained with competing causes, or the
            checkpoint belongs to another run.
        FormatError: the checkpoint is truncated or altered.
    """
    data = data.counted()
    if not isinstance(estimator, SoftEstimator):
        return _cross_validate_any(EstimatorModel("model", estimator), data, make_folds(data, n_folds, seed))
    settings = estimator._batch_settings()
    check_causes(data, settings)
    folds = make_folds(data, n_folds, seed)
    if data.entry.any():
        warnings.warn(
            "left-truncated rows: likelihood and concordance support entry times; "
            "Brier scores do not and are nan",
            DataWarning,
            stacklevel=2,
        )
    schema, trained = Schema.of(data.frame), list[tuple[TrainedBatch, RowFeatures]]()

    def train(splits: list[SurvivalData]) -> Iterator[tuple[int, _Fit]]:
        *parts, whole = (rows.joined() for rows in (*splits, data))
        batch, encoded = train_encoded([*parts, whole], settings, schema, callbacks, held)
        trained.append((batch, encoded.of_split(len(splits))[: len(whole)]))
        for fold, rows in enumerate(parts):
            best = batch.best_start(fold)
            for start in range(batch.n_starts):
                tree = clone(estimator)._adopt(batch, rows, fold, start)
                yield fold, _Fit(start, start == best, tree)

    def scored(fold: Fold, fit: _Fit) -> list[dict[str, Any]]:
        rows = []
        for part, part_rows in fold.parts.items():
            about = {"fold": fold.number, "start": fit.start, "part": part, "chosen": fit.chosen}
            about |= {"objective": fit.tree.objective_}
            scores = score_tree(fit.tree, part_rows, fold.train)
            if data.groups is not None:
                scores |= score_fairness(fit.tree, part_rows, fold.train)
            rows.append(about | scores)
        return rows

    def score(fold: Fold, fit: _Fit) -> tuple[list[dict[str, Any]], IntArray | None, SoftEstimator]:
        report("scoring", fold.number, n_folds)
        rows = kept(held, f"scores/{fold.number}/{fit.start}", lambda: scored(fold, fit))
        return rows, fit.tree.apply(data.frame) if settings.depth else None, fit.tree

    file = opened(
        checkpoint,
        settings=settings.facts(),
        trainer=replace(settings.trainer, engine="auto"),
        folds=folds,
        features=data.frame,
        outcome=[data.nominal_time, data.event if data.causes is None else data.cause, data.entry],
        rows=[data.sample_weight, data.subject, getattr(data.groups, "codes", None)],
        environment=environment(torch.device(settings.device)),
    )
    with file as held, warnings.catch_warnings():
        # That predictions are extrapolated is for users to know who predict, not of folds.
        warnings.filterwarnings("ignore", "column .* far outside its training range", DataWarning)
        found = list(train_outside_score_inside(split(data, folds), train, score))
    chosen = [(leaves, tree) for rows, leaves, tree in found if rows[0]["chosen"]]
    _score_leaves([(rows, leaves) for rows, leaves, _ in found if leaves is not None], data, folds)
    table = pd.DataFrame([row for rows, _, _ in found for row in rows])
    trees = [tree for _, tree in chosen]
    groups = [leaves for leaves, _ in chosen if leaves is not None]
    ((batch, x),) = trained
    model = clone(estimator)._adopt_best(batch, data.joined(), n_folds, x)
    tests = table[table["chosen"] & (table["part"] == "test")]
    known = [name for name in scores_of(data) if tests[name].notna().all()]
    model.metrics_ = {f"cross_validated_{name}": float(tests[name].mean()) for name in known}
    if groups:
        try:
            model.group_validation_ = held_out_groups(data, folds, np.stack(groups))
        except DataError as error:
            warnings.warn(f"groups are not validated: {error}", DataWarning, stacklevel=2)
    return CrossValidation(table, trees, model, batch, folds)


def _cross_validate_any(model: EstimatorModel, data: SurvivalData, folds: IntArray) -> CrossValidation:
    """Fit an estimator of any class outside each fold and to all rows."""
    if data.groups is not None:
        raise ConfigError("sensitive groups are scored for soft trees: leave dataset.sensitive out")
    model.check_data(data)
    found, trees, parts = (
        list[tuple[list[dict[str, Any]], IntArray]](),
        list[FittedModel](),
        split(data, folds),
    )
    for fold in parts:
        report("training", fold.number, len(parts) + 1)
        tree = model.fitted(fold.train)
        about = {"fold": fold.number, "start": 0}
        rows = [
            {**about, "part": part, "chosen": True, "objective": np.nan, **score_tree(tree, rows, fold.train)}
            for part, rows in fold.parts.items()
        ]
        trees.append(tree)
        found.append((rows, tree.apply(data.frame) if has_method(tree, "apply") else np.zeros(0, np.int64)))
    _score_leaves([each for each in found if len(each[1])], data, folds)
    report("training", len(parts), len(parts) + 1)
    table = pd.DataFrame([row for rows, _ in found for row in rows])
    whole, tests = model.fitted(data), table[table["part"] == "test"]
    known = [name for name in scores_of(data) if name in tests and tests[name].notna().all()]
    whole.metrics_ = {f"cross_validated_{name}": float(tests[name].mean()) for name in known}
    return CrossValidation(table, list(trees), whole, None, folds)


def _score_leaves(
    found: Sequence[tuple[list[dict[str, Any]], IntArray]], data: SurvivalData, folds: IntArray
) -> None:
    """Add the scores of the groups of trees to the rows of scores of each, given the leaf of every row."""
    first = [rows[0] for rows, _ in found]
    starts, chosen = [row["start"] for row in first], [row["chosen"] for row in first]
    agreement = agreements(starts, chosen, [leaf for _, leaf in found])
    for (rows, leaf), ari in zip(found, agreement, strict=True):
        outside = folds != rows[0]["fold"]
        train = data.subset(outside)
        for row in rows:
            inside = outside if row["part"] == "train" else ~outside
            scores = score_groups(leaf[inside], data.subset(inside), leaf[outside], train) | {"ari": ari}
            row |= {name: score.value for name, score in scores.items()}


@dataclass(frozen=True)
class FairnessPath:
    """Result of :func:`fairness_path`.

    Attributes:
        scores: one row per rho, fold, start and part (``train`` or ``test``): accuracy, disparities, the
            training objective, and ``chosen``, true for the start with the lowest training objective.
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
        k = self.batch.rhos.index(rho)
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

    def pareto(
        self, accuracy: str = "c_harrell", disparity: str = "parity", part: str = "test", chosen: bool = False
    ) -> pd.DataFrame:
        """Pareto-optimal values of rho for accuracy and disparity, means over the runs."""
        table = self.table(chosen)
        rows = table[table.index.get_level_values("part") == part].droplevel("part")
        return pareto_front(rows, accuracy, disparity)


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
        raise ConfigError(f"rhos must be different numbers, at least one, got {list(rhos)!r}")
    settings = estimator._batch_settings()
    check_causes(data, settings)
    folds = make_folds(data, n_folds, seed)
    strengths = [replace(settings.coefficients, rho=rho) for rho in values]
    batches = list[TrainedBatch]()

    def train(splits: list[SurvivalData]) -> Iterator[tuple[int, tuple[dict[str, Any], SoftEstimator]]]:
        batch = train_batch(splits, settings, Schema.of(data.frame), coefficients=strengths)
        batches.append(batch)
        for fold, rows in enumerate(splits):
            for k, rho in enumerate(values):
                best = batch.best_start(fold, k)
                for start in range(batch.n_starts):
                    about = {"rho": rho, "fold": fold, "start": start, "part": "", "chosen": start == best}
                    yield fold, (about, clone(estimator)._adopt(batch, rows, fold, start, k))

    def score(fold: Fold, fit: tuple[dict[str, Any], SoftEstimator]) -> list[dict[str, Any]]:
        rows, (about, tree) = [], fit
        for part, part_rows in fold.parts.items():
            accuracy = metrics.evaluate(tree, fold.train, part_rows, metrics=ACCURACY)["value"]
            scores = dict(zip(ACCURACY, accuracy, strict=True))
            scores |= score_fairness(tree, part_rows, fold.train)
            rows.append(about | {"part": part, "objective": tree.objective_} | scores)
        return rows

    found = train_outside_score_inside(split(data, folds), train, score)
    table = pd.DataFrame([row for rows in found for row in rows])
    return FairnessPath(table, batches[0], folds, data, estimator)


def pareto_front(table: pd.DataFrame, accuracy: str, disparity: str) -> pd.DataFrame:
    """Rows of a table that no other row beats: at least as good in both, and better in one.

    Args:
        table: one row per candidate.
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

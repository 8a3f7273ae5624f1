"""Cross-validation of soft trees and of estimators of any other class."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import torch
from sklearn.base import clone

from sstorch._types import IntArray
from sstorch.bench.scores import (
    CAUSE_SCORES,
    DISPARITIES,
    GROUP_SCORES,
    SCORES,
    agreements,
    check_scorable,
    score_fairness,
    score_groups,
    score_predictor,
    scores_of,
)
from sstorch.bench.study_model import FittedModel, StudyModel
from sstorch.checks import has_method
from sstorch.data import Schema, SurvivalData, folds_of
from sstorch.data.folds import Fold, scoring_of, split, train_outside_score_inside
from sstorch.data.time_unit import round_horizons
from sstorch.exceptions import ConfigError, DataError, DataWarning
from sstorch.groups.validation import held_out_groups
from sstorch.metrics.registry import METRICS
from sstorch.monitoring import Callback
from sstorch.optim.checkpoint import Checkpoint, kept, opened
from sstorch.optim.trainer import environment
from sstorch.progress import report
from sstorch.soft import TrainedBatch
from sstorch.soft.batch import check_causes, train_encoded
from sstorch.soft.estimator import SoftEstimator
from sstorch.soft.group_choice import GroupChoice


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
        """:func:`held_out_score` of this run."""
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
    """Mean of a score over the test folds, with competing causes over the causes, too.

    Args:
        scores: :attr:`CrossValidation.scores`, or ``scores.csv`` of a run.
        name: of the score, such as ``"ibs_graf"``; None for the first of the outcome.

    Raises:
        ConfigError: the run has no such score.
    """
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
    tree: Any


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
            batch of soft trees; if it exists, work continues from it. A checkpoint that is open is used as
            it is.

    Raises:
        DataError: too few rows or events for so many folds; raised before any training.
        ConfigError: a parameter has an invalid value, gates are to be trained with competing causes, or the
            checkpoint belongs to another run.
        FormatError: the checkpoint is truncated or altered.
    """
    data = data.counted()
    soft = isinstance(estimator, SoftEstimator)
    trees: _SoftTrees | _OtherModels = _SoftTrees(estimator, data) if soft else _OtherModels(estimator, data)
    folds = make_folds(data, n_folds, seed)
    if data.entry.any():
        warnings.warn(
            "left-truncated rows: likelihood and concordance support entry times; "
            "Brier scores do not and are nan",
            DataWarning,
            stacklevel=2,
        )

    def scored(fold: Fold, fit: _Fit) -> list[dict[str, Any]]:
        rows = []
        for part, part_rows in fold.parts.items():
            about = {"fold": fold.number, "start": fit.start, "part": part, "chosen": fit.chosen}
            found = score_predictor(fit.tree, part_rows, fold.train, names=SCORES[:-1])
            scores = {name: score.value for name, score in found.items()}
            if data.groups is not None:
                scores |= score_fairness(fit.tree, part_rows, fold.train)
            rows.append(about | {"objective": fit.tree.objective_} | scores)
        return rows

    def score(fold: Fold, fit: _Fit) -> tuple[list[dict[str, Any]], IntArray | None, Any]:
        report("scoring", fold.number, n_folds)
        rows = kept(held, f"scores/{fold.number}/{fit.start}", lambda: scored(fold, fit))
        return rows, trees.groups(fit.tree), fit.tree

    file = opened(
        checkpoint,
        **trees.identity(),
        folds=folds,
        features=data.frame,
        outcome=[data.nominal_time, data.event if data.causes is None else data.cause, data.entry],
        rows=[data.sample_weight, data.subject, getattr(data.groups, "codes", None)],
    )
    with file as held, warnings.catch_warnings():
        # That predictions are extrapolated is for users to know who predict, not of folds.
        warnings.filterwarnings("ignore", "column .* far outside its training range", DataWarning)

        def train(splits: list[SurvivalData]) -> Iterator[tuple[int, _Fit]]:
            return trees.fits(splits, callbacks, held)

        found = list(train_outside_score_inside(split(data, folds), train, score))
    chosen = [(groups, tree) for rows, groups, tree in found if rows[0]["chosen"]]
    _score_groups([(rows, groups) for rows, groups, _ in found if groups is not None], data, folds)
    table = pd.DataFrame([row for rows, _, _ in found for row in rows])
    model = trees.of_all_rows(n_folds)
    tests = table[table["chosen"] & (table["part"] == "test")]
    known = [name for name in scores_of(data) if name in tests and tests[name].notna().all()]
    model.metrics_ = {f"cross_validated_{name}": float(tests[name].mean()) for name in known}
    if groups := [each for each, _ in chosen if each is not None and soft]:
        try:
            model.group_validation_ = held_out_groups(data, folds, np.stack(groups))
        except DataError as error:
            warnings.warn(f"groups are not validated: {error}", DataWarning, stacklevel=2)
    return CrossValidation(table, [tree for _, tree in chosen], model, trees.batch, folds)


class _SoftTrees:
    """Soft trees of all folds and of all rows: one batch."""

    def __init__(self, estimator: SoftEstimator, data: SurvivalData) -> None:
        self._estimator, self._data, self._settings = estimator, data, estimator._batch_settings()
        check_causes(data, self._settings)
        self.batch: TrainedBatch

    def identity(self) -> dict[str, object]:
        """What determines the trees, apart from the rows."""
        return {
            "settings": self._settings.facts(),
            "trainer": self._settings.trainer.identity,
            "environment": environment(torch.device(self._settings.device)),
        }

    def fits(
        self, splits: list[SurvivalData], callbacks: Sequence[Callback], held: Checkpoint | None
    ) -> Iterator[tuple[int, _Fit]]:
        """Train on the rows outside each fold and on all; trees by fold and start."""
        *parts, whole = (rows.joined() for rows in (*splits, self._data))
        schema = Schema.of(self._data.frame)
        self.batch, encoded = train_encoded([*parts, whole], self._settings, schema, callbacks, held)
        self._x = encoded.of_split(len(splits))[: len(whole)]
        for fold, rows in enumerate(parts):
            best = self.batch.best_start(fold)
            for start in range(self.batch.n_starts):
                tree = clone(self._estimator)._adopt(self.batch, rows, fold, start)
                yield fold, _Fit(start, start == best, tree)

    def groups(self, tree: SoftEstimator) -> IntArray | None:
        """Group of every row; None if there are no gates."""
        return tree.apply(self._data.frame) if self._settings.depth else None

    def of_all_rows(self, n_folds: int) -> SoftEstimator:
        """The best tree of all rows."""
        model: SoftEstimator = clone(self._estimator)
        return model._adopt_best(self.batch, self._data.joined(), n_folds, self._x)


class _OtherModels:
    """An estimator of any class, fitted outside each fold and to all rows, one after the other."""

    batch = None

    def __init__(self, estimator: Any, data: SurvivalData) -> None:
        if data.groups is not None:
            raise ConfigError("sensitive groups are scored for soft trees: leave dataset.sensitive out")
        self._model, self._data = StudyModel("model", estimator), data
        self._model.check_data(data)

    def identity(self) -> dict[str, object]:
        """What determines the models, apart from the rows."""
        return {"settings": repr(self._model.estimator)}

    def fits(
        self, splits: list[SurvivalData], callbacks: Sequence[Callback], held: Checkpoint | None
    ) -> Iterator[tuple[int, _Fit]]:
        """Fit outside each fold."""
        for fold, rows in enumerate(splits):
            report("training", fold, len(splits) + 1)
            yield fold, _Fit(0, True, self._model.fitted(rows))

    def groups(self, model: FittedModel) -> IntArray | None:
        """Group of every row; None if the model makes none."""
        return np.asarray(model.apply(self._data.frame)) if has_method(model, "apply") else None

    def of_all_rows(self, n_folds: int) -> FittedModel:
        """The model fitted to all rows."""
        report("training", n_folds, n_folds + 1)
        return self._model.fitted(self._data)


def _score_groups(
    found: Sequence[tuple[list[dict[str, Any]], IntArray]], data: SurvivalData, folds: IntArray
) -> None:
    """Add the scores of the groups of trees to the rows of scores of each, given the group of every row."""
    first = [rows[0] for rows, _ in found]
    starts, chosen = [row["start"] for row in first], [row["chosen"] for row in first]
    agreement = agreements(starts, chosen, [group for _, group in found])
    for (rows, group), ari in zip(found, agreement, strict=True):
        outside = folds != rows[0]["fold"]
        train = data.subset(outside)
        for row in rows:
            inside = outside if row["part"] == "train" else ~outside
            scores = score_groups(group[inside], data.subset(inside), group[outside], train) | {"ari": ari}
            row |= {name: score.value for name, score in scores.items()}

"""Cross-validation of soft trees and of estimators of any other class."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import torch
from sklearn.base import clone

from sstorch._types import IntArray
from sstorch.bench.models import Fit, SoftTreeModel, StudyModel, fits_of
from sstorch.bench.scores import (
    CAUSE_SCORES,
    DISPARITIES,
    GROUP_SCORES,
    SCORES,
    check_scorable,
    score_fits,
    scores_of,
    wide,
)
from sstorch.checks import has_method
from sstorch.data import Schema, SurvivalData, folds_of
from sstorch.data.folds import split
from sstorch.data.time_unit import round_horizons
from sstorch.exceptions import ConfigError, DataError, named, warn
from sstorch.groups.validation import held_out_groups
from sstorch.metrics.registry import METRICS
from sstorch.monitoring import Callback
from sstorch.optim.nodec import environment
from sstorch.optim.run import Checkpoint, opened, plain_values
from sstorch.soft.batch import TrainedBatch, train_encoded
from sstorch.soft.estimator import SoftEstimator
from sstorch.soft.group_choice import GroupChoice
from sstorch.threads import report


@dataclass(frozen=True)
class CrossValidation:
    """Result of :func:`cross_validate`.

    Attributes:
        scores: one row per fold, start and part (``train`` or ``test``): the scores of the outcome, those of
            the groups of trees with gates (``c_groups``, ``n_groups``, and ``ari`` with the trees of the
            other folds), those of :func:`~sstorch.bench.score_fairness` if sensitive groups are known, the
            training objective, and ``chosen``, true for the start of a fold with the lowest objective.
        trees: the chosen tree of each fold.
        model: the tree trained on all rows, with the same choice of the start; ``metrics_`` are mean scores
            of the chosen trees on the test folds, ``group_validation_`` is the validation of their groups.
        batch: all trained trees; splits 0 .. n_folds - 1 are the folds, the last is all rows. None for an
            estimator of another class, whose trees are `FittedModel`.
        folds: fold of each row of positive weight, shape (n,); the others are left out.
    """

    scores: pd.DataFrame
    trees: list[Any]
    model: Any
    batch: TrainedBatch | None
    folds: IntArray

    def table(self) -> pd.DataFrame:
        """Mean and standard deviation of each score over chosen starts, and where there are more over all."""
        chosen = self.scores[self.scores["chosen"]].assign(trees="chosen start")
        several = [] if len(chosen) == len(self.scores) else [self.scores.assign(trees="all starts")]
        grouped = pd.concat([*several, chosen]).groupby(["part", "trees"])[self.score_names]
        return grouped.agg(["mean", "std"])

    @property
    def choices(self) -> dict[str, GroupChoice]:
        """Groups and penalties of each split, chosen by evidence; empty for fixed penalties."""
        trees = zip(split_names(len(self.trees)), [*self.trees, self.model], strict=True)
        return {name: tree.choice_ for name, tree in trees if tree.choice_ is not None}

    def evidence(self) -> pd.DataFrame:
        """A row per split: ``chosen``, ``n_groups``, ``gain``, and each candidate's evidence, in nats."""
        rows = {
            name: {"chosen": each.chosen, "n_groups": each.n_groups, "gain": each.gain, **each.evidence}
            for name, each in self.choices.items()
        }
        return pd.DataFrame.from_dict(rows, orient="index").rename_axis("split")

    def held_out(self, data: SurvivalData) -> pd.DataFrame:
        """Predictions of the chosen tree of each fold for the rows of the fold, of all rows `data`.

        A row for each row of positive weight: ``row`` in `data`, from 0, ``fold``, ``group`` in the tree of
        the fold, and ``S(t)``, or with competing causes the cumulative incidence ``F(t):cause`` of each, at
        round times near quantiles of the event times.
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

    @property
    def score_names(self) -> list[str]:
        """Columns of the table: the scores, those of groups, and disparities."""
        causes = self.model.outcome_type_.causes or ()
        of_causes = [f"{name}:{cause}" for cause in causes for name in CAUSE_SCORES]
        of_groups = [name for name in GROUP_SCORES if name in self.scores and self.scores[name].notna().any()]
        shown = [*SCORES[:-1], *of_causes, SCORES[-1], *of_groups, *DISPARITIES]
        return [name for name in shown if name in self.scores]


def held_out_score(scores: pd.DataFrame, name: str | None = None) -> float:
    """Mean over test folds and causes of a score, by default the first; ConfigError if there is none."""
    heads = {str(column): str(column).partition(":")[0] for column in scores}
    known = {column: head for column, head in heads.items() if head in METRICS}
    usual = next((each for each in (*SCORES, *CAUSE_SCORES) if each in known.values()), None)
    wanted = usual if name is None else name
    chosen = [column for column, head in known.items() if wanted in (column, head)]
    if not chosen:
        raise ConfigError(f"`cv.score` must be one of {', '.join(known)}, got {name!r}")
    tests = scores[scores["chosen"] & (scores["part"] == "test")]
    return float(tests[chosen].to_numpy(np.float64).mean())


def split_names(n_folds: int) -> list[str]:
    """Names of the splits of a cross-validation, in the order of its batch."""
    return [*(f"fold-{fold}" for fold in range(n_folds)), "all-rows"]


def make_folds(data: SurvivalData, n_folds: int, seed: int) -> IntArray:
    """Folds by subject, stratified by event or cause; an error if one could not be trained on or scored."""
    folds = folds_of(data, n_folds, seed)
    for fold in split(data, folds):
        with named(f"fold {fold.number} of {n_folds} cannot be scored, choose fewer folds"):
            check_scorable(fold.test, fold.train)
    return folds


def data_checksum(data: SurvivalData) -> str:
    """Checksum of everything that a model sees of the rows."""
    seen = {
        "features": data.frame,
        "outcome": [data.nominal_time, data.event, data.entry, data.sample_weight, data.subject],
        "causes": None if data.causes is None else [data.causes, data.cause],
    }
    return hashlib.sha256(json.dumps(list(plain_values(seen, "data"))).encode()).hexdigest()


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
    data, soft = data.counted(), isinstance(estimator, SoftEstimator)
    model: Any = SoftTreeModel("model", estimator) if soft else StudyModel("model", estimator)
    if data.groups is not None and not soft:
        raise ConfigError("sensitive groups are scored for soft trees: leave dataset.sensitive out")
    model.check_data(data)
    folds = make_folds(data, n_folds, seed)
    parts = split(data, folds)
    if data.entry.any():
        warn(
            "left-truncated rows: likelihood and concordance support entry times; "
            "Brier scores do not and are nan"
        )
    file = opened(
        checkpoint,
        settings=model.settings(),
        environment=environment(torch.device(model.batch_settings.device if soft else "cpu")),
        folds=folds,
        features=data.frame,
        outcome=[data.nominal_time, data.event if data.causes is None else data.cause, data.entry],
        rows=[data.sample_weight, data.subject, getattr(data.groups, "codes", None)],
    )
    splits, names = [*(part.train for part in parts), data], {"train": SCORES[:-1], "test": SCORES[:-1]}
    with file as held:
        batch, trees = None, list[Any]()
        if isinstance(model, SoftTreeModel):
            batch, trees, fits = _trained(model, splits, callbacks, held)
        else:
            for number, rows in enumerate(splits):
                report("training", number, n_folds + 1)
                trees.append(model.fitted(rows))
            fits = (Fit(fold, tree) for fold, tree in enumerate(trees[:-1]))
        found = score_fits(fits, data, parts, names, groups=model.depth != 0, checkpoint=held)
    (*trees, final), table = trees, wide(found)
    tests = table[table["chosen"] & (table["part"] == "test")]
    known = [name for name in scores_of(data) if name in tests and tests[name].notna().all()]
    final.metrics_ = {f"cross_validated_{name}": float(tests[name].mean()) for name in known}
    if soft and model.depth:
        try:
            groups = np.stack([tree._tree.apply(tree._tree.encode(data.frame)) for tree in trees])
            final.group_validation_ = held_out_groups(data, folds, groups)
        except DataError as error:
            warn(f"groups are not validated: {error}")
    return CrossValidation(table, trees, final, batch, folds)


def _trained(
    model: SoftTreeModel,
    splits: Sequence[SurvivalData],
    callbacks: Sequence[Callback],
    checkpoint: Checkpoint | None,
) -> tuple[TrainedBatch, list[Any], Iterator[Fit]]:
    """The batch of all splits, the last of all rows; the best tree of each; all fits of the others."""
    joined, settings = [rows.joined() for rows in splits], model.batch_settings
    schema, last = Schema.of(splits[-1].frame), len(splits) - 1
    batch, x = train_encoded(joined, settings, schema, callbacks, checkpoint)
    trees = [
        clone(model.estimator)._adopt(batch, rows, fold, batch.best_start(fold))
        for fold, rows in enumerate(joined[:-1])
    ]
    encoded = x.of_split(last)[: len(joined[-1])]
    trees.append(clone(model.estimator)._adopt_best(batch, joined[-1], last, encoded))
    return batch, trees, fits_of(batch, last, settings)

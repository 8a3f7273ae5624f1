"""Candidates on folds: one batch for all that have depth, leaf, encodings and kind of start in common."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal, NamedTuple, Self, get_args

import numpy as np
import numpy.typing as npt
import torch

from sstorch import metrics
from sstorch._types import FloatArray
from sstorch.data import Fold, Preprocessor, Schema, SurvivalData
from sstorch.data.folds import split, train_outside_score_inside
from sstorch.exceptions import DataError, TrainingError
from sstorch.fitted import FittedTree
from sstorch.groups.competing_validation import CompetingGroupValidation, held_out_groups_of_causes
from sstorch.groups.validation import GroupValidation, concordance_of_rows, held_out_groups
from sstorch.monitoring import ProgressBar
from sstorch.soft.batch import TrainedBatch, train_batch, with_heats
from sstorch.soft.candidates import FAMILIES, Candidate, leaf_label
from sstorch.soft.estimator import SoftEstimator
from sstorch.soft.settings import BatchSettings

Scoring = Literal["log_likelihood", "c_harrell", "ibs"]
SCORINGS: tuple[str, ...] = get_args(Scoring)
Scorer = Callable[[Any, Any, Any], float]

# A rung of the halving has so many times the starts of the one before and keeps one of so many candidates.
_FACTOR = 3
# Leaves that a growing search takes to the next depth, and to groups, whose levels and shapes matter less.
_LEAVES, _LEAVES_OF_GROUPS = 2, 1
# From this depth on each keeps the ridge on its gates: at depth 1 the best is not yet that of larger trees.
_GATES_SETTLED = 2


def check_held_out(rows: SurvivalData, train: SurvivalData, scoring: object) -> None:
    """Make sure, before any training, that a score is defined for these rows.

    Raises:
        DataError: no two rows can be compared, their follow-up is too short, or rows entered late and the
            score knows no entry.
    """
    if scoring == "log_likelihood":
        return
    if scoring != "c_harrell" and (rows.entry.any() or train.entry.any()):
        raise DataError(
            f"scoring={scoring!r} takes every row as observed from time zero, and some entered later: use "
            "scoring='log_likelihood' or 'c_harrell'"
        )
    if isinstance(scoring, str):
        _curve_score(rows, train, scoring, lambda times: np.full((len(rows), len(times)), 0.5))


class HeldOutRows:
    """Test rows of a fold, encoded once for all trees of the fold.

    Args:
        rows: the test rows.
        train: the fold's training rows, from which censoring weights come.
        preprocessor: fitted on the training rows.
    """

    def __init__(self, rows: SurvivalData, train: SurvivalData, preprocessor: Preprocessor) -> None:
        self._rows, self._train, self._preprocessor = rows, train, preprocessor

    def score(self, tree: FittedTree, scoring: str) -> float:
        """Score of one trained tree; greater is better, and -inf is possible.

        Args:
            tree: trained on the fold's training rows.
            scoring: ``"log_likelihood"``, mean per row; ``"c_harrell"``, concordance of the curves, of
                competing causes the mean of that of their incidences; ``"ibs"``, the integrated Brier score
                of convention ``"graf"`` with its sign turned.
        """
        rows, x = self._rows, self._x.to(tree.module.log_time_scale)
        if scoring == "log_likelihood":
            return tree.log_likelihood(x, rows)
        if tree.competing:
            return _incidence_score(rows, self._train, scoring, lambda times: tree.incidence(x, times))
        return _curve_score(rows, self._train, scoring, lambda times: tree.curves(x, times, falling=True))

    def concordance(self, tree: FittedTree) -> float:
        """That of the curves of one tree; nan where no row has an event, or times are intervals."""
        return self.score(tree, "c_harrell") if self._ordered else np.nan

    def concordance_of_groups(self, tree: FittedTree) -> float:
        """That of a model that knows only the group of a row; nan for one group, too."""
        if not tree.module.topology.depth or not self._ordered:
            return np.nan
        known = tree.apply(self._train_x.to(tree.module.log_time_scale))
        group = tree.apply(self._x.to(tree.module.log_time_scale))
        return concordance_of_rows(group, self._rows, known, self._train)

    @property
    def _ordered(self) -> bool:
        """Whether it is known who of two rows had the event first, of some."""
        return bool(self._rows.event.any()) and self._rows.intervals is None

    @cached_property
    def _x(self) -> torch.Tensor:
        return torch.as_tensor(self._preprocessor.transform(self._rows.frame))

    @cached_property
    def _train_x(self) -> torch.Tensor:
        return torch.as_tensor(self._preprocessor.transform(self._train.frame))


def _curve_score(
    rows: SurvivalData, train: SurvivalData, scoring: str, curves: Callable[[FloatArray], FloatArray]
) -> float:
    weight = rows.sample_weight
    if scoring == "c_harrell":
        times = metrics.thinned(rows.event_times, len(rows))
        if len(times) == 0:
            raise DataError(
                "no row left out has an event, so no two rows can be compared: choose fewer folds"
            )
        return metrics.concordance_harrell(rows.y, curves(times), times, sample_weight=weight)
    grid = metrics.thinned(metrics.evaluation_times(rows.time, train.time, "graf"), len(rows))
    return -metrics.integrated_brier_score(
        rows.y,
        curves(grid),
        grid,
        train=train.y,
        convention="graf",
        sample_weight=weight,
    )


def _incidence_score(
    rows: SurvivalData, train: SurvivalData, scoring: str, incidences: Callable[[FloatArray], FloatArray]
) -> float:
    """Mean over the causes that a fold has of the score of their incidences."""
    present = [k for k in range(1, len(rows.cause_names) + 1) if (rows.cause == k).any()]
    if not present:
        raise DataError("no row left out has an event, so no two rows can be compared: choose fewer folds")
    y = rows.weighted_y
    if scoring == "c_harrell":
        times = metrics.thinned(rows.event_times, len(rows) * len(rows.cause_names))
        found = incidences(times)
        return float(
            np.mean([metrics.concordance_harrell(y.of_cause(k), 1 - found[:, k - 1], times) for k in present])
        )
    grid = metrics.thinned(metrics.evaluation_times(rows.time, train.time, "graf"), len(rows))
    found = incidences(grid)
    scores = [
        metrics.integrated_brier_score_incidence(y, found, grid, cause=k, train=train.y) for k in present
    ]
    return -float(np.mean(scores))


@dataclass(frozen=True)
class Scores:
    """Scores of the candidates of a search.

    Attributes:
        candidates: those that were scored.
        folds: held-out score of each candidate on each fold, greater is better, shape (C, n_folds); -inf
            where no start has a finite objective.
        concordance: of each candidate's curves on each fold, shape (C, n_folds); nan without events there.
        groups: that of its groups alone, likewise; nan for a single leaf, too.
        seconds: share of the time of its batches, shape (C,).
        rung: the last rung of a halving that each candidate reached, from 0, shape (C,).
        starts: starts with which it was scored last, shape (C,).
        trees: the chosen tree of each candidate on each fold, by candidate; None where no start has a finite
            objective.
    """

    candidates: Sequence[Candidate]
    folds: FloatArray
    concordance: FloatArray
    groups: FloatArray
    seconds: FloatArray
    rung: npt.NDArray[np.int64]
    starts: npt.NDArray[np.int64]
    trees: Sequence[Sequence[FittedTree | None]] = ()

    @classmethod
    def once(
        cls,
        candidates: Sequence[Candidate],
        scores: FloatArray,
        seconds: FloatArray,
        trees: Sequence[Sequence[FittedTree | None]],
    ) -> Self:
        """Of candidates that were scored once, with all their starts, by the three kinds of ``scores``."""
        starts = np.array([each.n_starts for each in candidates])
        folds, concordance, groups = scores
        rung = np.zeros(len(candidates), dtype=np.int64)
        return cls(candidates, folds, concordance, groups, seconds, rung, starts, trees)

    @property
    def mean(self) -> FloatArray:
        """Mean over folds, shape (C,)."""
        mean: FloatArray = self.folds.mean(axis=1)
        return mean

    @property
    def std(self) -> FloatArray:
        """Standard deviation over folds, shape (C,); NaN where a score is infinite."""
        with np.errstate(invalid="ignore"):
            std: FloatArray = self.folds.std(axis=1, ddof=1)
        return std

    @property
    def standard_error(self) -> FloatArray:
        """Of the mean, shape (C,)."""
        return self.std / math.sqrt(self.folds.shape[1])

    @property
    def rank(self) -> npt.NDArray[np.int64]:
        """1 for the best: those of a later rung first, then by mean score; the first of a tie is better.

        Means that agree in four decimals are a tie: a gate that its penalty has put to sleep leaves the same
        tree as one less, but for rounding.
        """
        order = np.lexsort((-self.mean.round(4), -self.rung))
        rank = np.empty(len(order), dtype=np.int64)
        rank[order] = np.arange(1, len(order) + 1)
        return rank


class FoldSearch:
    """Trains and scores candidates on the same folds.

    Preprocessing, time scale, starts and the choice of the start come from the training rows of each fold.

    Args:
        make: the estimator of a candidate.
        data: all rows.
        folds: fold of each row, shape (n,).
        schema: columns and vocabulary that all folds share.
        scoring: name of a score, or a scorer of scikit-learn.
        verbose: whether progress is shown.

    Raises:
        DataError: a score is not defined on a fold.
    """

    def __init__(
        self,
        make: Callable[[Candidate], SoftEstimator],
        data: SurvivalData,
        folds: npt.NDArray[np.int64],
        schema: Schema,
        scoring: str | Scorer,
        verbose: bool = False,
    ) -> None:
        self._make, self._schema, self._scoring, self._verbose = make, schema, scoring, verbose
        self._data, self._place = data, folds
        self._folds = split(data, folds)
        for fold in self._folds:
            check_held_out(fold.test, fold.train, scoring)

    def grid(self, candidates: Sequence[Candidate]) -> Scores:
        """Train every candidate with all its starts."""
        return Scores.once(candidates, *self._scores(candidates))

    def growing(self, candidates: Sequence[Candidate]) -> Scores:
        """Regressions, then groups, then gates depth by depth, as long as these improve.

        The first stage compares all its candidates. Of every leaf the encodings, their roughness and the
        ridge that are best there are kept, and the ridge on the gates that is best at depth 2, or the first
        depth beyond. Groups have the best leaf; each depth of gates has the two that are best at the stage
        before, and is the last if it is no better than regressions and shallower gates. What is not scored is
        not among the candidates of the result.
        """
        scored: list[tuple[Candidate, FloatArray, float, list[FittedTree | None]]] = []
        settled: dict[str, tuple[object, ...]] = {}
        gate_ridges: dict[str, float] = {}
        leaves, best = list({leaf_label(each.leaf): None for each in candidates}), -np.inf
        n_leaves = n_leaves_of_groups = len(leaves)
        for stage in sorted({_stage(each) for each in candidates}):
            family, depth = FAMILIES[stage[0]], stage[1]
            among = leaves[: n_leaves_of_groups if family == "groups" else n_leaves]
            level = [
                each
                for each in candidates
                if _stage(each) == stage
                and leaf_label(each.leaf) in among
                and settled.get(leaf_label(each.leaf), each.settled) == each.settled
                and (
                    family != "gates"
                    or gate_ridges.get(leaf_label(each.leaf), each.gate_ridge) == each.gate_ridge
                )
            ]
            scores, seconds, trees = self._scores(level)
            scored += zip(level, scores.swapaxes(0, 1), seconds.tolist(), trees, strict=True)
            if family == "groups":
                continue
            # In four decimals, as `Scores.rank` compares.
            means = scores[0].mean(axis=1).round(4)
            if not np.isfinite(means.max()) and not np.isfinite(best):
                continue  # nothing here could be trained: all leaves, encodings and ridges go on
            if not means.max() > best:
                break
            best = means.max()
            leading: dict[str, Candidate] = {}
            for number in np.argsort(-means, kind="stable").tolist():
                leading.setdefault(leaf_label(level[number].leaf), level[number])
            settled = settled or {leaf: each.settled for leaf, each in leading.items()}
            if depth >= _GATES_SETTLED:
                gate_ridges = gate_ridges or {leaf: each.gate_ridge for leaf, each in leading.items()}
            leaves, n_leaves, n_leaves_of_groups = list(leading), _LEAVES, _LEAVES_OF_GROUPS
        those, found, spent, kept = zip(*scored, strict=True)
        return Scores.once(those, np.stack(found, axis=1), np.array(spent), kept)

    def halving(self, candidates: Sequence[Candidate]) -> Scores:
        """Successive halving: all with few starts, the best third with three times as many, and so on.

        References:
            Jamieson and Talwalkar (2016), "Non-stochastic best arm identification and hyperparameter
            optimization".
        """
        scores = np.empty((3, len(candidates), len(self._folds)))
        seconds = np.zeros(len(candidates))
        trees: list[list[FittedTree | None]] = [[] for _ in candidates]
        rung, starts = np.zeros((2, len(candidates)), dtype=np.int64)
        alive = np.arange(len(candidates))
        for number, count in enumerate(rungs(max(each.n_starts for each in candidates))):
            if number:
                order = np.argsort(-scores[0, alive].mean(axis=1), kind="stable")
                alive = np.sort(alive[order[: -(-len(alive) // _FACTOR)]])
            left = [candidates[place] for place in alive.tolist()]
            left = [replace(each, n_starts=min(count, each.n_starts)) for each in left]
            scores[:, alive], spent, found = self._scores(left)
            for place, own in zip(alive.tolist(), found, strict=True):
                trees[place] = own
            seconds[alive] += spent
            rung[alive], starts[alive] = number, [each.n_starts for each in left]
        folds, concordance, groups = scores
        return Scores(candidates, folds, concordance, groups, seconds, rung, starts, trees)

    def validate_groups(self, scores: Scores, place: int) -> GroupValidation | CompetingGroupValidation:
        """Validate the groups of the trees with which a candidate was scored; nothing is trained again.

        Args:
            scores: of this search.
            place: of the candidate, whose scores are finite on all folds.

        Raises:
            DataError: a fold has no comparable pairs.
        """
        groups = [tree.group_of(self._data.frame) for tree in scores.trees[place] if tree is not None]
        held_out = held_out_groups if self._data.causes is None else held_out_groups_of_causes
        return held_out(self._data, self._place, np.stack(groups))

    def train(self, candidates: Sequence[Candidate]) -> TrainedBatch:
        """Train candidates of one batch on every fold: all starts at all their coefficients."""
        return self._train_on([fold.train for fold in self._folds], candidates)

    def _train_on(self, splits: Sequence[SurvivalData], candidates: Sequence[Candidate]) -> TrainedBatch:
        counts = [each.n_starts for each in candidates]
        settings = replace(self._settings(candidates[0]), n_starts=max(counts))
        if len(set(counts)) > 1:
            # Fewer starts are the first of the most: none may be dropped on account of later ones.
            settings = replace(settings, trainer=with_heats(settings.trainer, 0))
        callbacks = [ProgressBar()] if self._verbose else []
        coefficients = list(dict.fromkeys(self._settings(each).coefficients for each in candidates))
        return train_batch(splits, settings, self._schema, callbacks, coefficients=coefficients)

    def _settings(self, candidate: Candidate) -> BatchSettings:
        return self._make(candidate)._batch_settings()

    def _scores(
        self, candidates: Sequence[Candidate]
    ) -> tuple[FloatArray, FloatArray, list[list[FittedTree | None]]]:
        """Of :class:`Scores`: its three kinds of scores, (3, C, n_folds), ``seconds`` and ``trees``."""
        scores = np.empty((3, len(candidates), len(self._folds)))
        seconds = np.empty(len(candidates))
        trees: list[list[FittedTree | None]] = [[] for _ in candidates]
        batches: dict[tuple[object, ...], list[int]] = {}
        for number, candidate in enumerate(candidates):
            batches.setdefault(candidate.batch, []).append(number)
        for numbers in batches.values():
            begin = time.perf_counter()
            own = [candidates[number] for number in numbers]

            def train(
                splits: list[SurvivalData], own: list[Candidate] = own
            ) -> Iterator[tuple[int, TrainedBatch]]:
                batch = self._train_on(splits, own)
                yield from ((fold, batch) for fold in range(len(splits)))

            def score(fold: Fold, batch: TrainedBatch, own: list[Candidate] = own) -> list[_Scored]:
                of_fold = self._score_of(batch, fold)
                return [of_fold(each) for each in own]

            for fold, found in enumerate(train_outside_score_inside(self._folds, train, score)):
                for number, (values, tree) in zip(numbers, found, strict=True):
                    scores[:, number, fold] = values
                    trees[number].append(tree)
            seconds[numbers] = (time.perf_counter() - begin) / len(numbers)
        return scores, seconds, trees

    def _score_of(self, batch: TrainedBatch, fold: Fold) -> Callable[[Candidate], _Scored]:
        """Score, concordance and that of the groups alone of a candidate of a batch, and its tree."""
        scoring, test, split = self._scoring, fold.test, fold.number
        rows = HeldOutRows(test, fold.train, batch.preprocessors[split])
        known: dict[int, _Scored] = {}

        def score(candidate: Candidate) -> _Scored:
            setting = batch.coefficients.index(self._settings(candidate).coefficients)
            try:
                start = batch.best_start(split, setting, candidate.n_starts)
            except TrainingError:
                return _Scored((-np.inf, np.nan, np.nan), None)
            position = batch.position(split, start, setting)
            if position not in known:
                fitted = batch.fitted(split, start, setting)
                if isinstance(scoring, str):
                    value = rows.score(fitted, scoring)
                else:
                    tree = self._make(candidate)._adopt(batch, fold.train, split, start, setting)
                    value = float(scoring(tree, test.frame, test.given_y))
                concordance = value if scoring == "c_harrell" else rows.concordance(fitted)
                known[position] = _Scored((value, concordance, rows.concordance_of_groups(fitted)), fitted)
            if np.isnan(known[position].values[0]):
                raise DataError(
                    f"the score of fold {split} is not defined (NaN): choose fewer folds or another"
                )
            return known[position]

        return score


class _Scored(NamedTuple):
    """Three scores of a candidate on a fold, as in :class:`Scores`, and its tree there."""

    values: tuple[float, float, float]
    tree: FittedTree | None


def _stage(candidate: Candidate) -> tuple[int, int]:
    """When a growing search comes to a candidate: groups of all depths at once."""
    return FAMILIES.index(candidate.family), candidate.depth if candidate.family == "gates" else 0


def rungs(n_starts: int) -> list[int]:
    """Starts at each rung of the halving, the last all of them."""
    counts = [n_starts]
    while counts[0] > 1:
        counts.insert(0, counts[0] // _FACTOR or 1)
    return counts

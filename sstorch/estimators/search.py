"""Candidates on folds: one batch for all that have depth, leaf and kind of start in common."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.base import clone

from sstorch.data import Schema, SurvivalData
from sstorch.estimators.batch import TrainedBatch, train_batch, with_heats
from sstorch.estimators.grid import Candidate, leaf_label
from sstorch.estimators.held_out import HeldOutRows, check_held_out
from sstorch.estimators.soft_survival_tree import SoftSurvivalTree
from sstorch.exceptions import DataError, TrainingError
from sstorch.monitoring import ProgressBar

FloatArray = npt.NDArray[np.float64]
Scorer = Callable[[Any, Any, Any], float]

# A rung of the halving has so many times the starts of the one before and keeps one of so many candidates.
_FACTOR = 3
# Leaf families that a growing search takes to the next depth.
_FAMILIES = 2
# From this depth on each keeps the ridge on its gates: at depth 1 the best is not yet that of larger trees.
_GATES_SETTLED = 2


@dataclass(frozen=True)
class Scores:
    """What a search found out about its candidates.

    Attributes:
        candidates: those that were scored.
        folds: held-out score of each candidate on each fold, greater is better, shape (C, n_folds); -inf
            where no start has a finite objective.
        seconds: share of the time of its batches, shape (C,).
        rung: the last rung of a halving that each candidate reached, from 0, shape (C,).
        starts: starts with which it was scored last, shape (C,).
    """

    candidates: Sequence[Candidate]
    folds: FloatArray
    seconds: FloatArray
    rung: npt.NDArray[np.int64]
    starts: npt.NDArray[np.int64]

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
        estimator: parameters that all candidates have.
        data: all rows.
        folds: fold of each row, shape (n,).
        schema: columns and vocabulary that all folds share.
        scoring: name of a score, or a scorer of scikit-learn.

    Raises:
        DataError: a score is not defined on a fold.
    """

    def __init__(
        self,
        estimator: SoftSurvivalTree,
        data: SurvivalData,
        folds: npt.NDArray[np.int64],
        schema: Schema,
        scoring: str | Scorer,
    ) -> None:
        self._estimator, self._schema, self._scoring = estimator, schema, scoring
        numbers = range(int(folds.max()) + 1)
        self._train = [data.subset(folds != fold) for fold in numbers]
        self._test = [data.subset(folds == fold) for fold in numbers]
        for test, train in zip(self._test, self._train, strict=True):
            check_held_out(test, train, scoring)

    def grid(self, candidates: Sequence[Candidate]) -> Scores:
        """Train every candidate with all its starts."""
        folds, seconds = self._scores(candidates)
        return _once(candidates, folds, seconds)

    def growing(self, candidates: Sequence[Candidate]) -> Scores:
        """Depth by depth, as long as the best of a depth is better than all shallower ones.

        The first depth compares all its candidates. Of every leaf family the ridge that is best there is
        kept, and the ridge on the gates that is best at depth 2, or the first depth beyond; each further
        depth compares the two families that are best at the depth before. What is not scored is not among
        the candidates of the result.
        """
        found: list[tuple[Candidate, FloatArray, float]] = []
        ridges: dict[str, float] = {}
        gate_ridges: dict[str, float] = {}
        families, best = {leaf_label(own.leaf) for own in candidates}, -np.inf
        for depth in sorted({own.depth for own in candidates}):
            level = [
                own
                for own in candidates
                if own.depth == depth
                and leaf_label(own.leaf) in families
                and ridges.get(leaf_label(own.leaf), own.ridge) == own.ridge
                and gate_ridges.get(leaf_label(own.leaf), own.gate_ridge) == own.gate_ridge
            ]
            folds, seconds = self._scores(level)
            found += zip(level, folds, seconds.tolist(), strict=True)
            # In four decimals, as `Scores.rank` compares.
            means = folds.mean(axis=1).round(4)
            if not np.isfinite(means.max()) and not np.isfinite(best):
                continue  # nothing here could be trained: all leaves and ridges go on
            if not means.max() > best:
                break
            best = means.max()
            leading: dict[str, Candidate] = {}
            for number in np.argsort(-means, kind="stable").tolist():
                leading.setdefault(leaf_label(level[number].leaf), level[number])
            ridges = ridges or {leaf: own.ridge for leaf, own in leading.items()}
            if depth >= _GATES_SETTLED:
                gate_ridges = gate_ridges or {leaf: own.gate_ridge for leaf, own in leading.items()}
            families = set(list(leading)[:_FAMILIES])
        scored, scores, spent = zip(*found, strict=True)
        return _once(scored, np.stack(scores), np.array(spent))

    def halving(self, candidates: Sequence[Candidate]) -> Scores:
        """Successive halving: all with few starts, the best third with three times as many, and so on.

        References:
            Jamieson and Talwalkar (2016), "Non-stochastic best arm identification and hyperparameter
            optimization".
        """
        folds = np.empty((len(candidates), len(self._train)))
        seconds = np.zeros(len(candidates))
        rung, starts = np.zeros((2, len(candidates)), dtype=np.int64)
        alive = np.arange(len(candidates))
        for number, count in enumerate(rungs(max(own.n_starts for own in candidates))):
            if number:
                order = np.argsort(-folds[alive].mean(axis=1), kind="stable")
                alive = np.sort(alive[order[: -(-len(alive) // _FACTOR)]])
            own = [
                replace(candidates[c], n_starts=min(count, candidates[c].n_starts)) for c in alive.tolist()
            ]
            folds[alive], spent = self._scores(own)
            seconds[alive] += spent
            rung[alive], starts[alive] = number, [candidate.n_starts for candidate in own]
        return Scores(candidates, folds, seconds, rung, starts)

    def train(self, candidates: Sequence[Candidate]) -> TrainedBatch:
        """Train candidates of one batch on every fold: all starts at all their coefficients."""
        first, counts = candidates[0], [own.n_starts for own in candidates]
        settings = clone(self._estimator).set_params(**first.parameters).settings()
        settings = replace(settings, n_starts=max(counts))
        if len(set(counts)) > 1:
            # Fewer starts are the first of the most: none may be dropped on account of later ones.
            settings = replace(settings, trainer=with_heats(settings.trainer, 0))
        callbacks = [ProgressBar()] if self._estimator.verbose else []
        return train_batch(self._train, settings, self._schema, callbacks, coefficients=_settings(candidates))

    def _scores(self, candidates: Sequence[Candidate]) -> tuple[FloatArray, FloatArray]:
        folds, seconds = np.empty((len(candidates), len(self._train))), np.empty(len(candidates))
        batches: dict[tuple[object, ...], list[int]] = {}
        for number, candidate in enumerate(candidates):
            batches.setdefault(candidate.batch, []).append(number)
        for numbers in batches.values():
            begin = time.perf_counter()
            own = [candidates[number] for number in numbers]
            batch, settings = self.train(own), _settings(own)
            for fold in range(len(self._train)):
                score = self._score_of(batch, fold)
                for number, candidate in zip(numbers, own, strict=True):
                    folds[number, fold] = score(candidate, settings.index(candidate.coefficients))
            seconds[numbers] = (time.perf_counter() - begin) / len(numbers)
        return folds, seconds

    def _score_of(self, batch: TrainedBatch, fold: int) -> Callable[[Candidate, int], float]:
        """The score on a fold of a candidate with the coefficients at a position of a batch."""
        train, test, estimator, scoring = self._train[fold], self._test[fold], self._estimator, self._scoring
        rows = None
        if isinstance(scoring, str):
            rows = HeldOutRows(test, train, batch.preprocessors[fold], scoring, estimator.prediction)
        known: dict[int, float] = {}

        def score(candidate: Candidate, setting: int) -> float:
            try:
                start = batch.best_start(fold, setting, candidate.n_starts)
            except TrainingError:
                return -np.inf
            position = batch.position(fold, start, setting)
            if position not in known:
                if rows is not None:
                    known[position] = rows.score(batch.tree.select(position))
                else:
                    tree = clone(estimator).set_params(**candidate.parameters)
                    tree.adopt(batch, train, fold, start, setting)
                    known[position] = float(scoring(tree, test.frame, (test.given_time, test.event)))  # type: ignore[operator]
            if np.isnan(known[position]):
                raise DataError(
                    f"the score of fold {fold} is not defined (NaN): choose fewer folds or another"
                )
            return known[position]

        return score


def _once(candidates: Sequence[Candidate], folds: FloatArray, seconds: FloatArray) -> Scores:
    """Scores of candidates that were scored once, with all their starts."""
    starts = np.array([own.n_starts for own in candidates])
    return Scores(candidates, folds, seconds, np.zeros(len(candidates), dtype=np.int64), starts)


def rungs(n_starts: int) -> list[int]:
    """Starts at each rung of the halving, the last all of them."""
    counts = [n_starts]
    while counts[0] > 1:
        counts.insert(0, counts[0] // _FACTOR or 1)
    return counts


def _settings(candidates: Sequence[Candidate]) -> list[Any]:
    """Their different coefficients, in order."""
    return list(dict.fromkeys(candidate.coefficients for candidate in candidates))

"""Candidates on folds: one batch for all that have depth, leaf, encodings and kind of start in common."""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt
import torch
from sklearn.base import clone

from sstorch import metrics
from sstorch._types import FloatArray
from sstorch.data import Preprocessor, Schema, SurvivalData
from sstorch.data.encodings import ColumnEncodings
from sstorch.exceptions import ConfigError, DataError, TrainingError
from sstorch.monitoring import ProgressBar
from sstorch.nn import HazardFamily, Prediction, SoftTree
from sstorch.soft.batch import TrainedBatch, train_batch, with_heats
from sstorch.soft.fitted import FittedTree
from sstorch.soft.settings import Coefficients
from sstorch.soft.tree import SoftSurvivalTree

Scoring = Literal["log_likelihood", "c_harrell", "ibs"]
SCORINGS: tuple[str, ...] = get_args(Scoring)
Scorer = Callable[[Any, Any, Any], float]

# What leaf="auto" stands for where times are continuous, and where they are grouped: events at no more than
# so many distinct times, as where whole years were recorded.
CONTINUOUS_LEAVES = ("log_logistic", "spline_ph", "spline_po")
GROUPED_LEAVES = ("logistic_hazard",)
MAX_GROUPS = 12
# Least share of those censored before the last event who are so at times of events, too: the leaf takes one
# who goes in the middle of an interval for free of the event until then.
_ON_GROUPS = 0.8
# What numeric="auto" stands for where there are so many events, and where there are fewer: too few to tell a
# curve from noise.
CURVED_ENCODINGS = ("linear", "log", "piecewise", "spline")
STRAIGHT_ENCODINGS = ("linear", "log")
MIN_EVENTS = 100
# A rung of the halving has so many times the starts of the one before and keeps one of so many candidates.
_FACTOR = 3
# Leaf families that a growing search takes to the next depth.
_FAMILIES = 2
# From this depth on each keeps the ridge on its gates: at depth 1 the best is not yet that of larger trees.
_GATES_SETTLED = 2


@dataclass(frozen=True)
class Candidate:
    """Parameters of :class:`~sstorch.SoftSurvivalTree` that are compared, by the same names.

    Attributes:
        place: of numeric, leaf and init in their lists, and of the candidate among all.
    """

    depth: int
    leaf: str | HazardFamily
    numeric: ColumnEncodings
    init: str
    n_starts: int
    ridge: float
    gate_ridge: float
    fused: float
    roughness: float
    place: tuple[int, int, int, int]

    @property
    def parameters(self) -> dict[str, Any]:
        """Parameters of the estimator, encodings as text."""
        return {name: getattr(self, name) for name in SEARCHED} | {"numeric": self.numeric.plain}

    @property
    def simplicity(self) -> tuple[float, ...]:
        """Sorts candidates, the simplest first.

        Few gates, then straight lines before logarithms before curves, then the earlier encoding, leaf and
        start of the lists, few starts, and leaves and gates that are held together or back the most.
        """
        shape = not self.numeric.is_linear, self.numeric.is_curved
        *places, number = self.place
        held = self.fused, self.gate_ridge, self.ridge, self.roughness
        return self.depth, *shape, *places, self.n_starts, *(-each for each in held), number

    @property
    def batch(self) -> tuple[object, ...]:
        """The parameters that candidates of one batch have in common."""
        return self.depth, leaf_label(self.leaf), self.numeric, self.init

    @property
    def settled(self) -> tuple[object, ...]:
        """The parameters that a growing search chooses at its first depth, for each leaf."""
        return self.numeric, self.ridge, self.roughness

    @property
    def coefficients(self) -> Coefficients:
        """Of the penalties."""
        return Coefficients(self.ridge, self.gate_ridge, self.fused, roughness=self.roughness)

    def row(self) -> dict[str, Any]:
        """As a row of a table."""
        return {**self.parameters, "leaf": leaf_label(self.leaf), "numeric": str(self.numeric)}


# Several values of these are compared; in this order candidates are listed.
SEARCHED = tuple(item.name for item in fields(Candidate) if item.name != "place")


def candidates(lists: Mapping[str, object]) -> list[Candidate]:
    """Every choice of one value of each list.

    A single leaf has no gates to start or to hold back and nothing to be fused with: at depth 0 leaf,
    encodings and what holds these back are compared, with one start. Encodings without curves have no
    roughness.

    Args:
        lists: values, or one, of each of ``SEARCHED``.

    Raises:
        ConfigError: a list is empty or names a value twice.
    """
    values = {name: _values(name, lists[name]) for name in SEARCHED}
    listed = []
    for number, choice in enumerate(itertools.product(*(enumerate(values[name]) for name in SEARCHED))):
        at = {name: place for name, (place, _) in zip(SEARCHED, choice, strict=True)}
        parameters = {name: value for name, (_, value) in zip(SEARCHED, choice, strict=True)}
        if parameters["depth"] == 0:
            if at["init"] or at["n_starts"] or at["gate_ridge"] or at["fused"]:
                continue
            parameters |= {"n_starts": 1, "gate_ridge": 0.0, "fused": 0.0}
        if not parameters["numeric"].is_curved:
            if at["roughness"]:
                continue
            parameters |= {"roughness": 0.0}
        place = at["numeric"], at["leaf"], at["init"], number
        listed.append(Candidate(**parameters, place=place))
    return listed


def automatic_leaves(leaf: object, rows: SurvivalData | None) -> object:
    """Leaves as they are given, or those that ``"auto"`` stands for.

    Args:
        leaf: one leaf or several, or ``"auto"``.
        rows: the data; None if they are not known yet: then ``"auto"`` stands for every leaf that it may
            stand for.
    """
    if not isinstance(leaf, str) or leaf != "auto":
        return leaf
    if rows is None:
        return tuple(dict.fromkeys((*CONTINUOUS_LEAVES, *GROUPED_LEAVES)))
    return GROUPED_LEAVES if _is_grouped(rows) else CONTINUOUS_LEAVES


def automatic_encodings(numeric: object, rows: SurvivalData | None, monotone: object = None) -> object:
    """Encodings of numeric columns as they are given, or those that ``"auto"`` stands for.

    Args:
        numeric: encodings for all columns or by column, or several of these, or ``"auto"``.
        rows: the data; None if they are not known yet: then ``"auto"`` stands for every encoding that it may
            stand for.
        monotone: columns whose effect goes one way: then without splines, which can turn.
    """
    if not isinstance(numeric, str) or numeric != "auto":
        return numeric
    encodings = CURVED_ENCODINGS if rows is None or rows.event.sum() >= MIN_EVENTS else STRAIGHT_ENCODINGS
    return tuple(each for each in encodings if not (monotone and each == "spline"))


def _is_grouped(rows: SurvivalData) -> bool:
    """True if times were recorded in few whole units, those of people lost on the way, too."""
    event_times = rows.time[rows.event]
    groups = np.unique(event_times)
    if len(groups) > min(MAX_GROUPS, len(event_times) / 2):
        return False
    lost = rows.time[~rows.event & (rows.time < groups[-1])]
    return len(lost) == 0 or float(np.isin(lost, groups).mean()) >= _ON_GROUPS


def leaf_label(leaf: str | HazardFamily) -> str:
    """Name of a leaf in tables: that of the family, with its options if it is given as an object."""
    return leaf if isinstance(leaf, str) else f"{leaf.name}({leaf.extra_repr()})"


def _values(name: str, given: object) -> Sequence[Any]:
    single = isinstance(given, str | HazardFamily | Mapping) or not isinstance(given, Iterable)
    values: list[Any] = [given] if single else list(given)  # type: ignore[call-overload]
    values = [value.item() if isinstance(value, np.generic) else value for value in values]
    if name == "numeric":
        values = [ColumnEncodings.of(value) for value in values]
        if any(value.is_automatic for value in values):
            raise ConfigError(
                "numeric must be one of linear, log, piecewise, spline for each candidate, or 'auto' alone, "
                f"got {given!r}"
            )
    labels = [leaf_label(value) if name == "leaf" else value for value in values]
    if not values or any(label in labels[:place] for place, label in enumerate(labels)):
        raise ConfigError(f"{name} must be a value, or different ones to compare, got {given!r}")
    return values


def check_held_out(rows: SurvivalData, train: SurvivalData, scoring: object) -> None:
    """Make sure, before any training, that a score is defined for these rows.

    Raises:
        DataError: no two rows can be compared, their follow-up is too short, or they entered late and the
            score knows no entry.
    """
    if scoring == "log_likelihood":
        return
    if rows.entry.any():
        raise DataError(
            f"scoring={scoring!r} takes every row as observed from time zero, and some entered later: use "
            "scoring='log_likelihood'"
        )
    if isinstance(scoring, str):
        _curve_score(rows, train, scoring, lambda times: np.full((len(rows), len(times)), 0.5))


class HeldOutRows:
    """Rows of a fold that its trees were not trained on, encoded once for all of them.

    Args:
        rows: the rows left out.
        train: the fold's training rows, from which censoring weights come.
        preprocessor: fitted on the training rows.
        scoring: ``"log_likelihood"``, mean per row; ``"c_harrell"``, concordance of the curves; ``"ibs"``,
            the integrated Brier score of convention ``"graf"`` with its sign turned.
        prediction: ``"hbp"`` or ``"mixture"``.
    """

    def __init__(
        self,
        rows: SurvivalData,
        train: SurvivalData,
        preprocessor: Preprocessor,
        scoring: str,
        prediction: Prediction,
    ) -> None:
        self._rows, self._train, self._scoring = rows, train, scoring
        self._preprocessor, self._prediction = preprocessor, prediction
        self._x = torch.as_tensor(preprocessor.transform(rows.frame))

    def score(self, module: SoftTree) -> float:
        """Score of one trained tree without batch dimension; greater is better, and -inf is possible."""
        rows, x = self._rows, self._x.to(module.log_time_scale)
        tree = FittedTree(module, self._preprocessor, self._prediction)
        if self._scoring == "log_likelihood":
            return tree.log_likelihood(x, rows.time, rows.event, rows.entry, rows.sample_weight)
        return _curve_score(
            rows, self._train, self._scoring, lambda times: tree.curves(x, times, falling=True)
        )


def _curve_score(
    rows: SurvivalData, train: SurvivalData, scoring: str, curves: Callable[[FloatArray], FloatArray]
) -> float:
    weight = rows.sample_weight
    if scoring == "c_harrell":
        times = np.unique(rows.time[rows.event])
        if len(times) == 0:
            raise DataError(
                "no row left out has an event, so no two rows can be compared: choose fewer folds"
            )
        return metrics.concordance_harrell(rows.time, rows.event, curves(times), times, sample_weight=weight)
    grid = metrics.evaluation_times(rows.time, train.time, "graf")
    return -metrics.integrated_brier_score(
        rows.time,
        rows.event,
        curves(grid),
        grid,
        train=(train.time, train.event),
        convention="graf",
        sample_weight=weight,
    )


@dataclass(frozen=True)
class Scores:
    """Scores of the candidates of a search.

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

        The first depth compares all its candidates. Of every leaf family the encodings, their roughness and
        the ridge that are best there are kept, and the ridge on the gates that is best at depth 2, or the
        first depth beyond; each further depth compares the two families that are best at the depth before.
        What is not scored is not among the candidates of the result.
        """
        scored: list[tuple[Candidate, FloatArray, float]] = []
        settled: dict[str, tuple[object, ...]] = {}
        gate_ridges: dict[str, float] = {}
        families, best = {leaf_label(each.leaf) for each in candidates}, -np.inf
        for depth in sorted({each.depth for each in candidates}):
            level = [
                each
                for each in candidates
                if each.depth == depth
                and leaf_label(each.leaf) in families
                and settled.get(leaf_label(each.leaf), each.settled) == each.settled
                and gate_ridges.get(leaf_label(each.leaf), each.gate_ridge) == each.gate_ridge
            ]
            folds, seconds = self._scores(level)
            scored += zip(level, folds, seconds.tolist(), strict=True)
            # In four decimals, as `Scores.rank` compares.
            means = folds.mean(axis=1).round(4)
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
            families = set(list(leading)[:_FAMILIES])
        those, scores, spent = zip(*scored, strict=True)
        return _once(those, np.stack(scores), np.array(spent))

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
        for number, count in enumerate(rungs(max(each.n_starts for each in candidates))):
            if number:
                order = np.argsort(-folds[alive].mean(axis=1), kind="stable")
                alive = np.sort(alive[order[: -(-len(alive) // _FACTOR)]])
            left = [candidates[place] for place in alive.tolist()]
            left = [replace(each, n_starts=min(count, each.n_starts)) for each in left]
            folds[alive], spent = self._scores(left)
            seconds[alive] += spent
            rung[alive], starts[alive] = number, [each.n_starts for each in left]
        return Scores(candidates, folds, seconds, rung, starts)

    def train(self, candidates: Sequence[Candidate]) -> TrainedBatch:
        """Train candidates of one batch on every fold: all starts at all their coefficients."""
        first, counts = candidates[0], [each.n_starts for each in candidates]
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
            together = [candidates[number] for number in numbers]
            batch, settings = self.train(together), _settings(together)
            for fold in range(len(self._train)):
                score = self._score_of(batch, fold)
                for number, candidate in zip(numbers, together, strict=True):
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
    starts = np.array([each.n_starts for each in candidates])
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

"""Rows and curves that are scored: outcomes read, curves of test rows predicted once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, NamedTuple, Protocol, Self, TypeGuard

import numpy as np
import numpy.typing as npt
import pandas as pd

from sstorch._types import FloatArray, IntArray
from sstorch.checks import check_after, check_same_order, has_method
from sstorch.data import Surv, SurvivalData, outcome_of
from sstorch.exceptions import DataError, named
from sstorch.metrics.checks import check_survival, check_times
from sstorch.metrics.concordance import uno_weights
from sstorch.metrics.curves import (
    conditional_curves,
    predict_curves,
    survival_at,
    thinned,
    thinned_together,
    times_from_zero,
)
from sstorch.metrics.integrated_brier import GrafIntegrals, evaluation_times
from sstorch.metrics.outcome import Observed, Outcome, read_rows
from sstorch.metrics.pairs import ComparablePairs, ComparedCurves, comparable_pairs
from sstorch.metrics.registry import Kind

Rows = SurvivalData | tuple[Any, Any]
Curves = tuple[npt.ArrayLike, npt.ArrayLike]
_WHAT = "this metric"


class PredictsSurvival(Protocol):
    """A fitted estimator: anything with this method."""

    def predict_survival_function(self, X: Any, times: Any) -> Any:
        """S(t | x), shape (n, n_times)."""


def predicts_survival(model: object) -> TypeGuard[PredictsSurvival]:
    """Whether an object is a :class:`PredictsSurvival`."""
    return has_method(model, "predict_survival_function")


@dataclass(frozen=True, eq=False)
class ScoredOutcome:
    """Outcomes of test and training rows and the times of scores: the same for all models."""

    y: Observed  # outcome of the test rows
    times: FloatArray  # the grid, shape (n_times,)
    train: Observed  # outcome of the training rows
    # For each convention with a grid of its own the columns of `times` that belong to it
    grids: dict[str, IntArray]

    @classmethod
    def of(
        cls,
        y: Outcome,
        train: Outcome,
        grids: Mapping[str, FloatArray],
        also: FloatArray | tuple[()] = (),
    ) -> Self:
        """Read outcomes, and join the times at which each convention reads the curves with further ones."""
        times = np.unique(np.concatenate([also, *grids.values()]))
        columns = {name: np.searchsorted(times, grid) for name, grid in grids.items()}
        rows, known = (read_rows(part, _WHAT, entry=True, weight=True) for part in (y, train))
        return cls(rows, times, known, columns)

    @cached_property
    def pairs(self) -> ComparablePairs:
        """The comparable pairs of the test rows."""
        return comparable_pairs(self.y)

    @cached_property
    def uno_weight(self) -> FloatArray:
        """1 / G^2 of each test row, (n,)."""
        return uno_weights(self.y, self.train)


@dataclass(frozen=True, eq=False)
class ScoredRows:
    """Test rows and their curves."""

    kind: ClassVar[Kind] = "event"

    outcome: ScoredOutcome  # of test and training rows
    survival: FloatArray  # predicted S on the times of `outcome`, shape (n, n_times)

    @property
    def y(self) -> Observed:
        """Outcome of the test rows."""
        return self.outcome.y

    @property
    def train(self) -> Observed:
        """Outcome of the training rows."""
        return self.outcome.train

    @property
    def times(self) -> FloatArray:
        """Times of the curves, shape (n_times,)."""
        return self.outcome.times

    @property
    def late(self) -> bool:
        """Whether test or training rows have entry times."""
        return self.y.entry is not None or self.train.entry is not None

    @classmethod
    def of(
        cls,
        model: PredictsSurvival | Curves,
        train: Rows | GivenRows,
        test: Rows | GivenRows,
        after: float | None = None,
    ) -> Self:
        """Predict, or take, the curves of the test rows; with `after`, those at risk then, from there.

        The model is an estimator, see `predict_curves`, or the pair (survival, times) of curves of the test
        rows; then X of `test` is not read.
        """
        known, given = split_rows(train, "train", model), split_rows(test, "test", model)
        curves = {"survival": model[0]} if _is_curves(model) else {}
        check_same_order(X=given.X, y=given.y, **curves)
        if _is_curves(model):
            grid = check_times(model[1])
            survival = check_survival(model[0], len(given.y), grid.size)
        known, (counted, given) = known.counted()[1], given.counted()
        if _is_curves(model):
            survival = survival[counted]
        observed = np.unique(given.rows.time)
        if after is not None:
            known = known.from_landmark(after, "train")[1]
            positions, given = given.from_landmark(after, "test")
            if _is_curves(model):
                survival, grid = _after(survival, grid, positions, after)
        X, rows, train_rows = given.X, given.rows, known.rows
        time, event = rows.time, rows.event
        if _is_curves(model):
            return cls(ScoredOutcome(rows, grid, train_rows, {}), survival)
        if isinstance(model, type):
            raise DataError(f"model must be a fitted estimator, got the class {model.__name__} itself.")
        if not predicts_survival(model):
            raise DataError(
                "model must be an estimator with predict_survival_function(X, times), or the pair "
                f"(survival, times) of curves, got {type(model).__name__}."
            )

        def from_zero(times: FloatArray) -> FloatArray:
            curves = predict_curves(model, X, times)
            check_same_order(X=X, survival=curves)
            return check_survival(curves, time.size, times.size)

        def predict(times: FloatArray) -> FloatArray:
            if after is None:
                return from_zero(times)
            at = np.append(after, times_from_zero(times, after, observed))
            distinct, place = np.unique(at, return_inverse=True)
            curves = from_zero(distinct)[:, place]
            return conditional_curves(curves[:, 0], curves[:, 1:], after)

        grids = default_grids(time, train_rows.time, ("graf", "sksurv", "surtree", "osst"))
        also = thinned(np.unique(time), time.size)
        if grids:  # which, if they are thinned, need not hold the horizon of calibration
            events = np.sort(time[event & (time > 0.0)])
            also = events[max(events.size - 1, 0) // 2 :][:1]
        outcome = ScoredOutcome.of(rows, train_rows, grids, also)
        return cls(outcome, predict(outcome.times))

    @cached_property
    def compared(self) -> ComparedCurves:
        """The curves compared at every event, for the concordances that share it."""
        return ComparedCurves.of_pairs(self.outcome.pairs, self.y, self.checked, self.times)

    @cached_property
    def checked(self) -> FloatArray:
        """The curves, once `check_survival` has passed them."""
        return check_survival(self.survival, len(self.survival), self.times.size)

    @cached_property
    def graf(self) -> GrafIntegrals:
        """Integrals of the curves, for the scores of Graf et al. that share them."""
        curves, times = self.on_grid("graf")
        return GrafIntegrals.of(self.y, curves, times)

    def on_grid(self, convention: str) -> tuple[FloatArray, FloatArray]:
        """Curves and times on the grid of a convention, or on the whole grid where it has none."""
        columns = self.outcome.grids.get(convention)
        if columns is None:
            return self.checked, self.times
        if columns.size and columns[-1] - columns[0] + 1 == columns.size:  # a view: many rows are large
            whole = slice(int(columns[0]), int(columns[-1]) + 1)
            return self.checked[:, whole], self.times[whole]
        return self.checked.T[columns].T, self.times[columns]


def default_grids(
    time: FloatArray, train_time: FloatArray, conventions: Iterable[str]
) -> dict[str, FloatArray]:
    """`evaluation_times` of each convention, without those that have too few: their metrics raise.

    With many rows they are `thinned_together`.
    """
    grids = {}
    for convention in conventions:
        with suppress(DataError):
            grids[convention] = evaluation_times(time, train_time, convention)
    return thinned_together(grids, time.size)


def some_rows(X: Any, rows: IntArray) -> Any:
    """Features of some rows of a frame or an array."""
    return X.iloc[rows] if isinstance(X, pd.DataFrame) else np.asarray(X)[rows]


class GivenRows(NamedTuple):
    """Features and outcome of rows."""

    X: Any
    y: Surv

    @property
    def rows(self) -> Observed:
        """The outcome as metrics read it."""
        return read_rows(self.y, _WHAT, entry=True, weight=True)

    def take(self, rows: IntArray, y: Surv) -> Self:
        """Features of some rows, with an outcome of theirs."""
        return type(self)(None if self.X is None else some_rows(self.X, rows), y)

    def counted(self) -> tuple[IntArray | slice, Self]:
        """Rows of positive weight: positions, and the rows."""
        if self.y.weight is None or self.y.weight.all():
            return slice(None), self
        rows = np.flatnonzero(self.y.weight)
        return rows, self.take(rows, self.y[rows])

    def from_landmark(self, after: float, name: str) -> tuple[IntArray, Self]:
        """Rows at risk at a time, followed from there, see `Surv.followed_from`: positions, and the rows."""
        with named(name):
            rows, later = self.y.followed_from(*check_after(after, 1))
        return rows, self.take(rows, later)


def _after(
    survival: FloatArray, grid: FloatArray, rows: IntArray, after: float
) -> tuple[FloatArray, FloatArray]:
    """Curves of some rows from a time on, given those of all from zero, and their grid."""
    later, some = grid > after, survival[rows]
    if not later.any():
        raise DataError(f"times: the curves end at {grid[-1]:g}, and after={after:g} is no earlier.")
    alive = survival_at(some, grid, np.full(rows.size, after))
    return conditional_curves(alive, some[:, later], after), grid[later] - after


def split_rows(rows: Rows | GivenRows, name: str, model: object = None) -> GivenRows:
    """Rows in one of the accepted forms, read; their outcome must be of the type of a fitted model."""
    if isinstance(rows, GivenRows):
        return rows
    X, y = (rows.frame, rows.weighted_y) if isinstance(rows, SurvivalData) else (None, None)
    given: object = rows
    if y is None and (not isinstance(given, tuple) or len(given) != 2):
        what = (
            f"{type(rows).__name__} of length {len(rows)}" if isinstance(rows, tuple | list) else type(rows)
        )
        raise DataError(f"{name} must be SurvivalData, or (X, y) with y a Surv, got {what}.")
    if y is None:
        X, y = rows  # type: ignore[misc]
    with named(name):
        outcome = outcome_of(model, y)
    check_same_order(X=X, y=outcome)
    if not len(outcome):
        raise DataError(f"{name}: the data have no rows")
    return GivenRows(X, outcome)


def _is_curves(model: object) -> TypeGuard[Curves]:
    return isinstance(model, tuple) and len(model) == 2

"""Rows and curves that are scored: outcomes read, curves of test rows predicted once; rows at one horizon."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any, ClassVar, NamedTuple, Protocol, Self, TypeGuard

import numpy as np
import numpy.typing as npt
import pandas as pd

from sstorch._types import BoolArray, FloatArray, IntArray
from sstorch.checks import check_after, check_horizon, check_same_order, has_method
from sstorch.data import Surv, SurvivalData, outcome_of
from sstorch.data.subjects import parse_subjects
from sstorch.data.target import time_of_rows
from sstorch.exceptions import DataError, named
from sstorch.metrics.checks import check_observed_horizon, check_probability, check_survival, check_times
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
from sstorch.metrics.outcome import Observed, ObservedCauses, Outcome, cause_number, read_causes, read_rows
from sstorch.metrics.pairs import ComparablePairs, ComparedCurves, comparable_pairs
from sstorch.metrics.registry import Kind
from sstorch.metrics.weights import by_subject

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


@dataclass(frozen=True, eq=False)
class HorizonRows:
    """Outcomes and predictions of n rows at one horizon; rows of weight 0 are excluded.

    Attributes:
        time: observed times, shape (n,).
        event: True for an observed event of any cause, shape (n,).
        interest: True for the event of interest, shape (n,); equals `event` without competing causes.
        survival: predicted probability that the event of interest has not happened by the horizon, (n,).
        t: the horizon, in the unit of `time`.
        weight: shape (n,); None if all weights are equal.
        entry: as in `Observed`, shape (n,); None without left truncation.
        subject: subject of each row, 0 .. n_subjects - 1, shape (n,); None if each row is a subject.
        competing: True with competing causes.
        expected: predicted cumulative hazard of each row during follow-up, up to the horizon, shape (n,);
            None if unknown.
    """

    time: FloatArray
    event: BoolArray
    interest: BoolArray
    survival: FloatArray
    t: float
    weight: FloatArray | None = None
    entry: FloatArray | None = None
    subject: IntArray | None = None
    competing: bool = False
    expected: FloatArray | None = None

    @classmethod
    def of(
        cls,
        y: Outcome,
        survival: npt.ArrayLike,
        t: float,
        *,
        sample_weight: npt.ArrayLike | None = None,
        cause: int | str | None = None,
        expected: FloatArray | None = None,
    ) -> Self:
        """Create rows from outcomes, predictions, weights and horizon, with checks.

        Args:
            y: a :class:`~sstorch.Surv`, or (time, event), n rows; (time, cause) if a cause is given.
            survival: predicted S_i(t), one probability per row, shape (n,); with competing causes one minus
                the cumulative incidence of the cause.
            t: the horizon, in the unit of `y`.
            sample_weight: weights of the rows, shape (n,); None for those of `y`.
            cause: number or name of the cause of interest, for competing causes; None for the first.
            expected: as in the class, shape (n,).

        Raises:
            DataError: invalid arguments (see `sstorch.checks`), interval-censored times, or a time outside
                the observed ones.
            ConfigError: t not > 0, or an unknown cause.
        """
        what = "a measure at one horizon"
        options: dict[str, Any] = {"entry": True, "weight": True, "sample_weight": sample_weight}
        options |= {"survival": survival, "expected": expected}
        competing = cause is not None or isinstance(y, ObservedCauses)
        if competing or (isinstance(y, Surv) and y.causes is not None):
            causes = read_causes(y, what, **options)
            seen, competing = causes.any_event, True
            interest = causes.cause == cause_number(y, 1 if cause is None else cause)
        else:
            seen = read_rows(y, what, **options)
            interest = seen.event
        n = seen.time.size
        horizon = time_of_rows(check_horizon(t, "t"), seen.time)
        predicted = check_probability(survival, "survival", n)
        id = y.id if isinstance(y, Surv | Observed) else None
        weight = seen.weight
        rows = cls(
            seen.time,
            seen.event,
            interest,
            predicted,
            horizon,
            weight,
            seen.entry,
            None if id is None else parse_subjects(id, n)[0],
            competing,
            expected,
        )
        if weight is not None:
            rows = rows.take(np.flatnonzero(weight > 0.0))
            rows = replace(rows, weight=None if np.ptp(rows.weights) == 0.0 else rows.weight)
        check_observed_horizon(horizon, rows.time, "t")
        return rows

    def __len__(self) -> int:
        return int(self.time.size)

    def take(self, rows: IntArray) -> Self:
        """Some rows, repetitions allowed."""
        parts: dict[str, Any] = {item.name: getattr(self, item.name) for item in fields(self)}
        parts = {name: part[rows] for name, part in parts.items() if isinstance(part, np.ndarray)}
        return replace(self, **parts)

    @property
    def y(self) -> Observed:
        """Outcome of the rows, of any cause."""
        return Observed(self.time, self.event, self.entry, self.weight, self.subject)

    @property
    def weights(self) -> FloatArray:
        """Weights, (n,); 1 if all are equal."""
        return np.ones(len(self)) if self.weight is None else self.weight

    @property
    def robust(self) -> bool:
        """True if standard errors use influences: unequal weights."""
        return self.weight is not None

    def up_to_horizon(self) -> Self:
        """Rows with follow-up censored at the horizon, without entries at the horizon or later."""
        rows = self
        if self.entry is not None and (late := self.entry >= self.t).any():
            rows = self.take(np.flatnonzero(~late))
        seen = rows.time <= self.t
        return replace(
            rows, time=np.minimum(rows.time, self.t), event=rows.event & seen, interest=rows.interest & seen
        )

    def check_events(self) -> None:
        """Check that there is an event of interest by the horizon."""
        if not (self.interest & (self.time <= self.t)).any():
            raise DataError(f"event: no row has an event up to {self.t:g}; choose a later time.")

    def check_from_zero(self, measure: str) -> None:
        """Check that all rows were observed from time zero."""
        if self.entry is not None:
            raise DataError(
                f"{measure} needs rows that are observed from time zero, and some entered later (left "
                "truncation): use the rows at risk at a time, from there (after)."
            )

    @property
    def n_subjects(self) -> int:
        """Number of subjects; number of rows without `subject`."""
        return len(self) if self.subject is None else int(np.unique(self.subject).size)

    def error_of(self, influence: FloatArray) -> float | FloatArray:
        """Robust standard error of estimates from weighted influences of rows, (n,) or (n, k).

        The square root of the sum over subjects of squared sums over their rows.
        """
        influence = by_subject(influence, self.subject)
        error = np.sqrt((influence**2).sum(axis=0))
        return float(error) if influence.ndim == 1 else error

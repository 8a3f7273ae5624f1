"""Rows with their predicted curves, which every metric of a name is a function of.

Curves are one minus the cumulative incidence of each cause; with one event that is survival itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal, NamedTuple, Self

import numpy as np
import pandas as pd

from sstorch._types import FloatArray, IntArray
from sstorch.checks import as_numbers, check_after, check_horizon, check_same_order, has_method
from sstorch.data import Surv, SurvivalData
from sstorch.data.surv import outcome_of, recoded
from sstorch.data.target import no_intervals
from sstorch.exceptions import DataError, named
from sstorch.metrics.brier import GrafIntegrals
from sstorch.metrics.checks import check_survival, check_times
from sstorch.metrics.curves import (
    check_takes_times,
    conditional_curves,
    conditional_incidences,
    knows_after,
    predict_curves,
    times_from_zero,
)
from sstorch.metrics.grids import evaluation_times, incidence_times, thinned, thinned_together
from sstorch.metrics.outcome import Observed, read_rows
from sstorch.metrics.pairs import Compared

# Outcomes that metrics distinguish: one event (right-censored or counting), competing causes.
Kind = Literal["event", "competing"]
Rows = SurvivalData | tuple[Any, Any]


@dataclass(frozen=True, eq=False)
class Scored:
    """Outcome of test rows, of K causes, their curves, and the outcome of the training rows."""

    y: Observed
    train: Observed
    times: FloatArray
    names: tuple[str, ...] = ()
    tau: float | None = None
    grids: Mapping[str, IntArray] = field(default_factory=dict)
    survival: FloatArray | None = None

    @classmethod
    def on_grids(
        cls, y: Observed, train: Observed, grids: Mapping[str, FloatArray], also: FloatArray, **options: Any
    ) -> Self:
        """Join the times at which each convention reads the curves with further ones."""
        times = np.unique(np.concatenate([also, *grids.values()]))
        columns = {name: np.searchsorted(times, grid) for name, grid in grids.items()}
        return cls(y, train, times, grids=columns, **options)

    @classmethod
    def of(
        cls,
        model: Any,
        train: Rows | GivenRows,
        test: Rows | GivenRows,
        tau: float | None = None,
        after: float | None = None,
    ) -> Self:
        """Predict, or take, the curves of the test rows; with `after`, those at risk then, from there."""
        # A pair (curves, times) has survival (n, n_times) or incidences (n, K, n_times).
        known, given = split_rows(train, "train", model), split_rows(test, "test", model)
        names = known.y.causes or () if same_kind(known.y, given.y) == "competing" else ()
        if names:
            with named("test"):
                given = given._replace(y=recoded(given.y, names))
        known, whole, (counted, given) = known.counted()[1], given, given.counted()
        if isinstance(model, tuple) and len(model) == 2:
            if after is not None:
                raise DataError(
                    "after must be None where curves are given: a model predicts conditional ones."
                )
            check_same_order(X=whole.X, y=whole.y, survival=model[0])
            grid = check_times(model[1])
            survival = _checked_curves(model[0], len(whole.y), names, grid.size)[counted]
            last = check_horizon(tau, "tau") if names and tau is not None else np.inf
            count = int(np.searchsorted(grid, last, side="right"))
            if not count:
                raise DataError(
                    f"times must include values up to tau={tau:g}, got {grid[0]:g} to {grid[-1]:g}."
                )
            return cls(given.rows, known.rows, grid[:count], names, tau, survival=survival[..., :count])
        observed = np.unique(given.rows.time)
        if after is not None:
            known, given = known.from_landmark(after, "train"), given.from_landmark(after, "test")
        y, train_y = given.rows, known.rows
        predict = predictor(model, given.X, names, len(given.y), after, observed)
        if names:
            times = incidence_times(train_y, tau)
            return cls(y, train_y, times, names, tau, survival=predict(times))
        grids = default_grids(y.time, train_y.time, ("graf", "sksurv", "surtree", "osst"))
        also = thinned(np.unique(y.time), y.time.size)
        if grids:  # which, if they are thinned, need not hold the horizon of calibration
            events = np.sort(y.time[y.event & (y.time > 0.0)])
            also = events[max(events.size - 1, 0) // 2 :][:1]
        rows = cls.on_grids(y, train_y, grids, also, tau=tau)
        return replace(rows, survival=predict(rows.times))

    def with_curves(self, survival: FloatArray) -> Self:
        """These rows with the curves (n, n_times) of a model of one event."""
        return replace(self, survival=check_survival(survival, self.y.time.size, self.times.size)[:, None])

    @property
    def kind(self) -> Kind:
        """Whether there are competing causes."""
        return "competing" if self.names else "event"

    @property
    def last(self) -> float:
        """The truncation, infinite if there is none."""
        return np.inf if self.tau is None else self.tau

    def curves(self, cause: int = 1) -> FloatArray:
        """One minus the incidence of a cause, (n, n_times); survival of one event."""
        assert self.survival is not None
        return self.survival[:, cause - 1]

    @cached_property
    def compared(self) -> Compared:
        """The curves compared at every event, for the concordances that share it."""
        return Compared.of_curves(self.y, self.curves(), self.times)

    @cached_property
    def graf(self) -> GrafIntegrals:
        """Integrals of the curves, for the scores of Graf et al. that share them."""
        return GrafIntegrals.of(self.y, *self.on_grid("graf"))

    def on_grid(self, convention: str) -> tuple[FloatArray, FloatArray]:
        """Curves and times on the grid of a convention, or on the whole grid where it has none."""
        columns = self.grids.get(convention)
        if columns is None:
            return self.curves(), self.times
        if columns.size and columns[-1] - columns[0] + 1 == columns.size:  # a view: many rows are large
            whole = slice(int(columns[0]), int(columns[-1]) + 1)
            return self.curves()[:, whole], self.times[whole]
        return self.curves().T[columns].T, self.times[columns]


def same_kind(train: Surv, test: Surv) -> Kind:
    """The kind of both outcomes; DataError for interval-censored times."""
    if train.intervals is not None or test.intervals is not None:
        raise no_intervals("a score of predictions")
    if (train.causes is None) != (test.causes is None):
        name = "train" if train.causes is None else "test"
        raise DataError(
            f"{name}: y has no causes, and the other rows have; give Surv(time, cause, causes=...)"
        )
    return "event" if train.causes is None else "competing"


def predictor(
    model: Any, X: Any, names: tuple[str, ...], n_rows: int, after: float | None, observed: FloatArray
) -> Callable[[FloatArray], FloatArray]:
    """What predicts the curves of rows, (n, K, n_times), at times, with `after` from there."""
    # A model that predicts from a time itself is asked for that, any other for curves from time zero.
    method = "predict_cumulative_incidence" if names else "predict_survival_function"
    if isinstance(model, type):
        raise DataError(f"model must be a fitted estimator, got the class {model.__name__} itself.")
    if not has_method(model, method):
        what = "incidence" if names else "survival"
        raise DataError(
            f"model must be an estimator with {method}(X, times), or the pair ({what}, times) of curves, got "
            f"{type(model).__name__}."
        )
    check_takes_times(model, method)

    def from_zero(times: FloatArray) -> Any:
        values = model.predict_cumulative_incidence(X, times) if names else predict_curves(model, X, times)
        check_same_order(X=X, survival=values)
        return values

    def predict(times: FloatArray) -> FloatArray:
        if after is None:
            values = from_zero(times)
        elif knows_after(model, getattr(model, method)):
            values = getattr(model, method)(X, times, after=after)
        elif names:
            values = as_numbers(from_zero(np.append(after, after + times)), "incidence")
            values = conditional_incidences(values, after)
        else:
            at = np.append(after, times_from_zero(times, after, observed))
            distinct, place = np.unique(at, return_inverse=True)
            curves = check_survival(from_zero(distinct), n_rows, distinct.size)[:, place]
            return conditional_curves(curves[:, 0], curves[:, 1:], after)[:, None]
        return _checked_curves(values, n_rows, names, times.size)

    return predict


def _checked_curves(values: Any, n_rows: int, names: tuple[str, ...], n_times: int) -> FloatArray:
    """Survival, (n, n_times), or incidences, (n, K, n_times), as one minus incidences, (n, K, n_times)."""
    if not names:
        return check_survival(values, n_rows, n_times)[:, None]
    array, shape = np.asarray(values), (n_rows, len(names), n_times)
    if array.shape != shape:
        more = array.ndim == 3 and array.shape[1] == shape[1] + 1
        hint = " Where the first curve is survival, leave it out." if more else ""
        raise DataError(
            f"incidence must have shape (n_samples, n_causes, n_times) = {shape}, got {array.shape}.{hint}"
        )
    free = []
    for k, name in enumerate(names):
        with named(f"1 - incidence of {name}"):
            free.append(check_survival(1 - array[:, k], n_rows, n_times))
    return np.stack(free, axis=1)


def default_grids(
    time: FloatArray, train_time: FloatArray, conventions: Iterable[str]
) -> dict[str, FloatArray]:
    """`evaluation_times` of each convention, thinned for many rows; those with too few times are left out."""
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
        causes = self.y.causes is not None
        return read_rows(self.y, "this metric", causes=causes, entry=True, weight=True)

    def take(self, rows: IntArray, y: Surv) -> Self:
        """Features of some rows, with an outcome of theirs."""
        return type(self)(None if self.X is None else some_rows(self.X, rows), y)

    def counted(self) -> tuple[IntArray | slice, Self]:
        """Rows of positive weight: positions, and the rows."""
        if self.y.weight is None or self.y.weight.all():
            return slice(None), self
        rows = np.flatnonzero(self.y.weight)
        return rows, self.take(rows, self.y[rows])

    def from_landmark(self, after: float, name: str) -> Self:
        """Rows at risk at a time, followed from there, see `Surv.followed_from`."""
        with named(name):
            return self.take(*self.y.followed_from(*check_after(after, 1)))


def split_rows(rows: Rows | GivenRows, name: str, model: object = None) -> GivenRows:
    """Rows in one of the accepted forms, read; their outcome must be of the type of a fitted model."""
    if isinstance(rows, GivenRows):
        return rows
    given: Any = rows
    if isinstance(given, SurvivalData):
        X, y = given.frame, given.weighted_y
    elif isinstance(given, tuple) and len(given) == 2:
        X, y = given
    else:
        got = type(given).__name__
        raise DataError(f"{name} must be SurvivalData, or (X, y) with y a Surv, got {got}.")
    with named(name):
        outcome = outcome_of(model, y)
    check_same_order(X=X, y=outcome)
    if not len(outcome):
        raise DataError(f"{name}: the data have no rows")
    return GivenRows(X, outcome)

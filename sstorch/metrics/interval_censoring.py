"""Scores of rows whose times are known up to an interval: Brier score and coverage.

Whether a row was alive at a time between its bounds is unknown; its probability is taken from Turnbull's
curve of the training rows, S(t) given that the event is between the bounds. Scores that order rows or weigh
them by censoring need exact times and refuse intervals.
"""

import inspect
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Self

import numpy as np

from sstorch._types import FloatArray
from sstorch.data import Surv
from sstorch.exceptions import DataError
from sstorch.metrics.checks import check_survival, check_times
from sstorch.metrics.curves import predict_curves
from sstorch.metrics.grid import thinned
from sstorch.metrics.outcome import bounds_of
from sstorch.metrics.registry import Kind, metric
from sstorch.metrics.scored_rows import GivenRows
from sstorch.metrics.turnbull import TurnbullCurve

_metric = partial(metric, outcomes=("interval",))
# Share of the predicted times between the quantiles whose coverage is scored.
_CENTRAL = 0.9


def _alive(low: FloatArray, high: FloatArray, at: FloatArray, curve: TurnbullCurve) -> FloatArray:
    """Probability that rows were alive at times, (n, n_times), given the bounds of their events.

    It is 1 up to the lower bound and 0 from the upper one on; between them it is that of Turnbull's curve S
    of the training rows, (S(t) - S(upper)) / (S(lower) - S(upper)), NaN if they have no mass there.
    """
    start, end = curve.at(low)[:, None], curve.at(high)[:, None]
    mass = start - end
    with np.errstate(invalid="ignore", divide="ignore"):  # no mass: NaN, as announced
        inside = np.where(mass > 0, (curve.at(at) - end) / mass, np.nan)
    # At the only time of an exact row the event has come.
    ended = at >= high[:, None]
    return np.where(ended, 0.0, np.where(at <= low[:, None], 1.0, inside))


def _coverage(
    low: FloatArray,
    high: FloatArray,
    first: FloatArray,
    last: FloatArray,
    curve: TurnbullCurve,
    beyond: FloatArray,
    weight: FloatArray | None,
) -> float:
    """Share of the rows whose event is after `first` and not after `last`, (n,) each.

    A row counts by the probability that its event is there, given its bounds, from Turnbull's curve of the
    training rows. `beyond`, (n,), is the share of the events after the end of that curve that are not after
    `last`, by the model, where `last` is later.
    """

    def alive(times: FloatArray) -> FloatArray:
        return _alive(low, high, times[:, None], curve)[:, 0]

    end = np.full(low.size, curve.follow_up)
    inside = alive(np.minimum(first, end)) - alive(np.minimum(last, end))
    # Exact and right-censored rows may themselves be later than the training rows.
    later = (last > end) & np.isinf(high)
    inside += np.where(later, alive(end) * np.where(np.isinf(last), 1.0, beyond), 0.0)
    if weight is None:
        return float(np.nanmean(inside))
    known = ~np.isnan(inside)
    return float(np.average(inside[known], weights=weight[known]))


@dataclass(frozen=True, eq=False)
class ScoredIntervals:
    """Test rows with interval-censored times, their curves and Turnbull's curve of the training rows."""

    kind: ClassVar[Kind] = "interval"
    late: ClassVar[bool] = False  # rows with entry times are refused

    model: Any  # fitted
    X: Any  # features of the test rows
    lower: FloatArray  # last times without the event, shape (n,)
    upper: FloatArray  # first times with it, shape (n,)
    weight: FloatArray | None  # of the rows, shape (n,); None is one each
    grid: FloatArray  # times of the Brier score, increasing, shape (n_times,)
    survival: FloatArray  # predicted S on the grid, shape (n, n_times)
    curve: TurnbullCurve  # of the training rows

    @classmethod
    def predicted(cls, model: Any, X: Any, y: Surv, train: Surv, tau: float | None = None) -> Self:
        """Predict the curves at the finite bounds of the test rows.

        The last is the last bound at which the training rows have mass left, or tau.
        """
        (counted, given), curve = GivenRows(X, y).counted(), TurnbullCurve.fit(train)
        X, (low, high, weight) = given.X, bounds_of(given.y)
        if isinstance(model, tuple) and len(model) == 2:
            grid = check_times(model[1])
            survival = check_survival(model[0], len(y), grid.size)[counted]
        else:
            bounds = np.unique(np.concatenate([low, high[np.isfinite(high)]]))
            grid = thinned(bounds[(bounds > 0) & (curve.at(bounds) > 0)], low.size)
            survival = None
        if tau is not None:
            inside = grid <= tau
            grid, survival = grid[inside], None if survival is None else survival[:, inside]
        if grid.size < 2:
            raise DataError(
                "times: the test rows have no two bounds within the follow-up of the training rows."
            )
        if survival is None:
            survival = check_survival(predict_curves(model, X, grid), low.size, grid.size)
        return cls(model, X, low, high, weight, grid, survival, curve)

    def brier_curve(self, curves: FloatArray) -> FloatArray:
        """Brier score at each time of the grid, (n_times,), of some curves, (n, n_times).

        The mean of (S_i(t) - P_i(t))^2 over the rows whose P_i, the probability of being alive, is known.

        References:
            Tsouprou (2015), Measures of discrimination and predictive accuracy for interval censored survival
            data, Leiden.
        """
        alive = _alive(self.lower, self.upper, self.grid[None], self.curve)
        known = ~np.isnan(alive)
        weight = np.ones(len(alive)) if self.weight is None else self.weight
        if not known.any(axis=0).all():
            late = self.grid[~known.any(axis=0)][0]
            raise DataError(f"times: at {late:g} no row is known to be alive or not; choose earlier times.")
        square = np.where(known, (curves - alive) ** 2, 0.0)
        return np.asarray(weight @ square / (weight @ known))

    def brier(self, curves: FloatArray) -> float:
        """Mean Brier score over the grid of some curves, (n, n_times)."""
        score = self.brier_curve(curves)
        return float(np.trapezoid(score, self.grid) / (self.grid[-1] - self.grid[0]))


@_metric("ibs_turnbull", "Integrated Brier score (Turnbull)", "IBS", False, tags="study headline")
def _ibs(rows: ScoredIntervals, _: object) -> float:
    return rows.brier(rows.survival)


@_metric("scaled_ibs_turnbull", "Scaled integrated Brier score (Turnbull)", "scaled IBS", True, tags="study")
def _scaled_ibs(rows: ScoredIntervals, _: object) -> float:
    reference = np.broadcast_to(rows.curve.at(rows.grid), rows.survival.shape)
    return 1 - rows.brier(rows.survival) / rows.brier(reference)


@_metric(
    "coverage",
    "Coverage of the central 90 % of predicted times",
    "coverage",
    None,
    needs="predict_quantile",
    ideal=_CENTRAL,
)
def _coverage_of_quantiles(rows: ScoredIntervals, _: object) -> float:
    tails = (1 - _CENTRAL) / 2, (1 + _CENTRAL) / 2
    predict = rows.model.predict_quantile
    # An infinite end would hold every censored time.
    options = {"extrapolate": True} if "extrapolate" in inspect.signature(predict).parameters else {}
    first, last = (np.asarray(predict(rows.X, q, **options), dtype=np.float64) for q in tails)
    beyond = np.zeros(rows.lower.size)
    if np.isfinite(end := rows.curve.follow_up):
        at_end = predict_curves(rows.model, rows.X, np.array([end]))[:, 0]
        beyond = 1 - tails[0] / np.maximum(at_end, tails[0])
    return _coverage(rows.lower, rows.upper, first, last, rows.curve, beyond, rows.weight)

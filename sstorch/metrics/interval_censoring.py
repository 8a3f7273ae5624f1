"""Scores of rows whose times are known up to an interval: Brier score, coverage, and a table of them.

Whether a row was alive at a time between its bounds is not known; its probability is taken from Turnbull's
curve of the training rows, S(t) given that the event is between the bounds. Scores that order rows or weigh
them by censoring need exact times and refuse intervals.
"""

from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from sstorch._types import FloatArray
from sstorch.checks import check_same_order, check_share, check_survival, check_times, check_vector
from sstorch.data import Intervals, Surv, SurvivalData, as_surv
from sstorch.exceptions import DataError
from sstorch.metrics.curves import predict_curves
from sstorch.metrics.grid import thinned
from sstorch.metrics.outcome import Outcome, bounds_of
from sstorch.metrics.turnbull import TurnbullCurve


def alive_probability(y: Outcome, times: npt.ArrayLike, *, train: Outcome) -> FloatArray:
    """Probability that rows were alive at times, given the bounds of their events.

    It is 1 up to the lower bound and 0 from the upper one on; between them it is that of Turnbull's curve S
    of the training rows, (S(t) - S(upper)) / (S(lower) - S(upper)).

    Args:
        y: outcome of the rows, of `Surv.interval`, n of them; exact and right-censored times are
            intervals, too.
        times: shape (n_times,) or (n, n_times).
        train: outcome of the training rows, with their weights.

    Returns:
        shape (n, n_times); NaN where the training rows have no mass between the bounds.

    Raises:
        DataError: bounds that are missing, negative or reversed.
    """
    low, high, *_ = bounds_of(y)
    return _alive(low, high, np.atleast_2d(np.asarray(times, dtype=np.float64)), TurnbullCurve.fit(train))


def _alive(low: FloatArray, high: FloatArray, at: FloatArray, curve: TurnbullCurve) -> FloatArray:
    start, end = curve.at(low)[:, None], curve.at(high)[:, None]
    mass = start - end
    with np.errstate(invalid="ignore", divide="ignore"):  # no mass: NaN, as announced
        inside = np.where(mass > 0, (curve.at(at) - end) / mass, np.nan)
    # At the only time of an exact row the event has come.
    ended = at >= high[:, None]
    return np.where(ended, 0.0, np.where(at <= low[:, None], 1.0, inside))


def brier_score_intervals(
    y: Outcome,
    survival: npt.ArrayLike,
    times: npt.ArrayLike,
    *,
    train: Outcome,
) -> FloatArray:
    """Brier score at times, of rows known up to intervals: the mean of (S_i(t) - P_i(t))^2.

    P_i is `alive_probability`. Rows for which it is not known at a time do not count there.

    Args:
        y: outcome of the rows, of `Surv.interval`, n of them; exact and right-censored times are
            intervals, too.
        survival: predicted S_i(t), shape (n, n_times).
        times: increasing, shape (n_times,).
        train: outcome of the training rows, with their weights.

    Returns:
        shape (n_times,), lower is better.

    Raises:
        DataError: arguments that `sstorch.checks` refuses, or a time at which no row counts.

    References:
        Tsouprou (2015), Measures of discrimination and predictive accuracy for interval censored survival
        data, Leiden.

    Examples:
        >>> from sstorch import Surv
        >>> y = Surv.interval([0.0, 2.0, 3.0], [2.0, 4.0, np.inf])
        >>> brier_score_intervals(y, [[0.5], [0.5], [0.9]], [3.0], train=y).round(4).tolist()
        [0.17]
    """
    low, high, *_ = bounds_of(y)
    grid = check_times(times)
    curves = check_survival(survival, low.size, grid.size)
    return _brier(_alive(low, high, grid[None], TurnbullCurve.fit(train)), curves, grid)


def _brier(alive: FloatArray, curves: FloatArray, grid: FloatArray) -> FloatArray:
    known = ~np.isnan(alive)
    if not known.any(axis=0).all():
        late = grid[~known.any(axis=0)][0]
        raise DataError(f"times: at {late:g} no row is known to be alive or not; choose earlier times.")
    score: FloatArray = np.where(known, (curves - alive) ** 2, 0.0).sum(axis=0) / known.sum(axis=0)
    return score


def integrated_brier_score_intervals(
    y: Outcome,
    survival: npt.ArrayLike,
    times: npt.ArrayLike,
    *,
    train: Outcome,
) -> float:
    """Mean of :func:`brier_score_intervals` from the first to the last of the times, by trapezoids.

    Arguments and errors are its own; there are two times at least.
    """
    grid = check_times(times)
    if grid.size < 2:
        raise DataError("times: expected two at least; got one.")
    return _mean_over(brier_score_intervals(y, survival, grid, train=train), grid)


def _mean_over(values: FloatArray, grid: FloatArray) -> float:
    return float(np.trapezoid(values, grid) / (grid[-1] - grid[0]))


def coverage_of_intervals(
    y: Outcome,
    predicted_lower: npt.ArrayLike,
    predicted_upper: npt.ArrayLike,
    *,
    train: Outcome,
    beyond: npt.ArrayLike = 0.0,
) -> float:
    """Share of the rows whose event is in the interval that was predicted for it.

    A row counts by the probability that its event is there, given its bounds, from Turnbull's curve of the
    training rows; rows for which that is not known do not count. Where events are later than all that the
    training rows tell, nobody knows how many of them are before a predicted upper limit that is later still:
    `beyond` says it.

    Args:
        y: outcome of the rows, of `Surv.interval`, n of them; exact and right-censored times are
            intervals, too.
        predicted_lower: such as the quantiles at .05, shape (n,); an event there is outside.
        predicted_upper: such as the quantiles at .95, shape (n,), +inf allowed.
        train: outcome of the training rows, with their weights.
        beyond: share of the events after the follow-up of the training rows that are before
            `predicted_upper`, where this is later, (n,) or one: by the model, 1 - S(upper) / S(end of it).

    Returns:
        The share; that of quantiles at .05 and .95 is .9 where the model is calibrated.

    Raises:
        DataError: arguments that `sstorch.checks` refuses.

    Examples:
        >>> from sstorch import Surv
        >>> y = Surv.interval([0.0, 2.0, 3.0], [2.0, 4.0, np.inf])
        >>> coverage_of_intervals(y, [0.0, 2.0, 0.0], [4.0, 4.0, 1.0], train=y)
        0.6666666666666666
    """
    low, high, *_ = bounds_of(y)
    first, last = (
        check_vector(values, name, low.size)
        for values, name in ((predicted_lower, "predicted_lower"), (predicted_upper, "predicted_upper"))
    )
    share = np.broadcast_to(np.asarray(beyond, dtype=np.float64), low.shape)
    return _coverage(low, high, first, last, TurnbullCurve.fit(train), share)


def _coverage(
    low: FloatArray,
    high: FloatArray,
    first: FloatArray,
    last: FloatArray,
    curve: TurnbullCurve,
    beyond: FloatArray,
) -> float:
    def alive(times: FloatArray) -> FloatArray:
        return _alive(low, high, times[:, None], curve)[:, 0]

    end = np.full(low.size, curve.follow_up)
    inside = alive(np.minimum(first, end)) - alive(np.minimum(last, end))
    # Exact and right-censored rows may themselves be later than the training rows.
    later = (last > end) & np.isinf(high)
    inside += np.where(later, alive(end) * np.where(np.isinf(last), 1.0, beyond), 0.0)
    return float(np.nanmean(inside))


def _rows_of(rows: object, name: str) -> tuple[Any, Intervals]:
    """Features and target of rows in one of the accepted forms; all times as intervals."""
    if isinstance(rows, SurvivalData):
        X, y = rows.frame, rows.y
    elif isinstance(rows, tuple) and len(rows) == 2:
        X, y = rows
        check_same_order(X=X, y=y if isinstance(y, pd.DataFrame) else None)
    else:
        raise DataError(f"{name}: expected SurvivalData, or (X, Surv.interval(lower, upper)).")
    try:
        outcome = as_surv(y)
        if outcome.intervals is not None:
            return X, outcome.intervals
        time, event, _ = outcome.right_censored("")
    except DataError as error:
        raise DataError(f"{name}: {error}") from error
    return X, Intervals(time, np.where(event, time, np.inf))


def evaluate_intervals(
    model: Any, train: Any, test: Any, *, times: npt.ArrayLike | None = None, confidence: float = 0.9
) -> pd.DataFrame:
    """Score a model on rows whose times are known up to an interval.

    Args:
        model: a fitted estimator with ``predict_survival_function(X, times)``, for the likelihood also
            ``log_likelihood(X, y)``, for the coverage ``predict_quantile(X, q)``.
        train: training rows, from which Turnbull's curve comes: `SurvivalData`, or (X, y) with y of
            `Surv.interval`.
        test: test rows, likewise. Weights are not used.
        times: over which the Brier score is averaged, (n_times,); by default the finite bounds of the test
            rows up to the last one at which the training rows have mass left.
        confidence: of the predicted intervals between quantiles whose coverage is given.

    Returns:
        A row a metric: value; higher_is_better. "negative_log_likelihood" a row, "ibs", "scaled_ibs" (1 - IBS
        over that of Turnbull's curve), "coverage" (None: as near to `confidence` as can be). A metric for
        which the model has no method is left out.

    Raises:
        DataError: rows, curves or times cannot be used.
        ConfigError: `confidence` is not in (0, 1).
    """
    check_share(confidence, "confidence", "a share of the rows in (0, 1)", closed=False)
    known, (X, y) = _rows_of(train, "train")[1], _rows_of(test, "test")
    curve = TurnbullCurve.fit(Surv.interval(known.lower, known.upper))
    low, high = y.lower, y.upper
    if times is None:
        bounds = np.unique(np.concatenate([low, high[np.isfinite(high)]]))
        grid = thinned(bounds[(bounds > 0) & (curve.at(bounds) > 0)], low.size)
    else:
        grid = check_times(times)
    if grid.size < 2:
        raise DataError("times: the test rows have no two bounds within the follow-up of the training rows.")
    alive = _alive(low, high, grid[None], curve)
    curves = check_survival(predict_curves(model, X, grid), low.size, grid.size)
    brier = _mean_over(_brier(alive, curves, grid), grid)
    reference = np.broadcast_to(curve.at(grid), curves.shape)
    table: dict[str, tuple[float, bool | None]] = {}
    if callable(likelihood := getattr(model, "log_likelihood", None)):
        table["negative_log_likelihood"] = -float(likelihood(X, Surv.interval(low, high))), False
    table["ibs"] = brier, False
    table["scaled_ibs"] = 1 - brier / _mean_over(_brier(alive, reference, grid), grid), True
    if callable(quantile := getattr(model, "predict_quantile", None)):
        first, last = (
            np.asarray(quantile(X, q), dtype=np.float64) for q in ((1 - confidence) / 2, (1 + confidence) / 2)
        )
        beyond = np.zeros(low.size)
        if np.isfinite(curve.follow_up):
            at_end = predict_curves(model, X, np.array([curve.follow_up]))[:, 0]
            beyond = 1 - (1 - confidence) / 2 / np.maximum(at_end, (1 - confidence) / 2)
        table["coverage"] = _coverage(low, high, first, last, curve, beyond), None
    frame = pd.DataFrame(
        [(name, *row) for name, row in table.items()], columns=["metric", "value", "higher_is_better"]
    )
    frame["higher_is_better"] = frame["higher_is_better"].astype(object)
    return frame.set_index("metric")

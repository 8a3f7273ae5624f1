"""Metrics by name: scored rows, the table of all metrics, and a table of metrics of one model."""

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, Self, TypeGuard, runtime_checkable

import numpy as np
import numpy.typing as npt
import pandas as pd

from sstorch._types import BoolArray, FloatArray, IntArray
from sstorch.checks import (
    check_horizon,
    check_observed_horizon,
    check_same_order,
    check_survival,
    check_times,
)
from sstorch.data import Surv, SurvivalData, as_surv
from sstorch.exceptions import ConfigError, DataError
from sstorch.metrics.auc import cumulative_dynamic_auc, mean_cumulative_dynamic_auc
from sstorch.metrics.brier import kaplan_meier_curves
from sstorch.metrics.calibration import d_calibration, integrated_calibration_index, one_calibration
from sstorch.metrics.censoring import count_beyond, count_floored
from sstorch.metrics.concordance import concordance_harrell, concordance_uno
from sstorch.metrics.curves import median_survival_time, predict_curves, survival_at
from sstorch.metrics.grid import thinned, thinned_together
from sstorch.metrics.integrated_brier import evaluation_times, integrated_brier_score_over, relative_score
from sstorch.metrics.landmark import at_landmark, conditional_curves, times_from_zero
from sstorch.metrics.outcome import Observed, Outcome, read_rows
from sstorch.metrics.time_error import (
    mean_absolute_error_margin,
    mean_absolute_error_pseudo,
    rmst_error_up_to,
)

Rows = SurvivalData | tuple[Any, Any]
Curves = tuple[npt.ArrayLike, npt.ArrayLike]


_WHAT = "this metric"


@runtime_checkable
class PredictsSurvival(Protocol):
    """A fitted estimator: anything with this method."""

    def predict_survival_function(self, X: Any, times: Any) -> Any:
        """S(t | x), shape (n, n_times)."""


@dataclass(frozen=True, eq=False)
class ScoredRows:
    """Test rows, their curves and the training rows.

    Attributes:
        y: outcome of the test rows.
        survival: predicted S on `times`, shape (n, n_times).
        times: the grid, shape (n_times,).
        train: outcome of the training rows.
        grids: for each convention with a grid of its own the columns of `times` that belong to it.
        whole: outcome of all test rows, where these are some of them, see `take`: windows and horizons
            come from them, so that resamples of the same rows are scored over the same stretch of time.
    """

    y: Observed
    survival: FloatArray
    times: FloatArray
    train: Observed
    grids: dict[str, IntArray]
    whole: Observed

    @property
    def late(self) -> bool:
        """Whether test or training rows have entry times."""
        return self.y.entry is not None or self.train.entry is not None

    @classmethod
    def of(
        cls, model: PredictsSurvival | Curves, train: Rows, test: Rows, after: float | None = None
    ) -> Self:
        """Predict, or take, the curves of the test rows; with `after`, those at risk then, from there.

        The model is an estimator, see `predict_curves`, or the pair (survival, times) of curves of the test
        rows; then X of `test` is not read.

        Raises:
            DataError: rows, curves or model are not what they should be.
        """
        known, given = split_rows(train, "train"), split_rows(test, "test")
        if isinstance(test, tuple):
            curves = {"survival": model[0]} if _is_curves(model) else {}
            check_same_order(X=given.X, y=as_surv(test[1]), **curves)
        if _is_curves(model):
            grid = check_times(model[1])
            survival = check_survival(model[0], len(given.y), grid.size)
            if after is not None:
                survival, grid = _after(survival, grid, given.at_risk(after, "test"), after)
        observed = np.unique(given.rows.time)
        if after is not None:
            known, given = known.from_landmark(after, "train"), given.from_landmark(after, "test")
        X, rows, train_rows = given.X, given.rows, known.rows
        time, event = rows.time, rows.event
        if _is_curves(model):
            return cls(rows, survival, grid, train_rows, {}, rows)
        if isinstance(model, type):
            raise DataError(f"model: expected a fitted estimator; got the class {model.__name__} itself.")
        if not isinstance(model, PredictsSurvival):
            raise DataError(
                "model: expected an estimator with predict_survival_function(X, times), or the pair "
                f"(survival, times) of curves; got {type(model).__name__}."
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
        return cls.predicted(predict, rows, train_rows, grids, also)

    @classmethod
    def predicted(
        cls,
        predict: Callable[[FloatArray], FloatArray],
        y: Outcome,
        train: Outcome,
        grids: Mapping[str, FloatArray],
        also: FloatArray | tuple[()] = (),
    ) -> Self:
        """Predict the curves of the test rows once, at the times of all grids and at further ones.

        `predict` gives S of the test rows (n, n_times) at increasing times; `y` and `train` are the outcomes
        of the test and the training rows, `grids` the times at which each convention reads the curves.
        """
        times = np.unique(np.concatenate([also, *grids.values()]))
        columns = {name: np.searchsorted(times, grid) for name, grid in grids.items()}
        rows, known = (read_rows(part, _WHAT, entry=True, weight=True) for part in (y, train))
        return cls(rows, predict(times), times, known, columns, rows)

    def take(self, rows: IntArray) -> Self:
        """Some test rows, repetitions allowed; grids, windows and training rows stay."""
        return dataclasses.replace(self, y=self.y.take(rows), survival=self.survival[rows])

    def on_grid(self, convention: str) -> tuple[FloatArray, FloatArray]:
        """Curves and times on the grid of a convention, or on the whole grid where it has none."""
        columns = self.grids.get(convention)
        if columns is None:
            return self.survival, self.times
        return self.survival[:, columns], self.times[columns]


def default_grids(
    time: FloatArray, train_time: FloatArray, conventions: Iterable[str]
) -> dict[str, FloatArray]:
    """`evaluation_times` of each convention, without those that have too few: their metrics say so.

    With many rows they are `thinned_together`.
    """
    grids = {}
    for convention in conventions:
        with suppress(DataError):
            grids[convention] = evaluation_times(time, train_time, convention)
    return thinned_together(grids, time.size)


class GivenRows(NamedTuple):
    """Features and outcome of rows, exact or right-censored."""

    X: Any
    y: Surv

    @property
    def rows(self) -> Observed:
        """The outcome as metrics read it."""
        return read_rows(self.y, _WHAT, entry=True, weight=True)

    def at_risk(self, after: float, name: str) -> IntArray:
        """Positions of those at risk at a time, see `at_landmark`.

        Raises:
            DataError: there is none; the message has the argument's name.
        """
        try:
            return at_landmark(self.rows, after).rows
        except DataError as error:
            raise DataError(f"{name}: {error}") from error

    def take(self, rows: IntArray) -> Self:
        """Some of them."""
        X = self.X
        if X is not None:
            X = X.iloc[rows] if isinstance(X, pd.DataFrame) else np.asarray(X)[rows]
        return type(self)(X, self.y[rows])

    def from_landmark(self, after: float, name: str) -> Self:
        """Those at risk at a time, with times that count from it; they are observed from there on."""
        alive = self.take(self.at_risk(after, name))
        time, event, _, weight, _ = alive.rows
        return alive._replace(y=Surv(time - after, event, weight=weight))


def _after(
    survival: FloatArray, grid: FloatArray, rows: IntArray, after: float
) -> tuple[FloatArray, FloatArray]:
    """Curves of some rows from a time on, given those of all from zero, and their grid."""
    later, some = grid > after, survival[rows]
    if not later.any():
        raise DataError(f"times: the curves end at {grid[-1]:g}, and after={after:g} is no earlier.")
    alive = survival_at(some, grid, np.full(rows.size, after))
    return conditional_curves(alive, some[:, later], after), grid[later] - after


def split_rows(rows: Rows, name: str) -> GivenRows:
    """Rows in one of the accepted forms, read.

    Raises:
        DataError: another form; the message has the argument's name.
    """
    if isinstance(rows, SurvivalData):
        return GivenRows(rows.frame, rows.weighted_y)
    given: object = rows
    if not isinstance(given, tuple) or len(given) != 2:
        what = (
            f"{type(rows).__name__} of length {len(rows)}" if isinstance(rows, tuple | list) else type(rows)
        )
        raise DataError(f"{name}: expected SurvivalData, or (X, y) with y a Surv; got {what}.")
    try:
        y = as_surv(rows[1])
        y.right_censored("this metric")
    except DataError as error:
        raise DataError(f"{name}: {error}") from error
    return GivenRows(rows[0], y)


def _is_curves(model: object) -> TypeGuard[Curves]:
    return isinstance(model, tuple) and len(model) == 2


@dataclass(frozen=True)
class Metric:
    """A metric of scored rows.

    Attributes:
        value: from the rows and tau, which None leaves to the rows.
        higher_is_better: direction; None where neither is, as of a p-value.
        weighted_times: the times at which 1 / G weighs the rows that a floor under G may hold down; None
            where no floor enters.
        censoring_weights: True if weights 1 / G enter at all.
        knows_entry: True if rows that entered late may be scored.
    """

    value: Callable[[ScoredRows, float | None], float]
    higher_is_better: bool | None
    weighted_times: Callable[[ScoredRows, float | None], FloatArray] | None = None
    censoring_weights: bool = False
    knows_entry: bool = False


def _ibs_of(rows: ScoredRows, curves: FloatArray, times: FloatArray, convention: str) -> float:
    return integrated_brier_score_over(
        rows.y, curves, times, rows.train, convention, follow_up=rows.whole.time
    )


def _ibs(convention: str) -> Callable[[ScoredRows, float | None], float]:
    def value(rows: ScoredRows, _: float | None) -> float:
        return _ibs_of(rows, *rows.on_grid(convention), convention)

    return value


def _scaled_ibs(rows: ScoredRows, _: float | None) -> float:
    curves, times = rows.on_grid("graf")
    reference = kaplan_meier_curves(rows.train, times, rows.y.time.size)
    return relative_score(_ibs_of(rows, curves, times, "graf"), _ibs_of(rows, reference, times, "graf"))


def _c_harrell(rows: ScoredRows, tau: float | None) -> float:
    return concordance_harrell(rows.y, rows.survival, rows.times, tau=tau)


def _c_uno(rows: ScoredRows, tau: float | None) -> float:
    return concordance_uno(rows.y, rows.survival, rows.times, train=rows.train, tau=tau)


def _auc_times(rows: ScoredRows, tau: float | None) -> BoolArray:
    """Marks the times of the grid that have cases and controls among these rows, up to tau."""
    _, times = rows.on_grid("osst")
    first = rows.y.time[rows.y.event].min(initial=np.inf)
    last = np.inf if tau is None else tau
    inside: BoolArray = (times >= first) & (times < rows.y.time.max()) & (times <= last)
    return inside


def _cd_auc(rows: ScoredRows, tau: float | None) -> float:
    curves, times = rows.on_grid("osst")
    inside = _auc_times(rows, tau)
    if not inside.any():
        raise DataError("times: no time has both cases and controls, so that AUC(t) is nowhere defined.")
    auc = cumulative_dynamic_auc(rows.y, curves[:, inside], times[inside], train=rows.train)
    return mean_cumulative_dynamic_auc(rows.y, auc, times[inside])


def _d_calibration(rows: ScoredRows, _: float | None) -> float:
    return d_calibration(rows.y, rows.survival, rows.times).p_value


def _at_horizon(rows: ScoredRows, tau: float | None) -> tuple[FloatArray, float]:
    """The predictions at one time: the median event time up to tau."""
    time, event = rows.whole.time, rows.whole.event
    events = time[event & (time <= (np.inf if tau is None else tau))]
    if events.size == 0:
        raise DataError("event: no test row has an event, so that there is no median event time to look at.")
    t = float(np.median(events))
    predicted = survival_at(rows.survival, rows.times, np.full(rows.y.time.size, t))
    return np.clip(predicted, 0.0, 1.0), t


def _one_calibration(rows: ScoredRows, tau: float | None) -> float:
    predicted, t = _at_horizon(rows, tau)
    return one_calibration(rows.y, predicted, t=t).p_value


def _ici(rows: ScoredRows, tau: float | None) -> float:
    predicted, t = _at_horizon(rows, tau)
    return integrated_calibration_index(rows.y, predicted, t=t)


def _mae_margin(rows: ScoredRows, _: float | None) -> float:
    predicted = median_survival_time(rows.survival, rows.times, beyond="line")
    return mean_absolute_error_margin(rows.y, predicted, train=rows.train)


def _mae_pseudo(rows: ScoredRows, _: float | None) -> float:
    predicted = median_survival_time(rows.survival, rows.times, beyond="line")
    return mean_absolute_error_pseudo(rows.y, predicted, train=rows.train)


def _rmst_horizon(rows: ScoredRows, tau: float | None) -> float:
    time, event = rows.whole.time, rows.whole.event
    if tau is None:
        return min(float(time[event].max(initial=0.0)), float(rows.times[-1]))
    check_observed_horizon(tau, time, "tau")
    return tau


def _rmst_error(rows: ScoredRows, tau: float | None) -> float:
    horizon = _rmst_horizon(rows, tau)
    if horizon == 0.0:
        raise DataError("event: no test row has an event after time 0, so that there is no time to go up to.")
    return rmst_error_up_to(horizon, rows.y, rows.survival, rows.times, rows.train)


def _uno_weighted(rows: ScoredRows, tau: float | None) -> FloatArray:
    time, event = rows.y.time, rows.y.event
    return time[event & (time < (np.inf if tau is None else tau))]


def _auc_weighted(rows: ScoredRows, tau: float | None) -> FloatArray:
    last = float(rows.on_grid("osst")[1][_auc_times(rows, tau)].max())
    return rows.y.time[rows.y.event & (rows.y.time <= last)]


def _brier_weighted(rows: ScoredRows, _: float | None) -> FloatArray:
    return rows.y.time  # censored rows weigh while they are at risk


def _rmst_weighted(rows: ScoredRows, tau: float | None) -> FloatArray:
    horizon = _rmst_horizon(rows, tau)
    at: FloatArray = np.minimum(rows.y.time, horizon)[rows.y.event | (rows.y.time >= horizon)]
    return at


METRICS = {
    "c_harrell": Metric(_c_harrell, True, knows_entry=True),
    "c_uno": Metric(_c_uno, True, _uno_weighted, True),
    "cd_auc": Metric(_cd_auc, True, _auc_weighted, True),
    "ibs_graf": Metric(_ibs("graf"), False, _brier_weighted, True),
    "ibs_sksurv": Metric(_ibs("sksurv"), False, None, True),
    "ibs_surtree": Metric(_ibs("surtree"), True, None, True),
    "ibs_osst": Metric(_ibs("osst"), False, None, True),
    "scaled_ibs_graf": Metric(_scaled_ibs, True, _brier_weighted, True),
    "d_calibration_p": Metric(_d_calibration, None),
    "one_calibration_p": Metric(_one_calibration, None),
    "ici": Metric(_ici, False),
    "mae_margin": Metric(_mae_margin, False),
    "mae_pseudo": Metric(_mae_pseudo, False),
    "rmst_error": Metric(_rmst_error, False, _rmst_weighted, True),
}


def evaluate(
    model: PredictsSurvival | Curves,
    train: Rows,
    test: Rows,
    *,
    metrics: Iterable[str] | None = None,
    tau: float | None = None,
    after: float | None = None,
) -> pd.DataFrame:
    """Score a model by name.

    The names: "c_harrell" and "c_uno" (time-dependent concordance), "cd_auc" (mean cumulative/dynamic AUC),
    "ibs_graf", "ibs_sksurv", "ibs_surtree", "ibs_osst" (integrated Brier score), "scaled_ibs_graf" (1 - IBS
    over that of Kaplan-Meier), "d_calibration_p" and "one_calibration_p" (p-values; 1-calibration at the
    median test event time), "ici" (integrated calibration index there), "mae_margin" and "mae_pseudo" (of
    the predicted medians, curves that end above 1/2 prolonged along a line), "rmst_error" (up to tau, or the
    last test event), and "negative_log_likelihood" for an estimator with ``log_likelihood(X, y)``.

    Curves are predicted at every distinct test time, up to 2^27 values (rows x times), and beyond at the
    quantiles of `sstorch.metrics.thinned`: 512 for 130 000 rows, 67 for a million. They take half a GiB.

    Where rows entered late (left truncation), "c_harrell" counts the pairs that were at risk together, and
    the likelihood is that of rows alive at their entry. The others are not defined there, but from a
    landmark, with `after`, all are.

    Args:
        model: a fitted estimator with ``predict_survival_function(X, times)`` -> (n, n_times), or one of
            lifelines or scikit-survival, asked once, at the grids of all conventions; or the pair (survival,
            times) of curves of the test rows, which every metric then reads on that grid.
        train: training rows, from which the censoring weights and Kaplan-Meier come: `SurvivalData`, or
            or (X, y) with y a `Surv` or (time, event).
        test: test rows, likewise. Sample weights that `SurvivalData` holds are not used.
        metrics: names; None takes all, "negative_log_likelihood" where the estimator has it.
        tau: truncation of the concordances, of the AUC, and of the horizons; None for none.
        after: a landmark: rows at risk then, entry <= after < time, training and test alike, are scored with
            the curves of those who are alive then. All times, `tau` too, count from there. None is zero, for
            all rows.

    Returns:
        A row a metric, indexed by its name: value; higher_is_better (True, False, or None for p-values);
        n_floored, how many test rows have a weight 1 / G in this metric that the floor under G holds down;
        n_beyond, how many were observed longer than every training row, where G is not known (0 without
        weights); reason, why the value is NaN, or "".

    Raises:
        DataError: rows, curves or model cannot be used, or a metric that was asked for by name is not defined
            for these rows; the message begins with its name. With `metrics=None` such a metric is NaN.
        ConfigError: an unknown name, or tau is no time > 0.

    Examples:
        >>> survival = [[0.4, 0.1, 0.0], [0.8, 0.5, 0.2], [0.9, 0.7, 0.6]]
        >>> rows = (None, ([1.0, 2.0, 3.0], [1, 1, 0]))
        >>> evaluate((survival, [1.0, 2.0, 3.0]), rows, rows, metrics=["c_harrell", "ibs_graf"])["value"]
        metric
        c_harrell    1.000000
        ibs_graf     0.070741
        Name: value, dtype: float64
    """
    likelihood = getattr(model, "log_likelihood", None)
    if not callable(likelihood):
        likelihood = None
    known = [*METRICS, "negative_log_likelihood"]
    names = check_names(known if metrics is None else metrics, known)
    if metrics is None and likelihood is None:
        names.remove("negative_log_likelihood")
    if tau is not None:
        check_horizon(tau, "tau")
    rows = ScoredRows.of(model, train, test, after)
    n_beyond = count_beyond(rows.y.time, train=rows.train)

    def value_of(name: str) -> float:
        if name in METRICS:
            return score(name, rows, tau)
        if likelihood is None:
            raise DataError(
                f"{name}: expected an estimator with log_likelihood(X, y); got {type(model).__name__}."
            )
        given = split_rows(test, "test")
        if after is not None:
            given = given.take(given.at_risk(after, "test"))
            given = given._replace(y=given.y.entering(after))
        return -float(likelihood(given.X, given.y))

    table = []
    for name in names:
        metric = METRICS.get(name)
        n_floored, reason = 0, ""
        try:
            value = value_of(name)
        except DataError as error:
            if metrics is not None:
                raise
            value, reason = np.nan, str(error).removeprefix(f"{name}: ")
        else:
            if metric is not None and metric.weighted_times is not None:
                at = metric.weighted_times(rows, tau)
                n_floored = count_floored(at, train=rows.train) if at.size else 0
        direction = False if metric is None else metric.higher_is_better
        beyond = n_beyond if metric is not None and metric.censoring_weights else 0
        table.append((name, value, direction, n_floored, beyond, reason))
    columns = ["metric", "value", "higher_is_better", "n_floored", "n_beyond", "reason"]
    frame = pd.DataFrame(table, columns=columns)
    frame["higher_is_better"] = frame["higher_is_better"].astype(object)
    return frame.set_index("metric")


def score(name: str, rows: ScoredRows, tau: float | None) -> float:
    """One metric of scored rows.

    Raises:
        DataError: it is not defined for these rows; the message begins with its name.
    """
    if rows.late and not METRICS[name].knows_entry:
        known = ", ".join(f"'{other}'" for other, metric in METRICS.items() if metric.knows_entry)
        raise DataError(
            f"{name}: it takes every row as observed from time zero, and some entered later: use {known} or "
            "'negative_log_likelihood', or score those at risk at a time (after)."
        )
    try:
        return METRICS[name].value(rows, tau)
    except DataError as error:
        raise DataError(f"{name}: {error}") from error


def check_names(names: Iterable[str], known: Iterable[str]) -> list[str]:
    """Names of metrics, in the given order.

    Raises:
        ConfigError: an unknown name, a name twice, or none.
    """
    given, there = ([names] if isinstance(names, str) else list(names)), list(known)
    unknown = [name for name in given if name not in there]
    if unknown:
        raise ConfigError(
            f"metrics: {unknown[0]!r} is unknown; the known ones are {', '.join(map(repr, there))}."
        )
    if not given or len(set(given)) < len(given):
        raise ConfigError(f"metrics: expected one or more different names; got {given!r}.")
    return given

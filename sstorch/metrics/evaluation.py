"""Metrics by name: scored rows of one event, their metrics, and the table of one model for any outcome."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, Self, TypeGuard, runtime_checkable

import numpy as np
import numpy.typing as npt
import pandas as pd

from sstorch._types import BoolArray, FloatArray, IntArray
from sstorch.checks import check_after, check_horizon, check_same_order
from sstorch.data import Surv, SurvivalData, outcome_of
from sstorch.exceptions import DataError
from sstorch.metrics.auc import cumulative_dynamic_auc, mean_cumulative_dynamic_auc
from sstorch.metrics.brier import kaplan_meier_curves
from sstorch.metrics.calibration import d_calibration, integrated_calibration_index, one_calibration
from sstorch.metrics.censoring import count_beyond, count_floored
from sstorch.metrics.checks import check_observed_horizon, check_survival, check_times
from sstorch.metrics.concordance import concordance_harrell, concordance_uno
from sstorch.metrics.curves import median_survival_time, predict_curves, survival_at
from sstorch.metrics.grid import thinned, thinned_together
from sstorch.metrics.incidence_evaluation import ScoredIncidences
from sstorch.metrics.integrated_brier import evaluation_times, integrated_brier_score_over, relative_score
from sstorch.metrics.interval_censoring import ScoredIntervals
from sstorch.metrics.landmark import conditional_curves, times_from_zero
from sstorch.metrics.outcome import Observed, Outcome, read_rows
from sstorch.metrics.registry import METRICS, Kind, check_names, declare, kind_of, metric, names_of
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
        cls,
        model: PredictsSurvival | Curves,
        train: Rows | GivenRows,
        test: Rows | GivenRows,
        after: float | None = None,
    ) -> Self:
        """Predict, or take, the curves of the test rows; with `after`, those at risk then, from there.

        The model is an estimator, see `predict_curves`, or the pair (survival, times) of curves of the test
        rows; then X of `test` is not read.

        Raises:
            DataError: rows, curves or model are not what they should be.
        """
        known, given = split_rows(train, "train", model), split_rows(test, "test", model)
        curves = {"survival": model[0]} if _is_curves(model) else {}
        check_same_order(X=given.X, y=given.y, **curves)
        if _is_curves(model):
            grid = check_times(model[1])
            survival = check_survival(model[0], len(given.y), grid.size)
        observed = np.unique(given.rows.time)
        if after is not None:
            known = known.from_landmark(after, "train")[1]
            positions, given = given.from_landmark(after, "test")
            if _is_curves(model):
                survival, grid = _after(survival, grid, positions, after)
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
    """Features and outcome of rows."""

    X: Any
    y: Surv

    @property
    def rows(self) -> Observed:
        """The outcome as metrics read it."""
        return read_rows(self.y, _WHAT, entry=True, weight=True)

    def take(self, rows: IntArray, y: Surv) -> Self:
        """Features of some rows, with an outcome of theirs."""
        X = self.X
        if X is not None:
            X = X.iloc[rows] if isinstance(X, pd.DataFrame) else np.asarray(X)[rows]
        return type(self)(X, y)

    def from_landmark(self, after: float, name: str) -> tuple[IntArray, Self]:
        """Rows at risk at a time, followed from there, see `Surv.followed_from`: positions, and the rows.

        Raises:
            DataError: no row is at risk; the message has the argument's name.
        """
        try:
            rows, later = self.y.followed_from(*check_after(after, 1))
        except DataError as error:
            raise DataError(f"{name}: {error}") from error
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
    """Rows in one of the accepted forms, read.

    Args:
        rows: the rows.
        name: of the argument, for messages.
        model: fitted, whose type of outcome they must have.

    Raises:
        DataError: another form or type; the message has the argument's name.
    """
    if isinstance(rows, GivenRows):
        return rows
    X, y = (rows.frame, rows.weighted_y) if isinstance(rows, SurvivalData) else (None, None)
    given: object = rows
    if y is None and (not isinstance(given, tuple) or len(given) != 2):
        what = (
            f"{type(rows).__name__} of length {len(rows)}" if isinstance(rows, tuple | list) else type(rows)
        )
        raise DataError(f"{name}: expected SurvivalData, or (X, y) with y a Surv; got {what}.")
    if y is None:
        X, y = rows  # type: ignore[misc]
    try:
        outcome = outcome_of(model, y)
    except DataError as error:
        raise DataError(f"{name}: {error}") from error
    check_same_order(X=X, y=outcome)
    if not len(outcome):
        raise DataError(f"{name}: the data have no rows")
    return GivenRows(X, outcome)


def _is_curves(model: object) -> TypeGuard[Curves]:
    return isinstance(model, tuple) and len(model) == 2


def _auc_times(rows: ScoredRows, tau: float | None) -> BoolArray:
    """Marks the times of the grid that have cases and controls among these rows, up to tau."""
    _, times = rows.on_grid("osst")
    first = rows.y.time[rows.y.event].min(initial=np.inf)
    last = np.inf if tau is None else tau
    inside: BoolArray = (times >= first) & (times < rows.y.time.max()) & (times <= last)
    return inside


def _rmst_horizon(rows: ScoredRows, tau: float | None) -> float:
    time, event = rows.whole.time, rows.whole.event
    if tau is None:
        return min(float(time[event].max(initial=0.0)), float(rows.times[-1]))
    check_observed_horizon(tau, time, "tau")
    return tau


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


@metric(
    "c_harrell",
    "Concordance (Harrell, Antolini)",
    "C_H",
    True,
    entry=True,
    tags="tree study peers accuracy risk published headline",
)
def _c_harrell(rows: ScoredRows, tau: float | None) -> float:
    return concordance_harrell(rows.y, rows.survival, rows.times, tau=tau)


@metric(
    "c_uno",
    "Concordance (Uno)",
    "C_U",
    True,
    weighted_times=_uno_weighted,
    censoring_weights=True,
    tags="study peers accuracy risk published",
)
def _c_uno(rows: ScoredRows, tau: float | None) -> float:
    return concordance_uno(rows.y, rows.survival, rows.times, train=rows.train, tau=tau)


@metric(
    "cd_auc",
    "Mean cumulative/dynamic AUC",
    "AUC",
    True,
    weighted_times=_auc_weighted,
    censoring_weights=True,
    tags="study accuracy published",
)
def _cd_auc(rows: ScoredRows, tau: float | None) -> float:
    curves, times = rows.on_grid("osst")
    inside = _auc_times(rows, tau)
    if not inside.any():
        raise DataError("times: no time has both cases and controls, so that AUC(t) is nowhere defined.")
    auc = cumulative_dynamic_auc(rows.y, curves[:, inside], times[inside], train=rows.train)
    return mean_cumulative_dynamic_auc(rows.y, auc, times[inside])


def _ibs_of(rows: ScoredRows, curves: FloatArray, times: FloatArray, convention: str) -> float:
    return integrated_brier_score_over(
        rows.y, curves, times, rows.train, convention, follow_up=rows.whole.time
    )


def _ibs(convention: str) -> Callable[[ScoredRows, float | None], float]:
    def value(rows: ScoredRows, _: float | None) -> float:
        return _ibs_of(rows, *rows.on_grid(convention), convention)

    return value


metric(
    "ibs_graf",
    "Integrated Brier score (graf)",
    "IBS",
    False,
    weighted_times=_brier_weighted,
    censoring_weights=True,
    tags="tree study peers accuracy published headline",
    alias="ibs",
)(_ibs("graf"))
for _name, _higher, _tags in (("sksurv", False, "tree study"), ("surtree", True, ""), ("osst", False, "")):
    _title, _short = f"Integrated Brier score ({_name})", f"IBS {_name}"
    metric(f"ibs_{_name}", _title, _short, _higher, censoring_weights=True, tags=_tags)(_ibs(_name))


@metric(
    "scaled_ibs_graf",
    "Scaled integrated Brier score (graf)",
    "scaled IBS",
    True,
    weighted_times=_brier_weighted,
    censoring_weights=True,
)
def _scaled_ibs(rows: ScoredRows, _: float | None) -> float:
    curves, times = rows.on_grid("graf")
    reference = kaplan_meier_curves(rows.train, times, rows.y.time.size)
    return relative_score(_ibs_of(rows, curves, times, "graf"), _ibs_of(rows, reference, times, "graf"))


def _at_horizon(rows: ScoredRows, tau: float | None) -> tuple[FloatArray, float]:
    """The predictions at one time: the median event time up to tau."""
    time, event = rows.whole.time, rows.whole.event
    events = time[event & (time <= (np.inf if tau is None else tau))]
    if events.size == 0:
        raise DataError("event: no test row has an event, so that there is no median event time to look at.")
    t = float(np.median(events))
    predicted = survival_at(rows.survival, rows.times, np.full(rows.y.time.size, t))
    return np.clip(predicted, 0.0, 1.0), t


@metric("ici_pseudo", "Integrated calibration index (pseudo-observations)", "ICI", False, tags="study peers")
def _ici(rows: ScoredRows, tau: float | None) -> float:
    predicted, t = _at_horizon(rows, tau)
    return integrated_calibration_index(rows.y, predicted, t=t)


@metric(
    "d_calibration_p",
    "D-calibration: share of fits with p < .05",
    "D-cal.",
    None,
    tags="study",
    rejection=True,
)
def _d_calibration(rows: ScoredRows, _: float | None) -> float:
    return d_calibration(rows.y, rows.survival, rows.times).p_value


@metric("one_calibration_p", "1-calibration: share of fits with p < .05", "1-cal.", None, rejection=True)
def _one_calibration(rows: ScoredRows, tau: float | None) -> float:
    predicted, t = _at_horizon(rows, tau)
    return one_calibration(rows.y, predicted, t=t).p_value


@metric("mae_margin", "Mean absolute error (margin)", "MAE margin", False, averaged=False)
def _mae_margin(rows: ScoredRows, _: float | None) -> float:
    predicted = median_survival_time(rows.survival, rows.times, beyond="line")
    return mean_absolute_error_margin(rows.y, predicted, train=rows.train)


@metric("mae_pseudo", "Mean absolute error (pseudo-observations)", "MAE pseudo", False, averaged=False)
def _mae_pseudo(rows: ScoredRows, _: float | None) -> float:
    predicted = median_survival_time(rows.survival, rows.times, beyond="line")
    return mean_absolute_error_pseudo(rows.y, predicted, train=rows.train)


@metric(
    "rmst_error",
    "Error of the restricted mean",
    "RMST error",
    False,
    weighted_times=_rmst_weighted,
    censoring_weights=True,
    averaged=False,
)
def _rmst_error(rows: ScoredRows, tau: float | None) -> float:
    horizon = _rmst_horizon(rows, tau)
    if horizon == 0.0:
        raise DataError("event: no test row has an event after time 0, so that there is no time to go up to.")
    return rmst_error_up_to(horizon, rows.y, rows.survival, rows.times, rows.train)


declare(
    "negative_log_likelihood",
    title="Negative log-likelihood",
    short="-log L",
    higher_is_better=False,
    outcomes=("event", "competing", "interval"),
    entry=True,
    needs="log_likelihood",
    averaged=False,
)

Scored = ScoredRows | ScoredIncidences | ScoredIntervals


def evaluate(
    model: Any,
    train: Rows,
    test: Rows,
    *,
    metrics: Iterable[str] | None = None,
    tau: float | None = None,
    after: float | None = None,
) -> pd.DataFrame:
    """Score a model by name, for every type of outcome.

    `docs/metrics.md` has the table of names. The outcome decides which are defined. One event: "c_harrell"
    and "c_uno" (time-dependent concordance), "cd_auc", "ibs_graf", "ibs_sksurv", "ibs_surtree", "ibs_osst",
    "scaled_ibs_graf", "d_calibration_p" and "one_calibration_p" (p-values; 1-calibration at the median test
    event time), "ici_pseudo" (there, too), "mae_margin" and "mae_pseudo" (of the predicted medians, curves
    that end above 1/2 prolonged along a line) and "rmst_error" (up to tau, or the last test event). Competing
    causes, of each cause: "c_cause_specific", "c_wolbers", "auc" and "brier" at the horizon tau; "ibs",
    "scaled_ibs" and "aj_calibration" over times up to it, which are `incidence_times` of the training rows.
    Intervals: "ibs_turnbull", "scaled_ibs_turnbull" and "coverage". All of them: "negative_log_likelihood".

    Weights of test rows count in each metric that supports them, and weights of training rows in the
    censoring distribution and in the reference curves. With entry times (left truncation) "c_harrell" and
    "c_cause_specific" count the pairs that were at risk together, and the likelihood is conditional on
    survival to entry; other metrics need a landmark, `after`.

    Curves are predicted at every distinct test time, up to 2^27 values (rows x times), and beyond at the
    quantiles of `sstorch.metrics.thinned`: 512 for 130 000 rows, 67 for a million. They take half a GiB.

    Args:
        model: a fitted estimator with ``predict_survival_function(X, times)`` -> (n, n_times), or one of
            lifelines or scikit-survival; for competing causes ``predict_cumulative_incidence(X, times)`` ->
            (n, K, n_times); or the pair (curves, times) of such curves of the test rows.
        train: training rows, from which the censoring weights and reference curves come: `SurvivalData`, or
            (X, y) with y a `Surv` or a tuple (time, event).
        test: test rows, likewise.
        metrics: names; None takes all that the outcome and the methods of the model allow.
        tau: truncation of the concordances, of the AUC, and of the horizons; None for none.
        after: a landmark: rows at risk then, entry <= after < time, training and test alike, are scored with
            the curves of those without event at that time. All times, `tau` too, count from there. Subjects
            are followed through their later start-stop rows, see `Surv.followed_from`.

    Returns:
        A row a metric, indexed by its name, and with competing causes by cause and name: value;
        higher_is_better (True, False, or None for p-values); for one event n_floored, how many test rows have
        a weight 1 / G in this metric that the floor under G holds down, and n_beyond, how many were observed
        longer than every training row, where G is not known (0 without weights); reason, why the value is
        NaN, or "".

    Raises:
        DataError: rows, curves or model cannot be used, the outcome is not of the type of the model, or a
            metric that was asked for by name is not defined for these rows; the message begins with its name.
            With `metrics=None` such a metric is NaN.
        ConfigError: an unknown name, or tau is no time > 0.

    Examples:
        >>> survival = [[0.4, 0.1, 0.0], [0.8, 0.5, 0.2], [0.9, 0.7, 0.6]]
        >>> rows = (None, ([1.0, 2.0, 3.0], [1, 1, 0]))
        >>> evaluate((survival, [1.0, 2.0, 3.0]), rows, rows, metrics=["c_harrell", "ibs_graf"])["value"]
        metric
        c_harrell    1.000000
        ibs_graf     0.070741
        Name: value, dtype: float64
        >>> rows = (None, Surv([1.0, 2.0, 3.0, 4.0], [1, 2, 1, 0], causes=("relapse", "death")))
        >>> first, second = [[0.4, 0.6], [0.1, 0.2], [0.3, 0.5], [0.1, 0.1]], [[0.2, 0.3]] * 4
        >>> model = (np.stack([first, second], axis=1), [1.5, 3.5])
        >>> evaluate(model, rows, rows, metrics=["c_wolbers", "brier"])["value"].unstack().round(3)
        metric   brier  c_wolbers
        cause
        death    0.190        0.5
        relapse  0.115        1.0
    """
    if tau is not None:
        check_horizon(tau, "tau")
    trained, given = split_rows(train, "train", model), split_rows(test, "test", model)
    kind = _same_kind(trained.y, given.y)
    if metrics is None:
        names = [name for name in names_of(kind) if _has(model, METRICS[name].needs)]
    else:
        others = [
            name for name in names_of() if METRICS[name].outcomes and kind not in METRICS[name].outcomes
        ]
        names = check_names(metrics, [*names_of(kind), *others])
    rows = scored_rows(model, trained, given, tau, after)
    table: list[tuple[Any, ...]] = []
    for cause, name in _parts_of(rows, names):
        value, reason, n_floored, n_beyond = np.nan, "", 0, 0
        try:
            if METRICS[name].value is None:
                value = _loss(model, name, given, after)
            else:
                value = score(name, rows, tau, cause)
                n_floored, n_beyond = _counts(name, rows, tau)
        except DataError as error:
            if metrics is not None:
                raise
            reason = str(error).removeprefix(f"{_called(name, rows, cause)}: ")
        where = _cause_name(rows, cause)
        table.append((where, name, value, METRICS[name].higher_is_better, n_floored, n_beyond, reason))
    columns = ["cause", "metric", "value", "higher_is_better", "n_floored", "n_beyond", "reason"]
    frame = pd.DataFrame(table, columns=columns)
    frame["higher_is_better"] = frame["higher_is_better"].astype(object)
    if kind == "competing":
        return frame.drop(columns=["n_floored", "n_beyond"]).set_index(["cause", "metric"])
    if kind == "interval":
        frame = frame.drop(columns=["n_floored", "n_beyond"])
    return frame.drop(columns="cause").set_index("metric")


def scored_rows(
    model: Any, train: GivenRows, test: GivenRows, tau: float | None = None, after: float | None = None
) -> Scored:
    """Predict, or take, the curves of test rows, of any type of outcome.

    Raises:
        DataError: rows, curves or model are not what they should be.
    """
    kind = _same_kind(train.y, test.y)
    if kind == "event":
        return ScoredRows.of(model, train, test, after)
    if kind == "interval":
        if after is not None:
            raise DataError(
                "after: which rows with interval-censored times were at risk at a time is not known; leave "
                "it out."
            )
        return ScoredIntervals.predicted(model, test.X, test.y, train.y, tau)
    names = train.y.causes
    assert names is not None
    test = test._replace(y=_recoded(test.y, names))
    if after is not None:
        train, test = train.from_landmark(after, "train")[1], test.from_landmark(after, "test")[1]
    return ScoredIncidences.predicted(model, test.X, test.y, train.y, names, tau, after)


def _same_kind(train: Surv, test: Surv) -> Kind:
    """The kind of both outcomes; exact times are intervals, too.

    Raises:
        DataError: one has competing causes, and the other has none.
    """
    one, other = kind_of(train), kind_of(test)
    if "competing" in (one, other) and one != other:
        name = "test" if one == "competing" else "train"
        raise DataError(
            f"{name}: y has no causes, and the other rows have; give Surv(time, cause, causes=...)"
        )
    return "interval" if "interval" in (one, other) else one


def _recoded(y: Surv, names: tuple[str, ...]) -> Surv:
    try:
        return y.recoded(names)
    except DataError as error:
        raise DataError(f"test: {error}") from error


def _has(model: object, method: str | None) -> bool:
    return method is None or callable(getattr(model, method, None))


def _loss(model: Any, name: str, given: GivenRows, after: float | None) -> float:
    """Negative log-likelihood of rows, from a landmark if there is one."""
    if not _has(model, METRICS[name].needs):
        raise DataError(
            f"{name}: expected an estimator with log_likelihood(X, y); got {type(model).__name__}."
        )
    if after is not None:
        given = given.take(*given.y.entering(after))
    y = given.y
    if kind_of(y) == "event" and y.weight is not None and not np.ptp(y.weight):
        y = y.weighted(None)
    return -float(model.log_likelihood(given.X, y))


def _parts_of(rows: Scored, names: list[str]) -> Iterator[tuple[int, str]]:
    """Causes, 0 where there is one event or a metric is of all causes, and names of metrics."""
    if not isinstance(rows, ScoredIncidences):
        yield from ((0, name) for name in names)
        return
    for cause in range(1, len(rows.names) + 1):
        yield from ((cause, name) for name in names if METRICS[name].value is not None)
    yield from ((0, name) for name in names if METRICS[name].value is None)


def _cause_name(rows: Scored, cause: int) -> str:
    return rows.names[cause - 1] if cause and isinstance(rows, ScoredIncidences) else _ALL


def _called(name: str, rows: Scored, cause: int) -> str:
    return f"{name} of {_cause_name(rows, cause)}" if cause else name


def _counts(name: str, rows: Scored, tau: float | None) -> tuple[int, int]:
    """Rows whose weight a floor holds down, and rows beyond the training rows."""
    known = METRICS[name]
    if not isinstance(rows, ScoredRows) or not known.censoring_weights:
        return 0, 0
    n_floored = 0
    if known.weighted_times is not None:
        at = known.weighted_times(rows, tau)
        n_floored = count_floored(at, train=rows.train) if at.size else 0
    return n_floored, count_beyond(rows.y.time, train=rows.train)


def score(name: str, rows: Scored, tau: float | None, cause: int = 0) -> float:
    """One metric of scored rows, with competing causes that of a cause, 1 .. K.

    Raises:
        DataError: it is not defined for these rows; the message begins with its name.
    """
    called, known = _called(name, rows, cause), METRICS[name]
    kind: Kind = "event"
    if not isinstance(rows, ScoredRows):
        kind = "competing" if isinstance(rows, ScoredIncidences) else "interval"
    if kind not in known.outcomes or known.value is None:
        raise DataError(
            f"{called}: it is not defined for {_WORDS[kind]}; there {', '.join(names_of(kind))} are."
        )
    if not isinstance(rows, ScoredIntervals) and rows.late and not known.entry:
        others = ", ".join(f"'{other}'" for other in names_of(kind) if METRICS[other].entry)
        raise DataError(
            f"{called}: it takes every row as at risk from time zero, and some have entry times (left "
            f"truncation): use {others}, or score the rows at risk at a time (after=)."
        )
    try:
        return known.value(rows, tau if kind == "event" else cause)
    except DataError as error:
        raise DataError(f"{called}: {error}") from error


_WORDS = {"event": "one event", "competing": "competing causes", "interval": "interval-censored times"}
# Cause of what is of all causes together.
_ALL = "all"

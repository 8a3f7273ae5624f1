"""Scores of cumulative incidences by name: scored rows, the table of all scores, and that of one model."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Protocol, Self, runtime_checkable

import numpy as np
import numpy.typing as npt
import pandas as pd

from sstorch._types import FloatArray
from sstorch.checks import (
    as_numbers,
    check_horizon,
    check_incidence,
    check_observed_horizon,
    check_same_order,
    check_times,
)
from sstorch.data import Surv, SurvivalData, as_surv
from sstorch.exceptions import DataError
from sstorch.metrics.evaluation import check_names
from sstorch.metrics.incidence import aalen_johansen
from sstorch.metrics.incidence_calibration import aalen_johansen_calibration
from sstorch.metrics.incidence_scores import (
    brier_score_incidence,
    concordance_cause_specific,
    concordance_wolbers,
    cumulative_dynamic_auc_incidence,
    integrated_brier_score_incidence,
)
from sstorch.metrics.integrated_brier import relative_score
from sstorch.metrics.outcome import ObservedCauses, Outcome, read_causes

Rows = SurvivalData | tuple[Any, Any]
Incidences = tuple[npt.ArrayLike, npt.ArrayLike]

_WHAT = "this metric"
_N_TIMES = 100
# Before the first few events there is nothing to score, and after the last weights for censoring grow large.
_FIRST_QUANTILE, _LAST_QUANTILE = 0.02, 0.9


@runtime_checkable
class PredictsIncidence(Protocol):
    """A fitted model: anything with this method."""

    def predict_cumulative_incidence(self, X: Any, times: Any) -> Any:
        """F_k(t | x), shape (n, K, n_times)."""


def incidence_times(y: Outcome, tau: float | None = None) -> FloatArray:
    """Times at which incidences are scored by default: quantiles of the training rows' event times.

    Args:
        y: outcome of the training rows, a `Surv` with causes or the tuple (time, cause).
        tau: the last time; if None, that by which 90 % of the observed events were, beyond which weights
            for censoring grow large.

    Returns:
        about a hundred or fewer, strictly increasing: the quantiles from the 2 % one on, and ``tau``.

    Raises:
        DataError: arguments that `sstorch.checks` refuses, or no event.

    Examples:
        >>> incidence_times(([1.0, 2.0, 3.0, 4.0], [1, 2, 1, 0]), tau=2.5)[[0, -1]].round(2).tolist()
        [1.04, 2.5]
    """
    row_time, codes, *_ = read_causes(y, "a grid of times", entry=True, weight=True)
    if tau is not None:
        check_observed_horizon(check_horizon(tau, "tau"), row_time, "tau")
    events = row_time[codes > 0]
    if events.size == 0:
        raise DataError("cause: no row has an event, so that there are no times to score at.")
    last = _LAST_QUANTILE if tau is None else float((events <= tau).mean())
    times = np.quantile(events, np.linspace(min(_FIRST_QUANTILE, last), last, _N_TIMES))
    return np.unique(times if tau is None else np.append(times[times < tau], tau))


@dataclass(frozen=True, eq=False)
class ScoredIncidences:
    """Test rows, their incidences and the training rows.

    Attributes:
        y: outcome of the test rows.
        incidence: predicted F_k on `times`, shape (n, K, n_times).
        times: the grid, shape (n_times,); its last time is the horizon of scores at one time.
        train: outcome of the training rows.
        names: of the K causes.
    """

    y: ObservedCauses
    incidence: FloatArray
    times: FloatArray
    train: ObservedCauses
    names: tuple[str, ...]

    @property
    def late(self) -> bool:
        """Whether test or training rows have entry times."""
        return self.y.entry is not None or self.train.entry is not None

    @classmethod
    def of(
        cls, model: PredictsIncidence | Incidences, train: Rows, test: Rows, tau: float | None = None
    ) -> Self:
        """Predict, or take, the incidences of the test rows up to a time; see `evaluate_incidence`.

        Raises:
            DataError: rows, incidences or model are not what they should be.
        """
        _, known = _split(train, "train")
        X, y = _split(test, "test", known)
        assert known.causes is not None
        return cls.predicted(model, X, y, known, known.causes, tau)

    @classmethod
    def predicted(
        cls,
        model: PredictsIncidence | Incidences,
        X: Any,
        y: Outcome,
        train: Outcome,
        names: tuple[str, ...],
        tau: float | None,
    ) -> Self:
        """Predict, or take, the incidences of rows whose causes have the order of `names`."""
        rows, known = (read_causes(part, _WHAT, entry=True, weight=True) for part in (y, train))
        if isinstance(model, tuple) and len(model) == 2:
            incidence, times = _up_to(tau, *model)
        elif isinstance(model, PredictsIncidence) and not isinstance(model, type):
            times = incidence_times(known, tau)
            incidence = model.predict_cumulative_incidence(X, times)
        else:
            raise DataError(
                "model: expected a fitted model with predict_cumulative_incidence(X, times), or the pair "
                f"(incidence, times); got {model if isinstance(model, type) else type(model).__name__}."
            )
        curves = as_numbers(incidence, "incidence")
        expected = (rows.time.size, len(names), times.size)
        if curves.shape != expected:
            more = curves.ndim == 3 and curves.shape[1] == expected[1] + 1
            hint = " Where the first curve is survival, leave it out." if more else ""
            raise DataError(
                f"incidence: expected shape (n_samples, n_causes, n_times) = {expected}; got "
                f"{curves.shape}.{hint}"
            )
        for k in range(expected[1]):
            check_incidence(curves[:, k], rows.time.size, times.size)
        return cls(rows, curves, times, known, names)

    def curves(self, which: int) -> FloatArray:
        """Incidences of a cause, (n, n_times)."""
        return self.incidence[:, which - 1]


def _split(rows: Rows, name: str, known: Surv | None = None) -> tuple[Any, Surv]:
    """Features and outcome of rows in one of the accepted forms.

    Raises:
        DataError: another form, or causes that are not the known ones; the message has the argument's name.
    """
    if isinstance(rows, SurvivalData):
        X, y = rows.frame, rows.weighted_y
    else:
        given: object = rows
        if not isinstance(given, tuple) or len(given) != 2:
            raise DataError(
                f"{name}: expected SurvivalData, or (X, y) with y a Surv with causes; got {type(rows)}."
            )
        X = rows[0]
        try:
            y = as_surv(rows[1])
        except DataError as error:
            raise DataError(f"{name}: {error}") from error
        check_same_order(X=X, y=y)
    if y.causes is None:
        raise DataError(f"{name}: y has no causes; give Surv(time, cause, causes=...)")
    if known is not None and known.causes is not None:
        try:
            y = y.recoded(known.causes)
        except DataError as error:
            raise DataError(f"{name}: {error}") from error
    return X, y


def _up_to(
    tau: float | None, incidence: npt.ArrayLike, times: npt.ArrayLike
) -> tuple[FloatArray, FloatArray]:
    """Curves that are given, up to a time."""
    grid, curves = check_times(times), as_numbers(incidence, "incidence")
    if tau is None or curves.shape[-1:] != grid.shape:
        return curves, grid
    inside = grid <= check_horizon(tau, "tau")
    if not inside.any():
        raise DataError(f"times: expected some up to tau={tau:g}; got {grid[0]:g} to {grid[-1]:g}.")
    return curves[..., inside], grid[inside]


@dataclass(frozen=True)
class IncidenceMetric:
    """A score of scored rows.

    Attributes:
        value: from the rows and the number of a cause.
        higher_is_better: direction.
        knows_entry: True if rows that entered late may be scored.
    """

    value: Callable[[ScoredIncidences, int], float]
    higher_is_better: bool
    knows_entry: bool = False


def _c_cause_specific(rows: ScoredIncidences, which: int) -> float:
    risk, tau = rows.curves(which)[:, -1], float(rows.times[-1])
    return concordance_cause_specific(rows.y, risk, which, tau=tau)


def _c_wolbers(rows: ScoredIncidences, which: int) -> float:
    risk, tau = rows.curves(which)[:, -1], float(rows.times[-1])
    return concordance_wolbers(rows.y, risk, which, tau=tau, train=rows.train)


def _auc(rows: ScoredIncidences, which: int) -> float:
    last = rows.curves(which)[:, -1:]
    (area,) = cumulative_dynamic_auc_incidence(rows.y, last, rows.times[-1:], which, train=rows.train)
    if np.isnan(area):
        raise DataError(f"times: up to {rows.times[-1]:g} there are no cases, or no controls.")
    return float(area)


def _brier(rows: ScoredIncidences, which: int) -> float:
    last = rows.curves(which)[:, -1:]
    return float(brier_score_incidence(rows.y, last, rows.times[-1:], which, train=rows.train)[0])


def _ibs(rows: ScoredIncidences, which: int) -> float:
    return _ibs_of(rows, rows.curves(which), which)


def _ibs_of(rows: ScoredIncidences, curves: FloatArray, which: int) -> float:
    return integrated_brier_score_incidence(rows.y, curves, rows.times, which, train=rows.train)


def _scaled_ibs(rows: ScoredIncidences, which: int) -> float:
    overall = aalen_johansen(rows.train, rows.times)[which - 1]
    reference = _ibs_of(rows, np.broadcast_to(overall, rows.curves(which).shape), which)
    return relative_score(_ibs(rows, which), reference, "Aalen-Johansen")


def _aj_calibration(rows: ScoredIncidences, which: int) -> float:
    return aalen_johansen_calibration(rows.y, rows.curves(which), rows.times, which)


INCIDENCE_METRICS = {
    "c_cause_specific": IncidenceMetric(_c_cause_specific, True, knows_entry=True),
    "c_wolbers": IncidenceMetric(_c_wolbers, True),
    "auc": IncidenceMetric(_auc, True),
    "brier": IncidenceMetric(_brier, False),
    "ibs": IncidenceMetric(_ibs, False),
    "scaled_ibs": IncidenceMetric(_scaled_ibs, True),
    "aj_calibration": IncidenceMetric(_aj_calibration, False),
}


def evaluate_incidence(
    model: PredictsIncidence | Incidences,
    train: Rows,
    test: Rows,
    *,
    metrics: Iterable[str] | None = None,
    tau: float | None = None,
) -> pd.DataFrame:
    """Score predicted incidences of competing causes by name.

    The names: "c_cause_specific", "c_wolbers", "auc" and "brier" are of the incidence at the horizon; "ibs"
    (integrated Brier score), "scaled_ibs" (1 - IBS over that of Aalen and Johansen's estimate in the training
    rows, for everybody the same) and "aj_calibration" (squared distance from their estimate in the test rows)
    are over times up to it. Each is the function of its name, with weights for censoring from the training
    rows, but for "c_cause_specific" and "aj_calibration", which take none. Where rows of `SurvivalData`
    entered late (left truncation), "c_cause_specific" counts the pairs that were at risk together; the others
    are not defined.

    Args:
        model: with ``predict_cumulative_incidence(X, times)`` -> (n, K, n_times), asked once, at
            `incidence_times` of the training rows; or the pair (incidence, times) of curves of the test rows.
        train: training rows: `SurvivalData` with causes, or (X, y) with y a `Surv` with causes.
        test: test rows, likewise. Sample weights that `SurvivalData` holds are not used.
        metrics: names; None takes all.
        tau: the horizon; if None, the last of `incidence_times`, or of the times that are given.

    Returns:
        A row a cause and metric, indexed by both: value; higher_is_better; reason, why the value is NaN, or
        "".

    Raises:
        DataError: rows, incidences or model cannot be used, or a metric that was asked for by name is not
            defined for these rows; the message begins with its name and cause. With `metrics=None` such a
            metric is NaN.
        ConfigError: an unknown name, or tau is no time > 0.

    Examples:
        >>> from sstorch import Surv
        >>> rows = (None, Surv([1.0, 2.0, 3.0, 4.0], [1, 2, 1, 0], causes="auto"))
        >>> first, second = [[0.4, 0.6], [0.1, 0.2], [0.3, 0.5], [0.1, 0.1]], [[0.2, 0.3]] * 4
        >>> incidence = np.stack([first, second], axis=1)
        >>> model = (incidence, [1.5, 3.5])
        >>> table = evaluate_incidence(model, rows, rows, metrics=["c_wolbers", "brier"])
        >>> table["value"].unstack().round(3)
        metric  brier  c_wolbers
        cause
        1       0.115        1.0
        2       0.190        0.5
    """
    names = check_names(INCIDENCE_METRICS if metrics is None else metrics, INCIDENCE_METRICS)
    rows = ScoredIncidences.of(model, train, test, tau)
    table = []
    for which, cause in enumerate(rows.names, 1):
        for name in names:
            value, reason = np.nan, ""
            try:
                value = score_incidence(name, rows, which)
            except DataError as error:
                if metrics is not None:
                    raise
                reason = str(error).removeprefix(f"{name} of {cause}: ")
            table.append((cause, name, value, INCIDENCE_METRICS[name].higher_is_better, reason))
    columns = ["cause", "metric", "value", "higher_is_better", "reason"]
    return pd.DataFrame(table, columns=columns).set_index(["cause", "metric"])


def score_incidence(name: str, rows: ScoredIncidences, which: int) -> float:
    """One metric of one cause.

    Raises:
        DataError: it is not defined for these rows; the message begins with its name and cause.
    """
    if rows.late and not INCIDENCE_METRICS[name].knows_entry:
        raise DataError(
            f"{name} of {rows.names[which - 1]}: it takes every row as observed from time zero, and some "
            "entered later: use 'c_cause_specific', or the estimator's log_likelihood."
        )
    try:
        return INCIDENCE_METRICS[name].value(rows, which)
    except DataError as error:
        raise DataError(f"{name} of {rows.names[which - 1]}: {error}") from error

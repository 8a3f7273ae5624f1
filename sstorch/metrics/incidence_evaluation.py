"""Scores of cumulative incidences by name: scored rows and the scores that are read off them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Protocol, Self, TypeGuard

import numpy as np
import numpy.typing as npt

from sstorch._types import FloatArray
from sstorch.checks import as_numbers, check_horizon, has_method
from sstorch.exceptions import DataError
from sstorch.metrics.checks import check_incidence, check_observed_horizon, check_times
from sstorch.metrics.curves import conditional_incidences
from sstorch.metrics.incidence import aalen_johansen, aalen_johansen_calibration
from sstorch.metrics.incidence_scores import (
    brier_score_incidence,
    concordance_cause_specific,
    concordance_wolbers,
    cumulative_dynamic_auc_incidence,
    integrated_brier_score_incidence,
)
from sstorch.metrics.integrated_brier import relative_score
from sstorch.metrics.outcome import ObservedCauses, Outcome, read_causes
from sstorch.metrics.registry import Kind, metric

Incidences = tuple[npt.ArrayLike, npt.ArrayLike]

_metric = partial(metric, outcomes=("competing",))
_WHAT = "this metric"
_N_TIMES = 100
# Before the first few events there is nothing to score, and after the last weights for censoring grow large.
_FIRST_QUANTILE, _LAST_QUANTILE = 0.02, 0.9


class PredictsIncidence(Protocol):
    """A fitted model: anything with this method."""

    def predict_cumulative_incidence(self, X: Any, times: Any) -> Any:
        """F_k(t | x), shape (n, K, n_times)."""


def predicts_incidence(model: object) -> TypeGuard[PredictsIncidence]:
    """Whether an object is a :class:`PredictsIncidence`."""
    return has_method(model, "predict_cumulative_incidence")


def incidence_times(y: Outcome, tau: float | None = None) -> FloatArray:
    """Default times of scores of incidences: quantiles of the training event times.

    Rows with zero weight are ignored.

    Args:
        y: outcome of the training rows, a `Surv` with causes or the tuple (time, cause).
        tau: the last time; None for the 90 % quantile of the observed event times, since censoring weights
            increase beyond it.

    Returns:
        about a hundred or fewer times, strictly increasing: quantiles from 2 % on, and ``tau``.

    Raises:
        DataError: invalid arguments (see `sstorch.checks`), or no event.

    Examples:
        >>> incidence_times(([1.0, 2.0, 3.0, 4.0], [1, 2, 1, 0]), tau=2.5)[[0, -1]].round(2).tolist()
        [1.04, 2.5]
    """
    known = read_causes(y, "a grid of times", entry=True, weight=True)
    row_time, codes = known.time, known.cause
    if known.weight is not None:
        row_time, codes = row_time[known.weight > 0], codes[known.weight > 0]
    if tau is not None:
        check_observed_horizon(check_horizon(tau, "tau"), row_time, "tau")
    events = row_time[codes > 0]
    if events.size == 0:
        raise DataError("cause: no row has an event: default times of scores are not defined.")
    last = _LAST_QUANTILE if tau is None else float((events <= tau).mean())
    times = np.quantile(events, np.linspace(min(_FIRST_QUANTILE, last), last, _N_TIMES))
    return np.unique(times if tau is None else np.append(times[times < tau], tau))


@dataclass(frozen=True, eq=False)
class ScoredIncidences:
    """Test rows, their incidences and the training rows."""

    kind: ClassVar[Kind] = "competing"

    y: ObservedCauses  # outcome of the test rows
    incidence: FloatArray  # predicted F_k on `times`, shape (n, K, n_times)
    times: FloatArray  # the grid, shape (n_times,); its last time is the horizon of scores at one time
    train: ObservedCauses  # outcome of the training rows
    names: tuple[str, ...]  # of the K causes

    @property
    def late(self) -> bool:
        """Whether test or training rows have entry times."""
        return self.y.entry is not None or self.train.entry is not None

    @classmethod
    def predicted(
        cls,
        model: PredictsIncidence | Incidences,
        X: Any,
        y: Outcome,
        train: Outcome,
        names: tuple[str, ...],
        tau: float | None,
        after: float | None = None,
    ) -> Self:
        """Predict, or take, the incidences of rows whose causes have the order of `names`.

        With `after` the rows are those at risk then, their times count from there, and incidences are those
        of rows without an event by then.
        """
        rows, known = (read_causes(part, _WHAT, entry=True, weight=True) for part in (y, train))
        if isinstance(model, tuple) and len(model) == 2:
            if after is not None:
                raise DataError("after: needs a model, to predict conditional incidences.")
            incidence, times = _up_to(tau, *model)
        elif predicts_incidence(model):
            times = incidence_times(known, tau)
            at = times if after is None else np.append(after, after + times)
            incidence = model.predict_cumulative_incidence(X, at)
            if after is not None:
                incidence = conditional_incidences(np.asarray(incidence, dtype=np.float64), after)
        else:
            raise DataError(
                "model must be a fitted model with predict_cumulative_incidence(X, times), or the pair "
                f"(incidence, times), got {model if isinstance(model, type) else type(model).__name__}."
            )
        curves = as_numbers(incidence, "incidence")
        expected = (rows.time.size, len(names), times.size)
        if curves.shape != expected:
            more = curves.ndim == 3 and curves.shape[1] == expected[1] + 1
            hint = " Where the first curve is survival, leave it out." if more else ""
            raise DataError(
                f"incidence must have shape (n_samples, n_causes, n_times) = {expected}, got "
                f"{curves.shape}.{hint}"
            )
        for k in range(expected[1]):
            check_incidence(curves[:, k], rows.time.size, times.size)
        return cls(rows, curves, times, known, names)

    def curves(self, which: int) -> FloatArray:
        """Incidences of a cause, (n, n_times)."""
        return self.incidence[:, which - 1]


def _up_to(
    tau: float | None, incidence: npt.ArrayLike, times: npt.ArrayLike
) -> tuple[FloatArray, FloatArray]:
    """Curves that are given, up to a time."""
    grid, curves = check_times(times), as_numbers(incidence, "incidence")
    if tau is None or curves.shape[-1:] != grid.shape:
        return curves, grid
    inside = grid <= check_horizon(tau, "tau")
    if not inside.any():
        raise DataError(f"times must include values up to tau={tau:g}, got {grid[0]:g} to {grid[-1]:g}.")
    return curves[..., inside], grid[inside]


def _through(times: FloatArray) -> float:
    """Truncation of a concordance up to and including the last of the times."""
    return float(np.nextafter(times[-1], np.inf))


@_metric("c_cause_specific", "Cause-specific concordance", "C cs", True, entry=True, tags="study")
def _c_cause_specific(rows: ScoredIncidences, which: int) -> float:
    risk, tau = rows.curves(which)[:, -1], _through(rows.times)
    return concordance_cause_specific(rows.y, risk, which, tied_time="censored_later", tau=tau)


@_metric("c_wolbers", "Concordance (Wolbers)", "C_W", True, censoring_weights=True, tags="study headline")
def _c_wolbers(rows: ScoredIncidences, which: int) -> float:
    risk, tau = rows.curves(which)[:, -1], _through(rows.times)
    return concordance_wolbers(rows.y, risk, which, tau=tau, train=rows.train)


@_metric("auc", "AUC at the horizon", "AUC(t)", True, censoring_weights=True)
def _auc(rows: ScoredIncidences, which: int) -> float:
    last = rows.curves(which)[:, -1:]
    (area,) = cumulative_dynamic_auc_incidence(rows.y, last, rows.times[-1:], which, train=rows.train)
    if np.isnan(area):
        raise DataError(f"times: up to {rows.times[-1]:g} there are no cases, or no controls.")
    return float(area)


@_metric("brier", "Brier score at the horizon", "Brier(t)", False, censoring_weights=True)
def _brier(rows: ScoredIncidences, which: int) -> float:
    last = rows.curves(which)[:, -1:]
    return float(brier_score_incidence(rows.y, last, rows.times[-1:], which, train=rows.train)[0])


@_metric(
    "ibs",
    "Integrated Brier score of the incidence",
    "IBS F",
    False,
    censoring_weights=True,
    tags="study headline",
)
def _ibs(rows: ScoredIncidences, which: int) -> float:
    return _ibs_of(rows, rows.curves(which), which)


def _ibs_of(rows: ScoredIncidences, curves: FloatArray, which: int) -> float:
    return integrated_brier_score_incidence(rows.y, curves, rows.times, which, train=rows.train)


@_metric(
    "scaled_ibs",
    "Scaled integrated Brier score of the incidence",
    "scaled IBS F",
    True,
    censoring_weights=True,
)
def _scaled_ibs(rows: ScoredIncidences, which: int) -> float:
    overall = aalen_johansen(rows.train, rows.times)[which - 1]
    reference = _ibs_of(rows, np.broadcast_to(overall, rows.curves(which).shape), which)
    return relative_score(_ibs(rows, which), reference, "Aalen-Johansen")


@_metric("aj_calibration", "Distance from Aalen and Johansen", "AJ cal.", False)
def _aj_calibration(rows: ScoredIncidences, which: int) -> float:
    return aalen_johansen_calibration(rows.y, rows.curves(which), rows.times, which)

"""Measures of predictions at one horizon, each declared once by the function that computes it.

A measure gives its value and the influences of the rows: derivatives with respect to their weights, each
times the weight. Its standard error is the root of their sum of squares, rows of a subject added up first.
Weights 1 / G are from the same rows, with their derivatives in the influences: to first order that is the
influence function of Blanche, Dartigues and Jacqmin-Gadda (2013), Statistics in Medicine 32, 5381-5397, as in
timeROC and riskRegression. Limits are Wald limits on a scale, for scores in (0, 1) the logit, for ratios the
logarithm; NaN where no variance can be estimated. Errors of calibration invert a test, the concordance of
Wolbers et al. has limits of a bootstrap in `sstorch.validation.validate`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import numpy as np
from scipy.special import expit, logit

from sstorch._types import FloatArray
from sstorch.checks import check_choice
from sstorch.exceptions import ConfigError, DataError
from sstorch.metrics.calibration import (
    CalibrationErrors,
    calibration_errors,
    calibration_intercept,
    calibration_slope,
    error_limits,
)
from sstorch.metrics.censoring import censoring_distribution, floored, risk_sets
from sstorch.metrics.checks import half_width
from sstorch.metrics.concordance import concordance_wolbers
from sstorch.metrics.groups import Estimate
from sstorch.metrics.horizon import HorizonRows
from sstorch.metrics.outcome import Observed
from sstorch.metrics.pairs import ComparablePairs, rank_sums
from sstorch.metrics.weights import NO_ERROR, NONE_LEFT

# A value and the influences of the rows, (n,).
Influences = tuple[float, FloatArray]
# Of limits: the scale, its inverse, and its derivative at a value.
_SCALES: dict[str, tuple[Callable[[float], Any], Callable[[Any], Any], Callable[[float], float]]] = {
    "plain": (lambda value: value, lambda place: place, lambda value: 1.0),
    "logit": (logit, expit, lambda value: 1.0 / (value * (1.0 - value))),
    "log": (np.log, np.exp, lambda value: 1.0 / value),
    "relative": (  # one minus a ratio
        lambda value: -np.log(1.0 - value),
        lambda place: 1.0 - np.exp(-place),
        lambda value: 1.0 / (1.0 - value),
    ),
}
JACKKNIFE, SANDWICH, BOOTSTRAP = "infinitesimal jackknife", "sandwich", "bootstrap"
NO_VARIANCE = "no limits: the variance cannot be estimated (a single event, or all pairs concordant)"


@dataclass(frozen=True)
class Measure:
    """A measure of predictions at one horizon."""

    title: str  # in words
    ideal: float  # of perfect predictions
    function: Callable[[HorizonRows], Any]  # value and influences; the value alone without a scale
    method: str  # of the limits
    scale: str | None = None  # of limits from influences
    few: bool = False  # limits by Student's t: with few rows the error of a mean of squares is uncertain
    # whether it is of one event, of competing causes, or of both
    events: Literal["one", "competing", "both"] = "both"
    higher_is_better: bool | None = None  # direction; None where a difference is no judgement, as of O/E
    limits: Callable[[HorizonRows, float], Estimate[float]] | None = None  # value and limits by a test

    def defined_for(self, competing: bool) -> bool:
        """Whether the measure belongs to outcomes with, or without, competing causes."""
        return self.events in ("both", "competing" if competing else "one")

    def of(self, rows: HorizonRows) -> float:
        """The value; a DataError if it is not defined for these rows."""
        found = self.function(rows)
        return float(found if self.scale is None else found[0])

    def interval(self, rows: HorizonRows, level: float) -> Estimate[float] | None:
        """Value and limits; None if limits are those of a bootstrap."""
        if self.scale is None:
            return None if self.limits is None else self.limits(rows, level)
        half = half_width(level, max(rows.n_subjects - 1, 1) if self.few else None)
        value, influence = self.function(rows)
        return limits_of(value, rows.error_of(influence), half, self.scale)


MEASURES: dict[str, Measure] = {}


def measure(rows: HorizonRows, name: str, level: float = 0.95) -> Estimate[float]:
    """Compute a measure of predictions at one horizon, with confidence limits.

    Args:
        rows: outcomes and predictions at the horizon.
        name: "c_harrell_t", "c_uno_t", "c_cause_specific", "auc", "oe_ratio",
            "calibration_intercept", "calibration_slope", "ici", "e50", "e90", "e_max", "brier" or
            "scaled_brier"; defined in :func:`sstorch.validation.validate`.
        level: level of the limits, in (0, 1).

    Returns:
        Value and limits. Limits are NaN if the variance cannot be estimated: a single event, one case, one
        control, or a concordance of 0 or 1.

    Raises:
        DataError: the measure is not defined for these rows: no event by the horizon, left truncation, or
            predictions without a place on its scale.
        ConfigError: an unknown name, or a level out of range.

    Examples:
        >>> rows = HorizonRows.of(([1, 2, 3, 4], [1, 1, 1, 0]), [0.2, 0.7, 0.4, 0.8], 2.5)
        >>> [round(part, 3) for part in measure(rows, "auc")]
        [0.75, 0.18, 0.976]
    """
    check_choice(name, "name", MEASURES)
    found = MEASURES[name].interval(rows, level)
    if found is None:
        raise ConfigError(f"limits of {name} are those of a bootstrap: use sstorch.validate")
    return found


def limits_of(value: float, error: float, half: float, scale: str) -> Estimate[float]:
    """Limits of a value, `half` errors to both sides on a scale; NaN without an error or a place on it."""
    if not error > NO_ERROR or (scale == "logit" and not 0.0 < value < 1.0):
        return Estimate(value, np.nan, np.nan)
    forward, back, slope = _SCALES[scale]
    place, step = forward(value), half * error * slope(value)
    return Estimate(value, float(back(place - step)), float(back(place + step)))


def _declare(
    title: str, ideal: float, method: str, scale: str | None, **facts: Any
) -> Callable[[Callable[[HorizonRows], Any]], Callable[[HorizonRows], Any]]:
    """Enter a measure under the name of the function; arguments are those of `Measure`."""

    def enter(function: Callable[[HorizonRows], Any]) -> Callable[[HorizonRows], Any]:
        MEASURES[function.__name__] = Measure(title, ideal, function, method, scale, **facts)
        return function

    return enter


_of_scores = partial(_declare, ideal=1.0, method=JACKKNIFE, scale="logit", higher_is_better=True)


@_of_scores("concordance, Harrell", events="one")
def c_harrell_t(rows: HorizonRows) -> Influences:
    """Concordance up to t as `concordance_harrell` with `tied_time="censored_later"`, other causes censored.

    Influences: Therneau and Atkinson, Concordance, vignette of the R package survival.
    """
    return _concordance(rows)[0]


@_of_scores("concordance, Uno", events="one")
def c_uno_t(rows: HorizonRows) -> Influences:
    """As `c_harrell_t` with pairs of weight 1 / G(t_i-)^2: Uno et al. (2011), Statistics in Medicine 30."""
    rows.check_from_zero("Uno's concordance")
    (value, influence), excess = _concordance(rows, _censoring_weights(rows)[0] ** 2)
    return value, influence + _through_weights(rows, 2.0 * excess, 0.0)


MEASURES["c_cause_specific"] = Measure(
    "concordance, cause-specific",
    1.0,
    c_harrell_t,
    JACKKNIFE,
    "logit",
    events="competing",
    higher_is_better=True,
)


@_declare("concordance, Wolbers", 1.0, BOOTSTRAP, None, events="competing", higher_is_better=True)
def c_wolbers(rows: HorizonRows) -> float:
    """`concordance_wolbers` of the cause of interest with G from these rows; an event at t counts."""
    rows.check_from_zero("the concordance of Wolbers")
    tau = float(np.nextafter(rows.t, np.inf))
    return concordance_wolbers(rows.y, -rows.survival, rows.cause, train=rows.y, tau=tau)


@_of_scores("AUC at the horizon")
def auc(rows: HorizonRows) -> Influences:
    """The cumulative/dynamic AUC at t: `cumulative_dynamic_auc` with G from these rows."""
    # Blanche et al. (2013), Statistics in Medicine 32, 5381-5397. No influences from one case or one control.
    rows.check_from_zero("the AUC")
    at_event, at_risk = _censoring_weights(rows)
    ended = rows.y.time <= rows.t
    weight = rows.y.weights * np.where(ended, at_event, at_risk)
    case = ended & rows.interest
    control = ~case & (weight > 0.0)
    if not case.any() or not control.any():
        raise DataError(
            f"t: AUC needs cases and controls, so a time from the first event to before the last observed "
            f"time, {rows.y.time.max():g}; got {rows.t:g}."
        )
    mass, other = weight[case].sum(), weight[control].sum()
    beaten = _share_above(rows.survival[case], rows.survival[control], weight[control])
    beating = 1.0 - _share_above(rows.survival[control], rows.survival[case], weight[case])
    value = float(weight[case] @ beaten / mass)
    influence = np.zeros(len(rows))
    influence[case] = weight[case] * (beaten - value) / mass
    influence[control] = weight[control] * (beating - value) / other
    through = _through_weights(rows, np.where(ended, influence, 0.0), float(influence[~ended].sum()))
    several = min(np.count_nonzero(case), np.count_nonzero(control)) > 1
    return value, influence + through if several else np.full(len(rows), np.nan)


@_declare("observed over expected risk", 1.0, JACKKNIFE, "log")
def oe_ratio(rows: HorizonRows) -> Influences:
    """Observed risk by t (Aalen-Johansen) over the mean predicted risk, which is taken as known."""
    # Above 1 risks are too low. McLernon et al. (2023), Annals of Internal Medicine 176, 105-114;
    # Debray et al. (2017), BMJ 356, i6460.
    rows.check_from_zero("the observed over the mean predicted risk")
    rows.check_events()
    expected = float(1.0 - np.average(rows.survival, weights=rows.y.weight))
    if expected == 0.0:
        raise DataError("survival: every prediction is 1: no event is expected.")
    observed, moved = rows.incidence()
    return observed / expected, rows.y.weights * moved / expected


_declare("calibration intercept", 0.0, SANDWICH, "plain")(calibration_intercept)
_declare("calibration slope", 1.0, SANDWICH, "plain")(calibration_slope)


def _error(rows: HorizonRows, name: str) -> float:
    return float(getattr(calibration_errors(rows), name))


_TITLES = (
    "integrated calibration index",
    "median calibration error",
    "90 % quantile of calibration errors",
    "largest calibration error",
)
for _name, _title in zip(CalibrationErrors._fields, _TITLES, strict=True):
    MEASURES[_name] = Measure(
        _title,
        0.0,
        partial(_error, name=_name),
        "inverted test",
        higher_is_better=False,
        limits=partial(error_limits, name=_name),
    )


@_declare("Brier score", 0.0, JACKKNIFE, "logit", few=True, higher_is_better=False)
def brier(rows: HorizonRows) -> Influences:
    """`brier_score` at t with G from these rows: Blanche et al. (2015), Biometrics 71, 102-113."""
    rows.check_from_zero("the Brier score")
    return _brier(rows, rows.survival)


@_declare("scaled Brier score", 1.0, JACKKNIFE, "relative", few=True, higher_is_better=True)
def scaled_brier(rows: HorizonRows) -> Influences:
    """1 - BS / BS_0, with the Aalen-Johansen estimate of these rows as prediction for all rows in BS_0."""
    # The reference has the lowest score of all constant predictions; its error has no first-order effect.
    value, influence = brier(rows)
    best, best_influence = _brier(rows, np.full(len(rows), 1.0 - rows.incidence()[0]))
    if best == 0.0:
        raise DataError(f"t: Kaplan-Meier makes no error at {rows.t:g}; give a time from the first event on.")
    ratio = value / best
    return 1.0 - ratio, (ratio * best_influence - influence) / best


def _concordance(rows: HorizonRows, inverse: FloatArray | None = None) -> tuple[Influences, FloatArray]:
    """Concordance up to the horizon with pairs of a weight `inverse`, (n,), at events, one if None."""
    # The last result is the part of an event's own pairs; influences are NaN from a single event.
    entry = rows.y.entry
    inside = np.arange(len(rows)) if entry is None else np.flatnonzero(entry < rows.t)
    part = rows.take(inside)
    own_weight, time = part.y.weights, np.minimum(part.y.time, rows.t)
    options = {"row_weight": own_weight, "entry": part.y.entry}
    happened = part.interest & (part.y.time <= rows.t)
    pairs = ComparablePairs.of(time, happened, "censored_later", None, inverse, **options)
    events, order = pairs.events, pairs.order
    lower, tied = pairs.compare_risk(-part.survival)
    weight, right, whole = pairs.event_weight, lower + 0.5 * tied, pairs.partners()
    assert weight is not None
    total = float(weight @ whole)
    if total == 0.0:
        raise DataError(f"no comparable pair among {len(rows)} rows up to {rows.t:g}: too few events.")
    value = float(weight @ right) / total
    # Sums of an event over its partners, and of a partner over its events.
    excess, influence = np.zeros((2, len(rows)))
    excess[inside[events]] = weight * (right - value * whole) / total
    if np.count_nonzero(whole) == 1:
        influence[inside] = np.nan
        return (value, influence), excess
    rank = np.unique(part.survival, return_inverse=True)[1].astype(np.int32)
    last, first = np.searchsorted(pairs.start, np.arange(inside.size), side="right"), np.zeros_like(order)
    if part.y.entry is not None:
        first = np.searchsorted(time[events], part.y.entry[order], side="right")
    lower, tied = rank_sums(rank[order], rank[events], first, last, weight)
    mass = np.append(0.0, np.cumsum(weight))
    behind = lower + 0.5 * tied - value * (mass[last] - mass[first])
    influence[inside[order]] = own_weight[order] * behind / total
    return (value, influence + excess), excess


def _brier(rows: HorizonRows, survival: FloatArray) -> tuple[float, FloatArray]:
    """The Brier score at t and its weighted derivatives with respect to the weights of the rows, (n,)."""
    at_event, at_risk = _censoring_weights(rows)
    alive = rows.y.time > rows.t
    happened = rows.interest & ~alive
    square = np.where(alive, at_risk, at_event) * np.where(happened, survival, 1.0 - survival) ** 2
    weight, total = rows.y.weights, float(rows.y.weights.sum())
    value = float(weight @ square) / total
    early = np.where(alive, 0.0, weight * square) / total
    through = _through_weights(rows, early, float((weight * square)[alive].sum()) / total)
    return value, weight * (square - value) / total + through


def _censoring_weights(rows: HorizonRows) -> tuple[FloatArray, float]:
    """1 / G(t_i-) of rows with an event of any cause (0 for the others), (n,), and 1 / G at the horizon."""
    censoring = floored(censoring_distribution(rows.y))
    return np.where(rows.y.event, 1.0 / censoring.before(rows.y.time), 0.0), 1.0 / float(censoring.at(rows.t))


def _through_weights(rows: HorizonRows, at_event: FloatArray, at_risk: float) -> FloatArray:
    """How a sum of terms c_i / G moves with the weight of each row that G comes from, times it, (n,)."""
    # Terms `at_event` (n,) have G(t_i-), their sum `at_risk` has G(t). A weight w moves log G by -w / (Y - N)
    # if censored at u, by w N / (Y (Y - N)) if at risk; Y at risk, N censored.
    distinct, position, n_events, censored, at_or_after = risk_sets(
        Observed(rows.y.time, rows.y.event, weight=rows.y.weight)
    )
    exposed = at_or_after - n_events
    # Terms that feel a censoring at each time: events later than it, and those at risk at t.
    here = np.bincount(position, weights=at_event, minlength=distinct.size)
    later = here.sum() - np.cumsum(here) + np.where(distinct <= rows.t, at_risk, 0.0)
    left = exposed - censored
    counts = (censored > 0.0) & (left > NONE_LEFT * at_or_after)
    own = np.divide(later, left, out=np.zeros_like(later), where=counts)
    shared = np.divide(censored * own, exposed, out=np.zeros_like(later), where=counts)
    moved = np.cumsum(shared)[position] - np.where(rows.y.event, shared[position], own[position])
    return np.asarray(-rows.y.weights * moved)


def _share_above(low: FloatArray, high: FloatArray, weight: FloatArray) -> FloatArray:
    """Share of the weight of the values `high` (m,) that is above each of `low` (k,), ties a half; (k,)."""
    order = np.argsort(high, kind="stable")
    mass = np.concatenate(([0.0], np.cumsum(weight[order])))
    up_to = mass[np.searchsorted(high[order], low, side="right")]
    below = mass[np.searchsorted(high[order], low, side="left")]
    return np.asarray(1.0 - 0.5 * (up_to + below) / mass[-1])

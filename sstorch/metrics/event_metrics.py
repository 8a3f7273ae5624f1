"""Metrics of one event by name, each read off scored rows."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from sstorch._types import BoolArray, FloatArray
from sstorch.exceptions import DataError
from sstorch.metrics.calibration import d_calibration_at, integrated_calibration_index, one_calibration
from sstorch.metrics.censoring import KaplanMeier
from sstorch.metrics.checks import check_grid_unit
from sstorch.metrics.concordance import cumulative_dynamic_auc, mean_cumulative_dynamic_auc
from sstorch.metrics.curves import survival_at
from sstorch.metrics.integrated_brier import integrated_brier_score, scaled_integrated_brier_score
from sstorch.metrics.outcome import read_rows
from sstorch.metrics.registry import metric
from sstorch.metrics.scored_rows import ScoredRows


def _auc_times(rows: ScoredRows, tau: float | None) -> BoolArray:
    """Marks the times of the grid that have cases and controls among these rows, up to tau."""
    _, times = rows.on_grid("osst")
    first = rows.y.time[rows.y.event].min(initial=np.inf)
    last = np.inf if tau is None else tau
    inside: BoolArray = (times >= first) & (times < rows.y.time.max()) & (times <= last)
    return inside


def _uno_weighted(rows: ScoredRows, tau: float | None) -> FloatArray:
    time, event = rows.y.time, rows.y.event
    return time[event & (time < (np.inf if tau is None else tau))]


def _auc_weighted(rows: ScoredRows, tau: float | None) -> FloatArray:
    last = float(rows.on_grid("osst")[1][_auc_times(rows, tau)].max())
    return rows.y.time[rows.y.event & (rows.y.time <= last)]


def _brier_weighted(rows: ScoredRows, _: float | None) -> FloatArray:
    return rows.y.time  # censored rows weigh while they are at risk


@metric(
    "c_harrell",
    "Concordance (Harrell, Antolini)",
    "C_H",
    True,
    entry=True,
    tags="tree study peers accuracy published headline",
)
def _c_harrell(rows: ScoredRows, tau: float | None) -> float:
    return rows.compared.concordance(tau)


@metric(
    "c_harrell_ties",
    "Concordance (Harrell, tied times count)",
    "C_H ties",
    True,
    entry=True,
    tags="study published asked",
    alias="c_harrell",
)
def _c_harrell_ties(rows: ScoredRows, tau: float | None) -> float:
    return rows.compared.with_tied_times(rows.y, rows.survival, rows.times).concordance(tau)


@metric(
    "c_uno",
    "Concordance (Uno)",
    "C_U",
    True,
    weighted_times=_uno_weighted,
    censoring_weights=True,
    tags="study peers accuracy published",
)
def _c_uno(rows: ScoredRows, tau: float | None) -> float:
    return rows.compared.concordance(tau, rows.outcome.uno_weight)


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
    times, inside = rows.on_grid("osst")[1], _auc_times(rows, tau)
    # The mean weighs AUC(t) by the fall of Kaplan-Meier, so that times without an event do not count.
    counted = times[inside][np.diff(KaplanMeier.fit(rows.y).at(times[inside]), prepend=1.0) < 0.0]
    if not counted.size:
        raise DataError("times: no time has both cases and controls: AUC(t) is not defined.")
    curves = rows.checked.T[np.searchsorted(rows.times, counted)].T
    auc = cumulative_dynamic_auc(rows.y, curves, counted, train=rows.train)
    return mean_cumulative_dynamic_auc(rows.y, auc, counted)


def _ibs(convention: str) -> Callable[[ScoredRows, float | None], float]:
    def value(rows: ScoredRows, _: float | None) -> float:
        if convention == "graf":
            return rows.graf.score(rows.train)
        curves, times = rows.on_grid(convention)
        return integrated_brier_score(rows.y, curves, times, train=rows.train, convention=convention)

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


@metric(
    "ibs_graf_own",
    "Integrated Brier score (graf, weights of the scored rows)",
    "IBS own",
    False,
    weighted_times=_brier_weighted,
    censoring_weights=True,
    tags="study published asked",
    alias="ibs",
)
def _ibs_own(rows: ScoredRows, _: float | None) -> float:
    return rows.graf.score(rows.y)


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
    return scaled_integrated_brier_score(rows.y, curves, times, train=rows.train)


def _at_horizon(rows: ScoredRows, tau: float | None) -> tuple[FloatArray, float]:
    """The predictions at one time: the median event time up to tau."""
    time, event = rows.y.time, rows.y.event
    events = time[event & (time <= (np.inf if tau is None else tau))]
    if events.size == 0:
        raise DataError("event: no test row has an event: the median event time is not defined.")
    t = float(np.median(events))
    predicted = survival_at(rows.checked, rows.times, np.full(rows.y.time.size, t))
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
    y = read_rows(rows.y, "D-calibration")
    check_grid_unit(y.time, y.event, rows.times)
    return d_calibration_at(y.event, survival_at(rows.checked, rows.times, y.time)).p_value


@metric("one_calibration_p", "1-calibration: share of fits with p < .05", "1-cal.", None, rejection=True)
def _one_calibration(rows: ScoredRows, tau: float | None) -> float:
    predicted, t = _at_horizon(rows, tau)
    result = one_calibration(rows.y, predicted, t=t)
    if result.reason:
        raise DataError(result.reason)
    return result.p_value

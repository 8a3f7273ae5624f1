"""Metrics by name: each is a function of scored rows and of a cause, 1 for one event."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

from sstorch._types import BoolArray, FloatArray
from sstorch.exceptions import DataError
from sstorch.metrics.auc import cumulative_dynamic_auc, mean_cumulative_dynamic_auc
from sstorch.metrics.brier import (
    brier_score,
    integrated_brier_score,
    reference_curves,
    relative_score,
    scaled_integrated_brier_score,
)
from sstorch.metrics.calibration import calibration_errors
from sstorch.metrics.censoring import KaplanMeier
from sstorch.metrics.checks import check_grid_unit
from sstorch.metrics.concordance import concordance_harrell_risk, concordance_wolbers
from sstorch.metrics.curves import survival_at
from sstorch.metrics.distribution import aalen_johansen_distance, d_calibration_at
from sstorch.metrics.horizon import HorizonRows
from sstorch.metrics.outcome import read_rows
from sstorch.metrics.registry import declare, metric
from sstorch.metrics.scored import Scored

# Least probability of a prediction in the index of calibration.
_LEAST = 1e-6
_of_causes = partial(metric, outcomes=("competing",))
_ANTOLINI = "Antolini, Boracchi and Biganzoli (2005), Statistics in Medicine 24, 3927-3944"
_UNO = "Uno, Cai, Pencina, D'Agostino and Wei (2011), Statistics in Medicine 30, 1105-1117"
_GRAF = "Graf, Schmoor, Sauerbrei and Schumacher (1999), Statistics in Medicine 18, 2529-2545"
_KATTAN = "Kattan and Gerds (2018), Diagnostic and Prognostic Research 2, 7"
_BLANCHE = "Blanche, Dartigues and Jacqmin-Gadda (2013), Statistics in Medicine 32, 5381-5397"
_SCHOOP = "Schoop, Beyersmann, Schumacher and Binder (2011), Biometrical Journal 53, 88-112"


def _last(rows: Scored) -> float:
    return np.inf if rows.tau is None else rows.tau


def _auc_times(rows: Scored) -> BoolArray:
    """Marks the times of the grid that have cases and controls among these rows, up to tau."""
    _, times = rows.on_grid("osst")
    first = rows.y.time[rows.y.event].min(initial=np.inf)
    inside: BoolArray = (times >= first) & (times < rows.y.time.max()) & (times <= _last(rows))
    return inside


def _uno_weighted(rows: Scored) -> FloatArray:
    time, event = rows.y.time, rows.y.event
    return time[event & (time < _last(rows))]


def _auc_weighted(rows: Scored) -> FloatArray:
    last = float(rows.on_grid("osst")[1][_auc_times(rows)].max())
    return rows.y.time[rows.y.event & (rows.y.time <= last)]


def _brier_weighted(rows: Scored) -> FloatArray:
    return rows.y.time  # censored rows weigh while they are at risk


@metric(
    "c_harrell",
    "Concordance (Harrell, Antolini)",
    "C_H",
    True,
    _ANTOLINI,
    entry=True,
    tags="tree study peers accuracy published headline",
)
def _c_harrell(rows: Scored, _: int) -> float:
    return rows.compared.concordance(rows.tau)


@metric(
    "c_harrell_ties",
    "Concordance (Harrell, tied times count)",
    "C_H ties",
    True,
    _ANTOLINI,
    entry=True,
    tags="study published asked",
    alias="c_harrell",
)
def _c_harrell_ties(rows: Scored, _: int) -> float:
    return rows.compared.with_tied_times(rows.y, rows.checked, rows.times).concordance(rows.tau)


@metric(
    "c_uno",
    "Concordance (Uno)",
    "C_U",
    True,
    _UNO,
    weighted_times=_uno_weighted,
    censoring_weights=True,
    tags="study peers accuracy published",
)
def _c_uno(rows: Scored, _: int) -> float:
    return rows.compared.concordance(rows.tau, rows.uno_weight)


@metric(
    "cd_auc",
    "Mean cumulative/dynamic AUC",
    "AUC",
    True,
    "Lambert and Chevret (2016), Statistical Methods in Medical Research 25, 2088-2102",
    weighted_times=_auc_weighted,
    censoring_weights=True,
    tags="study accuracy published",
)
def _cd_auc(rows: Scored, _: int) -> float:
    times, inside = rows.on_grid("osst")[1], _auc_times(rows)
    # The mean weighs AUC(t) by the fall of Kaplan-Meier, so that times without an event do not count.
    counted = times[inside][np.diff(KaplanMeier.fit(rows.y).at(times[inside]), prepend=1.0) < 0.0]
    if not counted.size:
        raise DataError("times: no time has both cases and controls: AUC(t) is not defined.")
    curves = rows.checked.T[np.searchsorted(rows.times, counted)].T
    auc = cumulative_dynamic_auc(rows.y, curves, counted, train=rows.train)
    return mean_cumulative_dynamic_auc(rows.y, auc, counted)


def _integrated(convention: str) -> Callable[[Scored, int], float]:
    def value(rows: Scored, _: int) -> float:
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
    _GRAF,
    weighted_times=_brier_weighted,
    censoring_weights=True,
    tags="tree study peers accuracy published headline",
    alias="ibs",
)(_integrated("graf"))


@metric(
    "ibs_graf_own",
    "Integrated Brier score (graf, weights of the scored rows)",
    "IBS own",
    False,
    _GRAF,
    weighted_times=_brier_weighted,
    censoring_weights=True,
    tags="study published asked",
    alias="ibs",
)
def _ibs_own(rows: Scored, _: int) -> float:
    return rows.graf.score(rows.y)


for _name, _higher, _tags, _source in (
    ("sksurv", False, "tree study", _GRAF),
    ("surtree", True, "", "Huisman, van der Linden and Demirovic (2024), AAAI 38"),
    ("osst", False, "", "Zhang, Xin, Seltzer and Rudin (2024), AAAI 38"),
):
    _title, _short = f"Integrated Brier score ({_name})", f"IBS {_name}"
    metric(f"ibs_{_name}", _title, _short, _higher, _source, censoring_weights=True, tags=_tags)(
        _integrated(_name)
    )


@metric(
    "scaled_ibs_graf",
    "Scaled integrated Brier score (graf)",
    "scaled IBS",
    True,
    _KATTAN,
    weighted_times=_brier_weighted,
    censoring_weights=True,
)
def _scaled_ibs_graf(rows: Scored, _: int) -> float:
    curves, times = rows.on_grid("graf")
    return scaled_integrated_brier_score(rows.y, curves, times, train=rows.train)


def _at_horizon(rows: Scored) -> tuple[FloatArray, float]:
    """The predictions at one time: the median event time up to tau."""
    time, event = rows.y.time, rows.y.event
    events = time[event & (time <= _last(rows))]
    if events.size == 0:
        raise DataError("event: no test row has an event: the median event time is not defined.")
    t = float(np.median(events))
    predicted = survival_at(rows.checked, rows.times, np.full(rows.y.time.size, t))
    return np.clip(predicted, 0.0, 1.0), t


@metric(
    "ici_pseudo",
    "Integrated calibration index (pseudo-observations)",
    "ICI",
    False,
    "Austin, Harrell and van Klaveren (2020), Statistics in Medicine 39, 2714-2742",
    tags="study peers",
)
def _ici(rows: Scored, _: int) -> float:
    predicted, t = _at_horizon(rows)
    # Steps of few rows predict 0 and 1, which have no place on the scale of the curve.
    inside = np.clip(predicted, _LEAST, 1.0 - _LEAST)
    return calibration_errors(HorizonRows.of(read_rows(rows.y, "the ICI"), inside, t)).ici


@metric(
    "d_calibration_p",
    "D-calibration: share of fits with p < .05",
    "D-cal.",
    None,
    "Haider, Hoehn, Davis and Greiner (2020), Journal of Machine Learning Research 21 (85)",
    tags="study",
    rejection=True,
)
def _d_calibration(rows: Scored, _: int) -> float:
    y = read_rows(rows.y, "D-calibration")
    check_grid_unit(y.time, y.event, rows.times)
    return d_calibration_at(y.event, survival_at(rows.checked, rows.times, y.time)).p_value


# Scores of causes: at the last of the times, or over them.


def _risk(rows: Scored, cause: int) -> tuple[FloatArray, float]:
    """Risk of a cause by the last of the times, and the truncation up to and including it."""
    return -rows.curves(cause)[:, -1], float(np.nextafter(rows.times[-1], np.inf))


@_of_causes(
    "c_cause_specific",
    "Cause-specific concordance",
    "C cs",
    True,
    "Harrell, Lee and Mark (1996), Statistics in Medicine 15, 361-387",
    entry=True,
    tags="study",
)
def _c_cause_specific(rows: Scored, cause: int) -> float:
    risk, tau = _risk(rows, cause)
    return concordance_harrell_risk(rows.y, risk, tied_time="censored_later", tau=tau, cause=cause)


@_of_causes(
    "c_wolbers",
    "Concordance (Wolbers)",
    "C_W",
    True,
    "Wolbers, Blanche, Koller, Witteman and Gerds (2014), Biostatistics 15, 526-539",
    censoring_weights=True,
    tags="study headline",
)
def _c_wolbers(rows: Scored, cause: int) -> float:
    risk, tau = _risk(rows, cause)
    return concordance_wolbers(rows.y, risk, cause, tau=tau, train=rows.train)


@_of_causes("auc", "AUC at the horizon", "AUC(t)", True, _BLANCHE, censoring_weights=True)
def _auc(rows: Scored, cause: int) -> float:
    last, t = rows.curves(cause)[:, -1:], rows.times[-1:]
    return float(cumulative_dynamic_auc(rows.y, last, t, cause=cause, train=rows.train)[0])


@_of_causes("brier", "Brier score at the horizon", "Brier(t)", False, _SCHOOP, censoring_weights=True)
def _brier(rows: Scored, cause: int) -> float:
    last, t = rows.curves(cause)[:, -1:], rows.times[-1:]
    return float(brier_score(rows.y, last, t, cause=cause, train=rows.train)[0])


def _over_times(rows: Scored, curves: FloatArray, cause: int) -> float:
    options = {"train": rows.train, "convention": "trapezoid", "cause": cause}
    return integrated_brier_score(rows.y, curves, rows.times, **options)  # type: ignore[arg-type]


@_of_causes(
    "ibs",
    "Integrated Brier score of the incidence",
    "IBS F",
    False,
    _SCHOOP,
    censoring_weights=True,
    tags="study headline",
)
def _ibs(rows: Scored, cause: int) -> float:
    return _over_times(rows, rows.curves(cause), cause)


@_of_causes(
    "scaled_ibs",
    "Scaled integrated Brier score of the incidence",
    "scaled IBS F",
    True,
    _KATTAN,
    censoring_weights=True,
)
def _scaled_ibs(rows: Scored, cause: int) -> float:
    overall = reference_curves(rows.train, rows.times, rows.y.time.size, cause)
    return relative_score(_ibs(rows, cause), _over_times(rows, overall, cause), "Aalen-Johansen")


@_of_causes(
    "aj_calibration",
    "Distance from Aalen and Johansen",
    "AJ cal.",
    False,
    "Alberge, Haugomat, Varoquaux and Abecassis (2026), AISTATS, arXiv 2602.00194",
)
def _aj_calibration(rows: Scored, cause: int) -> float:
    y = read_rows(rows.y, "this calibration", causes=True, weight=True)
    check_grid_unit(y.time, y.event, rows.times)
    return aalen_johansen_distance(y, rows.curves(cause), rows.times, cause)


declare(
    "negative_log_likelihood",
    title="Negative log-likelihood",
    short="-log L",
    higher_is_better=False,
    source="Kalbfleisch and Prentice (2002), The Statistical Analysis of Failure Time Data, chapter 3",
    outcomes=("event", "competing"),
    entry=True,
    needs="log_likelihood",
    averaged=False,
)

"""Metrics by name: each is a function of scored rows and of a cause, 1 for one event."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

from sstorch._types import BoolArray, FloatArray
from sstorch.exceptions import DataError
from sstorch.metrics.auc import cumulative_dynamic_auc, mean_cumulative_dynamic_auc
from sstorch.metrics.brier import brier_score, integrated_brier_score, reference_curves, relative_score
from sstorch.metrics.calibration import calibration_errors
from sstorch.metrics.censoring import KaplanMeier
from sstorch.metrics.checks import check_grid_unit
from sstorch.metrics.concordance import concordance_harrell, concordance_wolbers
from sstorch.metrics.curves import survival_at
from sstorch.metrics.distribution import aalen_johansen_distance, d_calibration_at
from sstorch.metrics.horizon import HorizonRows
from sstorch.metrics.outcome import read_rows
from sstorch.metrics.registry import declare, metric
from sstorch.metrics.scored import Scored

# Least probability of a prediction in the index of calibration.
_LEAST = 1e-6
_GRAF = "Graf, Schmoor, Sauerbrei and Schumacher (1999), Statistics in Medicine 18, 2529-2545"


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


_weighted = partial(metric, censoring_weights=True)
_of_causes = partial(metric, outcomes=("competing",))


@metric("C_H", True, entry=True, tags="tree study peers accuracy published headline")
def c_harrell(rows: Scored, _: int) -> float:
    """Concordance (Harrell, Antolini).

    Antolini, Boracchi and Biganzoli (2005), Statistics in Medicine 24, 3927-3944.
    """
    return rows.compared.concordance(rows.tau)


@metric("C_H ties", True, entry=True, tags="study published asked", alias="c_harrell")
def c_harrell_ties(rows: Scored, _: int) -> float:
    """Concordance (Harrell, tied times count).

    Antolini, Boracchi and Biganzoli (2005), Statistics in Medicine 24, 3927-3944.
    """
    return rows.compared.with_tied_times(rows.y, rows.checked, rows.times).concordance(rows.tau)


@_weighted("C_U", True, weighted_times=_uno_weighted, tags="study peers accuracy published")
def c_uno(rows: Scored, _: int) -> float:
    """Concordance (Uno).

    Uno, Cai, Pencina, D'Agostino and Wei (2011), Statistics in Medicine 30, 1105-1117.
    """
    return rows.compared.concordance(rows.tau, rows.uno_weight)


@_weighted("AUC", True, weighted_times=_auc_weighted, tags="study accuracy published")
def cd_auc(rows: Scored, _: int) -> float:
    """Mean cumulative/dynamic AUC.

    Lambert and Chevret (2016), Statistical Methods in Medical Research 25, 2088-2102.
    """
    times, inside = rows.on_grid("osst")[1], _auc_times(rows)
    # The mean weighs AUC(t) by the fall of Kaplan-Meier, so that times without an event do not count.
    counted = times[inside][np.diff(KaplanMeier.fit(rows.y).at(times[inside]), prepend=1.0) < 0.0]
    if not counted.size:
        raise DataError("times: no time has both cases and controls: AUC(t) is not defined.")
    curves = rows.checked.T[np.searchsorted(rows.times, counted)].T
    auc = cumulative_dynamic_auc(rows.y, curves, counted, train=rows.train)
    return mean_cumulative_dynamic_auc(rows.y, auc, counted)


@_weighted(
    "IBS",
    False,
    weighted_times=_brier_weighted,
    tags="tree study peers accuracy published headline",
    alias="ibs",
)
def ibs_graf(rows: Scored, _: int) -> float:
    """Integrated Brier score (graf).

    Graf, Schmoor, Sauerbrei and Schumacher (1999), Statistics in Medicine 18, 2529-2545.
    """
    return rows.graf.score(rows.train)


@_weighted("IBS own", False, weighted_times=_brier_weighted, tags="study published asked", alias="ibs")
def ibs_graf_own(rows: Scored, _: int) -> float:
    """Integrated Brier score (graf, weights of the scored rows).

    Graf, Schmoor, Sauerbrei and Schumacher (1999), Statistics in Medicine 18, 2529-2545.
    """
    return rows.graf.score(rows.y)


def _integrated(convention: str) -> Callable[[Scored, int], float]:
    def value(rows: Scored, _: int) -> float:
        curves, times = rows.on_grid(convention)
        return integrated_brier_score(rows.y, curves, times, train=rows.train, convention=convention)

    return value


for _convention, _higher, _tags, _source in (
    ("sksurv", False, ("tree", "study"), _GRAF),
    ("surtree", True, (), "Huisman, van der Linden and Demirovic (2024), AAAI 38"),
    ("osst", False, (), "Zhang, Xin, Seltzer and Rudin (2024), AAAI 38"),
):
    declare(
        f"ibs_{_convention}",
        title=f"Integrated Brier score ({_convention})",
        short=f"IBS {_convention}",
        higher_is_better=_higher,
        source=_source,
        outcomes=("event",),
        censoring_weights=True,
        tags=_tags,
        value=_integrated(_convention),
    )


@_weighted("scaled IBS", True, weighted_times=_brier_weighted)
def scaled_ibs_graf(rows: Scored, _: int) -> float:
    """Scaled integrated Brier score (graf).

    Kattan and Gerds (2018), Diagnostic and Prognostic Research 2, 7.
    """
    times = rows.on_grid("graf")[1]
    overall = reference_curves(rows.train, times, rows.y.time.size)
    return relative_score(
        rows.graf.score(rows.train), integrated_brier_score(rows.y, overall, times, train=rows.train)
    )


def _at_horizon(rows: Scored) -> tuple[FloatArray, float]:
    """The predictions at one time: the median event time up to tau."""
    time, event = rows.y.time, rows.y.event
    events = time[event & (time <= _last(rows))]
    if events.size == 0:
        raise DataError("event: no test row has an event: the median event time is not defined.")
    t = float(np.median(events))
    predicted = survival_at(rows.checked, rows.times, np.full(rows.y.time.size, t))
    return np.clip(predicted, 0.0, 1.0), t


@metric("ICI", False, tags="study peers")
def ici_pseudo(rows: Scored, _: int) -> float:
    """Integrated calibration index (pseudo-observations).

    Austin, Harrell and van Klaveren (2020), Statistics in Medicine 39, 2714-2742.
    """
    predicted, t = _at_horizon(rows)
    # Steps of few rows predict 0 and 1, which have no place on the scale of the curve.
    inside = np.clip(predicted, _LEAST, 1.0 - _LEAST)
    return calibration_errors(HorizonRows.of(read_rows(rows.y, "the ICI"), inside, t)).ici


@metric("D-cal.", None, tags="study", rejection=True)
def d_calibration_p(rows: Scored, _: int) -> float:
    """D-calibration: share of fits with p < .05.

    Haider, Hoehn, Davis and Greiner (2020), Journal of Machine Learning Research 21 (85).
    """
    y = read_rows(rows.y, "D-calibration")
    check_grid_unit(y.time, y.event, rows.times)
    return d_calibration_at(y.event, survival_at(rows.checked, rows.times, y.time)).p_value


# Scores of causes: at the last of the times, or over them.


def _risk(rows: Scored, cause: int) -> tuple[FloatArray, float]:
    """Risk of a cause by the last of the times, and the truncation up to and including it."""
    return -rows.curves(cause)[:, -1], float(np.nextafter(rows.times[-1], np.inf))


@_of_causes("C cs", True, entry=True, tags="study")
def c_cause_specific(rows: Scored, cause: int) -> float:
    """Cause-specific concordance.

    Harrell, Lee and Mark (1996), Statistics in Medicine 15, 361-387.
    """
    risk, tau = _risk(rows, cause)
    return concordance_harrell(rows.y, risk, tied_time="censored_later", tau=tau, cause=cause)


@_of_causes("C_W", True, censoring_weights=True, tags="study headline")
def c_wolbers(rows: Scored, cause: int) -> float:
    """Concordance (Wolbers).

    Wolbers, Blanche, Koller, Witteman and Gerds (2014), Biostatistics 15, 526-539.
    """
    risk, tau = _risk(rows, cause)
    return concordance_wolbers(rows.y, risk, cause, tau=tau, train=rows.train)


@_of_causes("AUC(t)", True, censoring_weights=True)
def auc(rows: Scored, cause: int) -> float:
    """AUC at the horizon.

    Blanche, Dartigues and Jacqmin-Gadda (2013), Statistics in Medicine 32, 5381-5397.
    """
    last, t = rows.curves(cause)[:, -1:], rows.times[-1:]
    return float(cumulative_dynamic_auc(rows.y, last, t, cause=cause, train=rows.train)[0])


@_of_causes("Brier(t)", False, censoring_weights=True)
def brier(rows: Scored, cause: int) -> float:
    """Brier score at the horizon.

    Schoop, Beyersmann, Schumacher and Binder (2011), Biometrical Journal 53, 88-112.
    """
    last, t = rows.curves(cause)[:, -1:], rows.times[-1:]
    return float(brier_score(rows.y, last, t, cause=cause, train=rows.train)[0])


def _over_times(rows: Scored, curves: FloatArray, cause: int) -> float:
    options = {"train": rows.train, "convention": "trapezoid", "cause": cause}
    return integrated_brier_score(rows.y, curves, rows.times, **options)  # type: ignore[arg-type]


@_of_causes("IBS F", False, censoring_weights=True, tags="study headline")
def ibs(rows: Scored, cause: int) -> float:
    """Integrated Brier score of the incidence.

    Schoop, Beyersmann, Schumacher and Binder (2011), Biometrical Journal 53, 88-112.
    """
    return _over_times(rows, rows.curves(cause), cause)


@_of_causes("scaled IBS F", True, censoring_weights=True)
def scaled_ibs(rows: Scored, cause: int) -> float:
    """Scaled integrated Brier score of the incidence.

    Kattan and Gerds (2018), Diagnostic and Prognostic Research 2, 7.
    """
    overall = reference_curves(rows.train, rows.times, rows.y.time.size, cause)
    return relative_score(ibs(rows, cause), _over_times(rows, overall, cause), "Aalen-Johansen")


@_of_causes("AJ cal.", False)
def aj_calibration(rows: Scored, cause: int) -> float:
    """Distance from Aalen and Johansen.

    Alberge, Haugomat, Varoquaux and Abecassis (2026), AISTATS, arXiv 2602.00194.
    """
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

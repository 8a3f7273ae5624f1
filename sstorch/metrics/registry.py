"""Metrics by name, each declared once, by `metric` above a function of scored rows and of a cause."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

import numpy as np

from sstorch.checks import check_choice
from sstorch.exceptions import ConfigError, DataError
from sstorch.metrics.auc import cumulative_dynamic_auc, mean_cumulative_dynamic_auc
from sstorch.metrics.brier import brier_score, integrated_brier_score, reference_curves, relative_score
from sstorch.metrics.calibration import calibration_errors
from sstorch.metrics.checks import check_overlap
from sstorch.metrics.concordance import concordance_harrell, concordance_wolbers, uno_weights
from sstorch.metrics.curves import survival_at
from sstorch.metrics.distribution import d_calibration_at
from sstorch.metrics.groups import KaplanMeier
from sstorch.metrics.horizon import HorizonRows
from sstorch.metrics.outcome import read_rows
from sstorch.metrics.scored import Kind, Scored

Function = TypeVar("Function", bound=Callable[..., Any])
# Tag of metrics that are computed only where they are named.
ASKED = "asked"
# Least probability of a prediction in the index of calibration.
_LEAST = 1e-6


@dataclass(frozen=True)
class Metric:
    """A metric by its name."""

    name: str  # as in tables and options
    title: str  # in words
    short: str  # title where there is little room
    higher_is_better: bool | None  # direction; None where neither is, as of a p-value
    # Outcomes that it is defined for; none if it is a score of something other than predictions
    outcomes: tuple[Kind, ...] = ()
    # From scored rows and the number of a cause, 1 for one event; None if `evaluate` asks the model
    value: Callable[[Any, Any], float] | None = None
    entry: bool = False  # whether rows with entry times (left truncation) may be scored
    needs: str | None = None  # method that the model has to have; None if predictions suffice
    # Selections that it belongs to, such as ``"study"``; with ``"asked"`` it is computed only where it is
    # named, as another convention of a metric that is
    tags: frozenset[str] = frozenset()
    averaged: bool = True  # whether a mean over data sets makes sense
    rejection: bool = False  # whether values are p-values, of which reports give the share below .05
    alias: str | None = None  # another name, in the published tables of the paper

    @property
    def published(self) -> str | None:
        """Name in the published tables of the paper; None if it is not there."""
        return (self.alias or self.name) if "published" in self.tags else None

    @property
    def direction(self) -> str:
        """The direction in words."""
        if self.higher_is_better is None:
            return "no direction"
        return "higher is better" if self.higher_is_better else "lower is better"


METRICS: dict[str, Metric] = {}


def declare(name: str, *, tags: Iterable[str] = (), **facts: Any) -> Metric:
    """Enter a metric; a function that is defined again, as in a notebook, replaces the previous one."""
    new = Metric(name, tags=frozenset(tags), **facts)
    known = METRICS.get(name)
    if known is not None:
        places = [
            None if value is None else (value.__module__, value.__qualname__)
            for value in (known.value, new.value)
        ]
        if None in places or places[0] != places[1]:
            raise ConfigError(f"the metric {name!r} is declared already")
    METRICS[name] = new
    return new


def metric(
    short: str,
    higher_is_better: bool | None,
    *,
    outcomes: tuple[Kind, ...] = ("event",),
    tags: str = "",
    **facts: Any,
) -> Callable[[Function], Function]:
    """Declare a metric under the name of the function that reads it off scored rows."""
    # The first sentence of its docstring is the title; `tags` are words; the rest are attributes of `Metric`.

    def enter(function: Function) -> Function:
        title = " ".join((function.__doc__ or "").split()).partition(". ")[0].rstrip(".")
        facts.update(title=title, short=short, higher_is_better=higher_is_better, value=function)
        declare(function.__name__, outcomes=outcomes, tags=tags.split(), **facts)
        return function

    return enter


def names_of(kind: Kind | None = None, tag: str | None = None) -> list[str]:
    """Names of metrics of an outcome, or of a selection, as declared; without one those not only "asked"."""
    return [
        name
        for name, known in METRICS.items()
        if (kind is None or kind in known.outcomes)
        and (tag in known.tags if tag is not None else ASKED not in known.tags)
    ]


def check_names(names: Iterable[str], known: Iterable[str]) -> list[str]:
    """Names of metrics, in the given order."""
    given, there = ([names] if isinstance(names, str) else list(names)), list(known)
    for name in given:
        check_choice(name, "metrics", there)
    if not given or len(set(given)) < len(given):
        raise ConfigError(f"metrics must be one or more different names, got {given!r}.")
    return given


# ---------------------------------------------------------------------- one event


@metric("C_H", True, entry=True, tags="tree study peers accuracy published headline")
def c_harrell(rows: Scored, _: int) -> float:
    """Concordance (Harrell, Antolini). Antolini et al. (2005), Statistics in Medicine 24, 3927-3944."""
    return rows.compared.concordance(rows.tau)


@metric("C_H ties", True, entry=True, tags="study published asked", alias="c_harrell")
def c_harrell_ties(rows: Scored, _: int) -> float:
    """Concordance (Harrell, tied times count). Antolini et al. (2005), Statistics in Medicine 24."""
    return rows.compared.with_tied_times(rows.y, rows.curves(), rows.times).concordance(rows.tau)


@metric("C_U", True, tags="study peers accuracy published")
def c_uno(rows: Scored, _: int) -> float:
    """Concordance (Uno). Uno et al. (2011), Statistics in Medicine 30, 1105-1117."""
    return rows.compared.concordance(rows.tau, uno_weights(rows.y, rows.train))


@metric("AUC", True, tags="study accuracy published")
def cd_auc(rows: Scored, _: int) -> float:
    """Mean cumulative/dynamic AUC. Lambert and Chevret (2016), Statistical Methods in Medical Research 25."""
    # Times of the grid with cases and controls among these rows, up to tau.
    times = rows.on_grid("osst")[1]
    first = rows.y.time[rows.y.event].min(initial=np.inf)
    times = times[(times >= first) & (times < rows.y.time.max()) & (times <= rows.last)]
    # The mean weighs AUC(t) by the fall of Kaplan-Meier, so that times without an event do not count.
    times = times[np.diff(KaplanMeier.fit(rows.y, level=None).at(times), prepend=1.0) < 0.0]
    if not times.size:
        raise DataError("times: no time has both cases and controls: AUC(t) is not defined.")
    curves = rows.curves().T[np.searchsorted(rows.times, times)].T
    return mean_cumulative_dynamic_auc(
        rows.y, cumulative_dynamic_auc(rows.y, curves, times, train=rows.train), times
    )


@metric("IBS", False, tags="tree study peers accuracy published headline", alias="ibs")
def ibs_graf(rows: Scored, _: int) -> float:
    """Integrated Brier score (graf). Graf et al. (1999), Statistics in Medicine 18, 2529-2545."""
    return rows.graf.score(rows.train)


@metric("IBS own", False, tags="study published asked", alias="ibs")
def ibs_graf_own(rows: Scored, _: int) -> float:
    """Integrated Brier score (graf, weights of the scored rows). Graf et al. (1999)."""
    return rows.graf.score(rows.y)


def _integrated(rows: Scored, convention: str) -> float:
    curves, times = rows.on_grid(convention)
    return integrated_brier_score(rows.y, curves, times, train=rows.train, convention=convention)


@metric("IBS sksurv", False, tags="tree study")
def ibs_sksurv(rows: Scored, _: int) -> float:
    """Integrated Brier score (sksurv). Graf et al. (1999), Statistics in Medicine 18, 2529-2545."""
    return _integrated(rows, "sksurv")


@metric("IBS surtree", True)
def ibs_surtree(rows: Scored, _: int) -> float:
    """Integrated Brier score (surtree). Huisman, van der Linden and Demirovic (2024), AAAI 38."""
    return _integrated(rows, "surtree")


@metric("IBS osst", False)
def ibs_osst(rows: Scored, _: int) -> float:
    """Integrated Brier score (osst). Zhang, Xin, Seltzer and Rudin (2024), AAAI 38."""
    return _integrated(rows, "osst")


@metric("scaled IBS", True)
def scaled_ibs_graf(rows: Scored, _: int) -> float:
    """Scaled integrated Brier score (graf). Kattan and Gerds (2018), Diagn. and Prognostic Research 2."""
    times = rows.on_grid("graf")[1]
    overall = reference_curves(rows.train, times, rows.y.time.size)
    reference = integrated_brier_score(rows.y, overall, times, train=rows.train)
    return relative_score(rows.graf.score(rows.train), reference)


@metric("ICI", False, tags="study peers")
def ici_pseudo(rows: Scored, _: int) -> float:
    """Integrated calibration index (pseudo-observations). Austin et al. (2020), Statistics in Medicine 39."""
    time, event = rows.y.time, rows.y.event
    events = time[event & (time <= rows.last)]
    if events.size == 0:
        raise DataError("event: no test row has an event: the median event time is not defined.")
    t = float(np.median(events))
    predicted = survival_at(rows.curves(), rows.times, np.full(time.size, t))
    # Steps of few rows predict 0 and 1, which have no place on the scale of the curve.
    inside = np.clip(predicted, _LEAST, 1.0 - _LEAST)
    return calibration_errors(HorizonRows.of(read_rows(rows.y, "the ICI"), inside, t)).ici


@metric("D-cal.", None, tags="study", rejection=True)
def d_calibration_p(rows: Scored, _: int) -> float:
    """D-calibration: share of fits with p < .05. Haider et al. (2020), J. Machine Learning Research 21."""
    y = read_rows(rows.y, "D-calibration")
    check_overlap(y.time, rows.times)
    return d_calibration_at(y.event, survival_at(rows.curves(), rows.times, y.time)).p_value


# ---------------------------------------------------------------------- a cause, at the last of the times


_of_cause = partial(metric, outcomes=("competing",))


def _just_after(rows: Scored) -> float:
    """Truncation up to and including the last of the times."""
    return float(np.nextafter(rows.times[-1], np.inf))


@_of_cause("C cs", True, entry=True, tags="study")
def c_cause_specific(rows: Scored, cause: int) -> float:
    """Cause-specific concordance. Harrell, Lee and Mark (1996), Statistics in Medicine 15, 361-387."""
    risk, tau = -rows.curves(cause)[:, -1], _just_after(rows)
    return concordance_harrell(rows.y, risk, tied_time="censored_later", tau=tau, cause=cause)


@_of_cause("C_W", True, tags="study headline")
def c_wolbers(rows: Scored, cause: int) -> float:
    """Concordance (Wolbers). Wolbers et al. (2014), Biostatistics 15, 526-539."""
    risk, tau = -rows.curves(cause)[:, -1], _just_after(rows)
    return concordance_wolbers(rows.y, risk, cause, tau=tau, train=rows.train)


@_of_cause("AUC(t)", True)
def auc(rows: Scored, cause: int) -> float:
    """AUC at the horizon. Blanche et al. (2013), Statistics in Medicine 32, 5381-5397."""
    last = rows.curves(cause)[:, -1:], rows.times[-1:]
    return float(cumulative_dynamic_auc(rows.y, *last, cause=cause, train=rows.train)[0])


@_of_cause("Brier(t)", False)
def brier(rows: Scored, cause: int) -> float:
    """Brier score at the horizon. Schoop et al. (2011), Biometrical Journal 53, 88-112."""
    last = rows.curves(cause)[:, -1:], rows.times[-1:]
    return float(brier_score(rows.y, *last, cause=cause, train=rows.train)[0])


@_of_cause("IBS F", False, tags="study headline")
def ibs(rows: Scored, cause: int) -> float:
    """Integrated Brier score of the incidence. Schoop et al. (2011), Biometrical Journal 53, 88-112."""
    options: dict[str, Any] = {"train": rows.train, "convention": "trapezoid", "cause": cause}
    return integrated_brier_score(rows.y, rows.curves(cause), rows.times, **options)


declare(
    "negative_log_likelihood",
    title="Negative log-likelihood",
    short="-log L",
    higher_is_better=False,
    outcomes=("event", "competing"),
    entry=True,
    needs="log_likelihood",
    averaged=False,
)

"""Recalibration of a fitted tree for another place: groups stay, survival in them is estimated again."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np

from sstorch._types import BoolArray
from sstorch.exceptions import DataError, DataWarning
from sstorch.metrics.weights import Weighting

Recalibrate = Literal["intercept", "slope", "baseline"]
# Events for each parameter below which a warning is given.
_EVENTS_EACH = 10


@dataclass(frozen=True)
class Recalibration:
    """Recalibration of a fitted tree: coefficients and fit before and after.

    Let g be the linear predictor of a leaf, in an exact tree the log hazard ratio. The recalibrated value is
    ``intercept + slope g``.

    Attributes:
        how: ``"intercept"``, ``"slope"`` (both), or ``"baseline"`` (the intercept and every shape parameter;
            in an exact tree the curves of the leaves).
        rows, events: numbers used for the estimates.
        intercept: constant added to the linear predictor; None if curves were estimated.
        slope: factor of the linear predictor; None if curves were estimated.
        shape: constants added to the shape parameters, by name; empty unless ``how="baseline"``.
        intercept_error, slope_error: standard errors, robust to a wrong family and independent of
            the scale of weights; None if not estimated.
        observed_expected: observed / expected events, before and after; None if no events are expected.
        log_likelihood: mean log-likelihood per row, before and after; None for exact trees, since their
            curves are step functions.
    """

    how: Recalibrate
    rows: int
    events: int
    intercept: float | None
    slope: float | None
    shape: Mapping[str, float]
    intercept_error: float | None
    slope_error: float | None
    observed_expected: tuple[float | None, float | None]
    log_likelihood: tuple[float, float] | None

    def __str__(self) -> str:
        def number(value: float, error: float | None) -> str:
            return f"{value:+.3g}" + ("" if error is None else f" (standard error {error:.2g})")

        lines = [f"Recalibrated ({self.how}) on {self.rows} rows, {self.events} events; groups as they were"]
        if self.intercept is None or self.slope is None:
            lines.append("curves of the leaves estimated from these rows")
        else:
            lines.append(f"linear predictor {number(self.intercept, self.intercept_error)}")
            if self.how == "slope":
                lines[-1] += f", times {number(self.slope, self.slope_error).lstrip('+')}"
        if self.shape:
            lines.append(", ".join(f"{name} {value:+.3g}" for name, value in self.shape.items()))
        before, after = ("-" if ratio is None else f"{ratio:.3f}" for ratio in self.observed_expected)
        lines.append(f"observed / expected events {before} before, {after} after")
        if self.log_likelihood is not None:
            first, last = self.log_likelihood
            lines.append(f"log-likelihood of a row {first:.4f} before, {last:.4f} after")
        return "\n".join(lines)


def recalibrations(tree: object) -> dict[str, Recalibration]:
    """Recalibrations of a fitted tree by cause, ``""`` for one event; none if it was not recalibrated."""
    found = vars(tree).get("recalibration_", {})
    return {"": found} if isinstance(found, Recalibration) else dict(found)


def recalibration_texts(tree: object) -> list[str]:
    """Text of each recalibration of a fitted tree, after the name of the cause with competing causes."""
    return [f"{name}: {report}" if name else str(report) for name, report in recalibrations(tree).items()]


def check_events(event: BoolArray, weighting: Weighting, how: str, n_parameters: int, stacklevel: int) -> int:
    """Number of events (n,), which has to be at least that of the parameters; a DataWarning if it is small.

    `how` names the kind of recalibration; the warning is about the effective number of events.
    """
    n_events = int(event.sum())
    if n_events < n_parameters:
        raise DataError(
            f"how={how!r} needs at least as many events as parameters, {n_parameters}, and {n_events} of "
            f"{len(event)} rows have events; "
            "give more rows" + ("" if how == "intercept" else ", or take how='intercept'")
        )
    effective = float(weighting.counts(event.astype(np.int64), 2)[1])
    if effective < _EVENTS_EACH * n_parameters:
        warnings.warn(
            f"numbers estimated from {effective:.3g} events: {n_parameters}; "
            f"how={how!r} needs {_EVENTS_EACH} events for each to be reliable",
            DataWarning,
            stacklevel=stacklevel,
        )
    return n_events

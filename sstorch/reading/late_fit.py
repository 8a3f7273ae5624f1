"""Mean curves that leave the band of Kaplan-Meier late in follow-up, and curves before first entries."""

from __future__ import annotations

import math

import numpy as np

from sstorch._types import BoolArray, FloatArray, IntArray
from sstorch.data import SurvivalData
from sstorch.data.design_matrix import RowFeatures
from sstorch.data.time_unit import duration
from sstorch.fitted.tree import FittedTree
from sstorch.metrics import KaplanMeierBand

# Share of the follow-up of rows up to which they are compared, and the fewest events.
_UP_TO, _LEAST_EVENTS = 0.9, 10
_MOST_TIMES = 64
# Mean predicted survival to the first entry from which on what happens before is of no account.
_UNSEEN = 0.99
_FOURTHS = ("lowest", "second", "third", "highest")


def late_fit(tree: FittedTree, x: RowFeatures, data: SurvivalData) -> tuple[str, ...]:
    """A sentence on each group whose mean curve is outside the 95 % limits at 90 % of its follow-up.

    Families and shared or shrunk coefficients can bend curves where few events are, after the times at which
    tables report survival. Of a regression all rows are compared and, where these agree, the fourths of its
    predicted risk.

    Where censoring depends on covariates Kaplan-Meier is not the mean of the curves, even of the true model.
    It then follows the mean hazard of the rows that are still at risk, and the sentence adds that where it
    curve is inside the limits.

    Args:
        tree: trained on the rows.
        x: the training rows, encoded, shape (n, p).
        data: the same rows; with left truncation only the time before the first entry has a sentence, and
            none is compared with competing causes, intervals or subjects of several rows.
    """
    if data.entry.any():
        return _unobserved_start(tree, x, data)
    if tree.competing or data.intervals is not None or data.subject is not None:
        return ()
    group = tree.apply(x)
    numbers = np.unique(group)
    if len(numbers) > 1:
        parts = {f"Group {number}": np.flatnonzero(group == number) for number in numbers}
        return _sentences(tree, x, data, parts)
    found = _sentences(tree, x, data, {"All rows": np.arange(len(data))})
    if found:
        return found
    survival = tree.curves(x, np.array([_UP_TO * float(data.time.max())]))[:, 0]
    fourth = np.searchsorted(-np.quantile(survival, [0.75, 0.5, 0.25]), -survival)
    parts = {
        f"Rows in the {name} fourth of predicted risk": np.flatnonzero(fourth == number)
        for number, name in enumerate(_FOURTHS)
        if (fourth == number).any()
    }
    return _sentences(tree, x, data, parts)


def _unobserved_start(tree: FittedTree, x: RowFeatures, data: SurvivalData) -> tuple[str, ...]:
    """A sentence if no row is at risk before a first entry to which the model predicts a fall of survival."""
    first = float(data.entry.min())
    survival = np.average(tree.curves(x, np.array([first]))[:, 0], weights=data.sample_weight)
    if survival > _UNSEEN:
        return ()
    mean = f"predicted survival to it, {survival:.3f} on average, is extrapolated"
    return (_start_text(first, tree.time_unit, f"{mean}, and observed curves take it as 1"),)


def steps_from_entry(data: SurvivalData) -> str:
    """A sentence on steps that are 1 before a first entry; empty if few events are expected there."""
    first, weight = float(data.entry.min()), data.sample_weight
    rate = weight[data.event].sum() / (weight * (data.time - data.entry)).sum()
    if (survival := math.exp(-rate * first)) > _UNSEEN:
        return ""
    text = f"curves take survival to it as 1; at the mean hazard of all rows it is {survival:.3f}"
    return _start_text(first, data.time_unit, text)


def _start_text(first: float, unit: str | None, about: str) -> str:
    return (
        f"No row is at risk before the first entry at {duration(first, unit)}: {about}. Predict with "
        f"after={first:.6g}, or count times from a later origin"
    )


def _sentences(
    tree: FittedTree, x: RowFeatures, data: SurvivalData, parts: dict[str, IntArray]
) -> tuple[str, ...]:
    """On each part of the rows whose mean curve is outside, by its name."""
    found = []
    for name, inside in parts.items():
        rows = data.subset(inside)
        if rows.n_events < _LEAST_EVENTS:
            continue
        band, end = KaplanMeierBand.fit(rows.weighted_y), _UP_TO * float(rows.time.max())
        times = np.append(band.times[band.times < end], end)[-_MOST_TIMES:]
        own, weight = x[inside], rows.sample_weight / rows.sample_weight.max()
        last = np.average(tree.curves(own, times[-1:]), axis=0, weights=weight)
        _, lower, upper = band.at(times[-1:])
        if not outside(last, lower, upper)[0]:
            continue
        mean = np.average(tree.curves(own, times), axis=0, weights=weight)
        km, lower, upper = band.at(times)
        side = np.sign(mean - km)
        marks = outside(mean, lower, upper) & (side == side[-1])
        since = int(np.append(-1, np.flatnonzero(~marks))[-1]) + 1
        at_end = f"{km[-1]:.3f} ({lower[-1]:.3f} to {upper[-1]:.3f})"
        start = duration(times[since], tree.time_unit)
        at_risk = _of_rows_at_risk(tree, own, rows.time, weight, end)
        other = "" if tree.module.family.name == "spline_ph" else "compare with leaf='spline_ph', or "
        reason = (
            f"{other}do not report later times"
            if outside(at_risk, lower[-1:], upper[-1:])[0]
            else f"the hazards of the rows still at risk agree with it, S = {at_risk[0]:.3f}. Censoring "
            "depends on covariates, which biases Kaplan-Meier: judge late calibration by validate"
        )
        found.append(
            f"{name}: from {start} on the mean curve is outside the 95 % confidence "
            f"band of Kaplan-Meier, S({end:.4g}) = {mean[-1]:.3f} by the model, {at_end} observed: {reason}"
        )
    return tuple(found)


def _of_rows_at_risk(
    tree: FittedTree, x: RowFeatures, time: FloatArray, weight: FloatArray, end: float
) -> FloatArray:
    """Survival to the end by the mean hazard of those at risk, which Kaplan-Meier estimates, (1,)."""
    ends = np.linspace(0.0, end, _MOST_TIMES + 1)
    hazard = tree.curves(x, ends[1:], "cumulative_hazard")
    steps = np.diff(np.minimum(hazard, np.finfo(float).max), axis=1, prepend=0.0)
    share = weight[:, None] * (time[:, None] > ends[:-1])
    steps = np.where(share > 0.0, steps, 0.0)
    total = ((share * steps).sum(axis=0) / share.sum(axis=0)).sum(keepdims=True)
    return np.asarray(np.exp(-total))


def outside(mean: FloatArray, lower: FloatArray, upper: FloatArray) -> BoolArray:
    """Where a curve is outside limits, which have no width before the first event; all of one shape."""
    return np.asarray((lower < upper) & ((mean < lower) | (mean > upper)))

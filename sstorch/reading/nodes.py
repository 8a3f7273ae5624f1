"""Training rows, events and survival of each node of a tree, and groups whose curves do not fit late."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable

import numpy as np
import pandas as pd

from sstorch import metrics
from sstorch._types import BoolArray, FloatArray, IntArray
from sstorch.checks import blocks
from sstorch.data import SurvivalData
from sstorch.data.design_matrix import RowFeatures
from sstorch.data.time_unit import duration, round_horizons
from sstorch.fitted.tree import PROGNOSIS_DIGITS, FittedTree
from sstorch.groups.table import incidence_limits
from sstorch.metrics import KaplanMeierBand
from sstorch.metrics.censoring import followed_to
from sstorch.metrics.checks import half_width

# Kaplan-Meier's median of a node's rows and its limits in the node table.
KM_MEDIAN = ("KM median", "KM median lower", "KM median upper")
# Column of the node table that numbers groups.
MEAN_SURVIVAL = "mean survival"
# Halvings of the follow-up in which a median is looked for: nine digits.
_HALVINGS = 32
# Of so many times this number of rows halving sees a part; secants from there on, and how far a mean survival
# may be from 1/2 then.
_MANY, _FEW_ROWS, _SECANTS, _CLOSE = 8, 5_000, 20, 1e-10
# Share of the follow-up of rows up to which they are compared, and the fewest events.
_UP_TO, _LEAST_EVENTS = 0.9, 10
_MOST_TIMES = 64
# Mean predicted survival to the first entry from which on what happens before is of no account.
_UNSEEN = 0.99
_FOURTHS = ("lowest", "second", "third", "highest")


def node_table(
    tree: FittedTree,
    x: RowFeatures,
    data: SurvivalData,
    event_times: FloatArray,
    incidences: FloatArray | None = None,
) -> pd.DataFrame:
    """Training rows and events by node, indexed by heap number, with predicted survival and Kaplan-Meier's.

    Columns: numbers of ``rows``, where subjects have several also of ``subjects``, and ``events``,
    unweighted; ``median``, the time at which the weighted mean predicted survival of the node's rows is 1/2,
    nan if that is later than the last event; ``S(t)``, weighted mean predicted survival of these rows at
    round times t near the quantiles .25, .5 and .9 of the event times; ``mean survival``, their weighted mean
    predicted survival up to the end of follow-up, by which groups are numbered. Of the same rows by weighted
    Kaplan-Meier ``KM median`` with its 95 % confidence limits (weights are sampling weights:
    :class:`~sstorch.metrics.KaplanMeierBand`), nan if they are not reached, and ``KM S(t)`` with its limits
    at the first and the last of these times, nan beyond the last row; none of these where times are
    intervals. Of a node without rows all are nan. If sensitive groups are known, the share of each among the
    rows.

    With competing causes the survival is that of any event, ``events CAUSE`` are those of each, ``F(t)
    CAUSE`` its weighted mean predicted incidence at these times and ``AJ F(t) CAUSE``, at the first and the
    last of them, that of Aalen and Johansen with its 95 % limits ``AJ lower F(t) CAUSE`` and ``AJ upper F(t)
    CAUSE``: a cause may have any name.

    Args:
        tree: trained on the rows.
        x: the training rows, encoded, shape (n, p).
        data: the same rows.
        event_times: distinct times of their events, increasing.
        incidences: of the rows at :func:`times_of_nodes`, (n, K, T), if they are available.
    """
    topology = tree.module.topology
    times = times_of_nodes(tree, event_times)
    curves = np.c_[tree.curves(x, times), tree.mean_survival(x, float(data.nominal_time.max()))]
    names = [*(f"S({time:g})" for time in times), MEAN_SURVIVAL]
    leaf = tree.leaf(x) + 2**topology.depth
    # Node of each row at each level, (n, D + 1).
    path = leaf[:, None] >> np.arange(topology.depth, -1, -1)
    weight = data.sample_weight / data.sample_weight.max()
    if tree.competing and incidences is None:
        incidences = tree.incidence(x, times)
    medians = _medians(tree, x, path, weight, float(event_times[-1]))
    rows, subject = [], data.subject if data.time_varying else None
    for node in (*topology.branches, *topology.leaves):
        inside = path[:, topology.level(node)] == node
        mean = (
            np.average(curves[inside], axis=0, weights=weight[inside])
            if inside.any()
            else np.full(len(names), np.nan)
        )
        rows.append(
            {"node": node, "rows": int(inside.sum())}
            | ({} if subject is None else {"subjects": np.unique(subject[inside]).size})
            | {"events": int(data.event[inside].sum())}
            | _of_causes(tree, data, inside, incidences, times)
            | {"median": float(medians[node])}
            | {name: float(value) for name, value in zip(names, mean, strict=True)}
            | _kaplan_meier(data, inside, np.unique(times[[0, -1]]))
            | _group_shares(data, inside)
        )
    return pd.DataFrame(rows).set_index("node")


def times_of_nodes(tree: FittedTree, event_times: FloatArray) -> FloatArray:
    """Round times at which a node table has survival and incidences."""
    return round_horizons(event_times, tree.time_unit)


def _of_causes(
    tree: FittedTree,
    data: SurvivalData,
    inside: BoolArray,
    incidences: FloatArray | None,
    times: FloatArray,
) -> dict[str, float]:
    """Events and incidences of each cause in some rows, by column of the node table."""
    if incidences is None:
        return {}
    found: dict[str, float] = {}
    shown, weight = np.unique(times[[0, -1]]), data.sample_weight[inside]
    known = followed_to(shown, data.time[inside], data.event[inside])
    observed = [np.full((len(tree.causes), len(shown)), np.nan)] * 3
    if known.any():
        rows = data.subset(inside).weighted_y
        value, error = metrics.aalen_johansen(rows, shown), metrics.aalen_johansen_error(rows, shown)
        observed = [value, *incidence_limits(value, half_width(0.95) * error)]
    for k, cause in enumerate(tree.causes):
        found[f"events {cause}"] = int((data.cause[inside] == k + 1).sum())
        for t, time in enumerate(times):
            mean = np.average(incidences[inside, k, t], weights=weight) if inside.any() else np.nan
            found[f"F({time:g}) {cause}"] = float(mean)
        for t, time in enumerate(shown):
            for part, values in zip(("", "lower ", "upper "), observed, strict=True):
                found[f"AJ {part}F({time:g}) {cause}"] = float(values[k, t]) if known[t] else np.nan
    return found


def _medians(tree: FittedTree, x: RowFeatures, path: IntArray, weight: FloatArray, last: float) -> FloatArray:
    """Time at which the mean curve of each node's rows is 1/2, by halving; nan if it is not reached."""
    n_nodes = 2 ** path.shape[1]
    counts = np.bincount(path.ravel(), np.repeat(weight, path.shape[1]), n_nodes)
    divisor = np.where(counts > 0, counts, 1.0)

    def mean_survival(times: FloatArray) -> FloatArray:
        # All rows at the times of all nodes: times that rows share take less than one of each row and node.
        distinct, column = np.unique(times, return_inverse=True)
        total = np.zeros(n_nodes)
        for some in blocks(len(x), len(distinct)):
            survival = np.take_along_axis(tree.curves(x[some], distinct), column[path[some]], axis=1)
            total += np.bincount(path[some].ravel(), (weight[some, None] * survival).ravel(), n_nodes)
        return total / divisor

    low, high = np.zeros(n_nodes), np.full(n_nodes, last)
    unreached = (mean_survival(high) > 0.5) | (counts == 0)
    if (stride := len(x) // _FEW_ROWS) >= _MANY:
        near = _medians(tree, x[::stride], path[::stride], weight[::stride], last)
        known = ~(unreached | np.isnan(near))
        found = _near_root(lambda times: mean_survival(times) - 0.5, np.where(known, near, last / 2), last)
        if not np.isnan(found[known]).any() and not (np.isnan(near) & ~unreached).any():
            return np.where(unreached, np.nan, found)
    for _ in range(_HALVINGS):
        middle = 0.5 * (low + high)
        above = mean_survival(middle) > 0.5
        low, high = np.where(above, middle, low), np.where(above, high, middle)
    return np.where(unreached, np.nan, high)


def _near_root(function: Callable[[FloatArray], FloatArray], near: FloatArray, last: float) -> FloatArray:
    """Where falling functions are zero, by the Illinois method; NaN if that is not within 10 % of a guess.

    References:
        Dowell and Jarratt (1971), "A modified regula falsi method for computing the root of an equation", BIT
        11, 168-174.
    """
    low, high = 0.9 * near, np.minimum(1.1 * near, last)
    at_low, at_high = function(low), function(high)
    inside = (at_low > 0) & (at_high <= 0)
    root, side = high, np.zeros(len(near))
    for _ in range(_SECANTS):
        gap = at_low - at_high
        root = low + (high - low) * np.divide(at_low, gap, out=np.full(len(gap), 0.5), where=gap > 0)
        value = function(root)
        above = value > 0
        # An end that stays twice counts half, so that it moves.
        at_high = np.where(above, np.where(side == 1, at_high / 2, at_high), value)
        at_low = np.where(above, value, np.where(side == -1, at_low / 2, at_low))
        low, high, side = np.where(above, root, low), np.where(above, high, root), np.where(above, 1, -1)
        if (np.abs(value[inside]) < _CLOSE).all():
            break
    return np.where(inside, root, np.nan)


def _kaplan_meier(data: SurvivalData, inside: BoolArray, horizons: FloatArray) -> dict[str, float]:
    """Median with limits and survival of some rows, by column of the node table; nan if there are none."""
    if data.intervals is not None:
        return {}
    survival_names = [f"KM S({time:g}){part}" for time in horizons for part in ("", " lower", " upper")]
    if not inside.any():
        return dict.fromkeys([*KM_MEDIAN, *survival_names], math.nan)
    rows = data.subset(inside)
    band = KaplanMeierBand.fit(rows.weighted_y.any_cause())
    medians = [float(part) for part in band.quantile()]
    known = followed_to(horizons, rows.time, rows.event)
    survival = np.where(known, np.stack(band.at(horizons)), math.nan).T.ravel()
    return {
        **{name: m if math.isfinite(m) else math.nan for name, m in zip(KM_MEDIAN, medians, strict=True)},
        **dict(zip(survival_names, survival.tolist(), strict=True)),
    }


def _group_shares(data: SurvivalData, inside: BoolArray) -> dict[str, float]:
    """Share of each sensitive group among some rows; nan if there are none."""
    if data.groups is None:
        return {}
    counts = data.groups.subset(np.flatnonzero(inside)).counts
    shares = counts / counts.sum() if counts.sum() else np.full(len(counts), np.nan)
    names = [f"{data.groups.name}={label}" for label in data.groups.labels]
    return dict(zip(names, shares.tolist(), strict=True))


def shown_node(nodes: pd.DataFrame, node: int) -> int:
    """The node that is shown at a node's place: a gate whose rows all go one way makes way for that child."""
    while 2 * node in nodes.index:
        children = [child for child in (2 * node, 2 * node + 1) if nodes["rows"][child]]
        if len(children) != 1:
            break
        (node,) = children
    return node


def longer_sides(nodes: pd.DataFrame) -> dict[int, str]:
    """For each gate that divides the training rows: the side with the longer survival, ``"yes"`` or ``"no"``.

    That is the side with the higher mean survival, as groups are numbered.
    """
    survival = nodes[MEAN_SURVIVAL].round(PROGNOSIS_DIGITS)
    sides = {}
    for node in nodes.index[nodes.index < (nodes.index.max() + 1) // 2]:
        difference = survival[2 * node] - survival[2 * node + 1]
        if abs(difference) > 0:  # no side of nan
            sides[int(node)] = "yes" if difference > 0 else "no"
    return sides


def in_order(tree: FittedTree, leaves: Iterable[int]) -> list[int]:
    """Leaves, by node, in the order of their groups: longest survival first."""
    return sorted(leaves, key=lambda leaf: group_of(tree, leaf))


def group_of(tree: FittedTree, leaf: int) -> int:
    """Number of the group that a leaf is, by node."""
    return int(tree.group_numbers[leaf - 2**tree.module.topology.depth])


def shown_leaves(nodes: pd.DataFrame) -> dict[int, list[tuple[int, bool]]]:
    """The leaves that have rows, from left to right, each with the shown gates above and its sides there."""
    leaves: dict[int, list[tuple[int, bool]]] = {}

    def walk(node: int, path: list[tuple[int, bool]]) -> None:
        node = shown_node(nodes, node)
        if 2 * node not in nodes.index:
            leaves[node] = path
            return
        walk(2 * node, [*path, (node, True)])
        walk(2 * node + 1, [*path, (node, False)])

    walk(1, [])
    return leaves


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
    text = f"{mean}, and observed curves take it as 1"
    return (start_text(first, tree.time_unit, text),)


def steps_from_entry(data: SurvivalData) -> str:
    """A sentence on steps that are 1 before a first entry; empty if few events are expected there."""
    first, weight = float(data.entry.min()), data.sample_weight
    rate = weight[data.event].sum() / (weight * (data.time - data.entry)).sum()
    if (survival := math.exp(-rate * first)) > _UNSEEN:
        return ""
    text = f"curves take survival to it as 1; at the mean hazard of all rows it is {survival:.3f}"
    return start_text(first, data.time_unit, text)


def start_text(first: float, unit: str | None, about: str) -> str:
    """A sentence on the time before the first entry, with the remedy."""
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
            "depends on covariates, which biases Kaplan-Meier: judge late calibration by oe_hazard (validate)"
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

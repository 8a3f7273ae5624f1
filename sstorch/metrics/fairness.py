"""Differences between groups in predicted survival, and the groups in the leaves of a tree."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pandas as pd

from sstorch._types import FloatArray, IntArray
from sstorch.checks import check_same_order, check_vector, check_weight
from sstorch.exceptions import DataError
from sstorch.metrics.censoring import KaplanMeier, followed_to
from sstorch.metrics.concordance import concordance_harrell
from sstorch.metrics.curves import median_survival_time, restricted_mean_survival_time, survival_at
from sstorch.metrics.outcome import Observed, Outcome, read_rows


def group_parity(
    survival: npt.ArrayLike,
    weights: npt.ArrayLike,
    group: npt.ArrayLike,
    *,
    sample_weight: npt.ArrayLike | None = None,
) -> float:
    """Compute the mean over pairs of rows from different groups of sum_k w_k (S_i(t_k) - S_j(t_k))^2.

    With nodes and weights of a quadrature it is the mean integral of the squared difference over time,
    computed from means and variances by group: E (X - Y)^2 = var X + var Y + (E X - E Y)^2.

    Args:
        survival: predicted S_i(t_k), shape (n, n_times).
        weights: w_k >= 0, shape (n_times,), in the unit of time.
        group: a number for each row, equal for rows of one group, shape (n,).
        sample_weight: shape (n,); None for 1. The weight of a pair is the product of its weights.

    Returns:
        The mean, in the unit of ``weights``; 0 if all curves are the same.

    Raises:
        DataError: inconsistent shapes, or a single group (no pairs).

    Examples:
        >>> round(group_parity([[0.9, 0.5], [0.8, 0.5], [0.8, 0.3]], [1.0, 2.0], [0, 0, 1]), 9)
        0.085
    """
    curves, codes, weight = _checked(survival, group, sample_weight)
    measure = check_vector(weights, "weights", curves.shape[1])
    groups = [codes == number for number in np.unique(codes)]
    centre = curves.mean(axis=0)
    total, pairs = 0.0, 0.0
    moments = []
    for inside in groups:
        inner = weight[inside]
        deviation = curves[inside] - centre
        mean = inner @ deviation / inner.sum()
        moments.append((inner.sum(), mean, inner @ (deviation - mean) ** 2 / inner.sum()))
    for k, (first, mean, variance) in enumerate(moments):
        for second, other_mean, other_variance in moments[:k]:
            squares = variance + other_variance + (mean - other_mean) ** 2
            total += first * second * float(measure @ squares)
            pairs += first * second
    if pairs == 0:
        raise DataError("group: all rows with weight are of one group; two groups are needed.")
    return float(total / pairs)


def leaf_groups(leaf: npt.ArrayLike, group: npt.ArrayLike, n_groups: int, n_leaves: int) -> pd.DataFrame:
    """Count rows and shares of groups in each leaf.

    Args:
        leaf: leaf of each row, 0 .. n_leaves - 1, shape (n,).
        group: group of each row, 0 .. n_groups - 1, shape (n,).
        n_groups: number of groups G, at least 2.
        n_leaves: number of leaves.

    Returns:
        One row per leaf: ``rows``, ``gini``, and ``share_0`` ... the shares of the groups. The Gini index is
        (1 - sum_g p_g^2) G / (G - 1), 4 p (1 - p) for two groups: 1 for equally frequent groups, 0 for a
        single group; NaN for a leaf without rows.

    Examples:
        >>> leaf_groups([0, 0, 0, 1], [0, 1, 1, 1], n_groups=2, n_leaves=2)["gini"].round(3).tolist()
        [0.889, 0.0]
    """
    check_same_order(leaf=leaf, group=group)
    at, codes = (
        check_vector(values, name).astype(int) for values, name in ((leaf, "leaf"), (group, "group"))
    )
    counts = np.zeros((n_leaves, n_groups))
    np.add.at(counts, (at, codes), 1.0)
    rows = counts.sum(axis=1)
    with np.errstate(invalid="ignore"):
        shares = counts / rows[:, None]
    gini = (1 - (shares**2).sum(axis=1)) * n_groups / (n_groups - 1)
    table = pd.DataFrame({"rows": rows.astype(int), "gini": gini})
    for number in range(n_groups):
        table[f"share_{number}"] = shares[:, number]
    return table.rename_axis("leaf")


def mean_gini(table: pd.DataFrame) -> tuple[float, float]:
    """Mean Gini index of a table of :func:`leaf_groups`, over leaves with rows and weighted by rows."""
    used = table[table["rows"] > 0]
    return float(used["gini"].mean()), float(np.average(used["gini"], weights=used["rows"]))


def group_scores(
    y: Outcome,
    survival: npt.ArrayLike,
    times: npt.ArrayLike,
    group: npt.ArrayLike,
    *,
    tau: float,
    n_groups: int,
) -> pd.DataFrame:
    """Score predictions by group.

    Args:
        y: outcome of the rows, a `Surv`, whose entry times (left truncation) count in Kaplan-Meier and in the
            pairs of the concordance, or the tuple (time, event).
        survival: predicted S_i(t_k), shape (n, n_times).
        times: the grid, strictly increasing, shape (n_times,).
        group: group of each row, 0 .. n_groups - 1, shape (n,).
        tau: horizon of ``rmst`` and of the calibration, within the grid.
        n_groups: number of groups.

    Returns:
        One row per group: ``rows``, ``events``; ``median`` and ``rmst`` (up to tau) of the group's mean
        predicted curve, in the unit of time; ``calibration``, mean predicted minus Kaplan-Meier survival at
        tau; ``c_harrell`` within the group. NaN for a group without rows or comparable pairs; calibration
        also if follow-up is below tau and the last row is censored.
    """
    outcome = read_rows(y, "a score of groups", entry=True, survival=survival, group=group)
    curves, codes, _ = _checked(survival, group, None)
    grid = check_vector(times, "times", curves.shape[1])
    rows = []
    for number in range(n_groups):
        inside = codes == number
        own = outcome.take(inside)
        counts = {"rows": own.time.size, "events": int(own.event.sum())}
        values = dict.fromkeys(("median", "rmst", "calibration", "c_harrell"), np.nan)
        if inside.any():
            mean = curves[inside].mean(axis=0)
            values["median"] = float(median_survival_time(mean[None], grid)[0])
            values["rmst"] = float(restricted_mean_survival_time(mean[None], grid, tau=tau)[0])
            if followed_to(tau, own.time, own.event):
                predicted = float(survival_at(curves[inside], grid, np.full(inside.sum(), tau)).mean())
                values["calibration"] = predicted - float(KaplanMeier.fit(own).at([tau])[0])
            if _comparable(own):
                values["c_harrell"] = concordance_harrell(own, curves[inside], grid)
        rows.append(counts | values)
    return pd.DataFrame(rows).rename_axis("group")


def gap(values: npt.ArrayLike) -> float:
    """Largest minus smallest value of the groups; NaN if a value is NaN (infinite values are allowed).

    Examples:
        >>> gap([0.5, 0.75, 0.625])
        0.25
    """
    array = np.asarray(values, dtype=np.float64)
    if np.isnan(array).any():
        return float("nan")
    return 0.0 if (array == array[0]).all() else float(array.max() - array.min())


def _comparable(rows: Observed) -> bool:
    """Whether some row at risk at an event was observed longer."""
    time, at = rows.time, np.unique(rows.time[rows.event])
    # Of those who came before an event, the one who stayed longest.
    since = np.full(time.size, -np.inf) if rows.entry is None else rows.entry
    order = np.argsort(since, kind="stable")
    longest = np.maximum.accumulate(rows.survived[order])
    came = np.searchsorted(since[order], at) - 1
    return bool(((came >= 0) & (longest[came] > at)).any())


def _checked(
    survival: npt.ArrayLike, group: npt.ArrayLike, sample_weight: npt.ArrayLike | None
) -> tuple[FloatArray, IntArray, FloatArray]:
    check_same_order(survival=survival, group=group, sample_weight=sample_weight)
    curves = np.asarray(survival, dtype=np.float64)
    if curves.ndim != 2:
        raise DataError(f"survival must be curves, shape (n, n_times), got shape {curves.shape}.")
    if np.isnan(curves).any():
        raise DataError("survival: NaN in the predicted curves.")
    codes = check_vector(group, "group", len(curves)).astype(np.intp)
    weight = check_weight(sample_weight, len(curves))
    if weight is None:
        return curves, codes, np.ones(len(curves))
    return curves[weight > 0], codes[weight > 0], weight[weight > 0]

"""Differences between groups in predicted survival, and the groups in the leaves of a tree."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import numpy.typing as npt
import pandas as pd

from sstorch._types import FloatArray, IntArray
from sstorch.checks import check_same_order, check_vector, check_weight
from sstorch.exceptions import DataError
from sstorch.metrics.censoring import followed_to
from sstorch.metrics.curves import median_survival_time, restricted_mean_survival_time, survival_at
from sstorch.metrics.groups import KaplanMeier
from sstorch.metrics.outcome import Outcome, read_rows
from sstorch.metrics.pairs import Compared


def group_parity(
    survival: npt.ArrayLike,
    weights: npt.ArrayLike,
    group: npt.ArrayLike,
    *,
    sample_weight: npt.ArrayLike | None = None,
) -> float:
    """Mean over pairs of rows from different groups of sum_k w_k (S_i(t_k) - S_j(t_k))^2.

    With nodes and weights (n_times,) of a quadrature it is the mean integral of the squared difference of
    curves (n, n_times) over time, computed from means and variances by group, (n,): E (X - Y)^2 = var X +
    var Y + (E X - E Y)^2. The weight of a pair is the product of its weights, (n,). A single group raises a
    DataError.

    Examples:
        >>> round(group_parity([[0.9, 0.5], [0.8, 0.5], [0.8, 0.3]], [1.0, 2.0], [0, 0, 1]), 9)
        0.085
    """
    curves, codes, weight = _checked(survival, group, sample_weight)
    measure = check_vector(weights, "weights", curves.shape[1])
    centre = curves.mean(axis=0)
    moments = []
    for number in np.unique(codes):
        inner, deviation = weight[codes == number], curves[codes == number] - centre
        mean = inner @ deviation / inner.sum()
        moments.append((inner.sum(), mean, inner @ (deviation - mean) ** 2 / inner.sum()))
    if len(moments) < 2:
        raise DataError("group: all rows with weight are of one group; two groups are needed.")
    total = pairs = 0.0
    for (first, mean, variance), (second, other_mean, other_variance) in combinations(moments, 2):
        squares = variance + other_variance + (mean - other_mean) ** 2
        total += first * second * float(measure @ squares)
        pairs += first * second
    return float(total / pairs)


def leaf_groups(leaf: npt.ArrayLike, group: npt.ArrayLike, n_groups: int, n_leaves: int) -> pd.DataFrame:
    """Count rows and shares of groups, 0 .. n_groups - 1, in each leaf, 0 .. n_leaves - 1; (n,) each.

    Returns:
        One row per leaf: ``rows``, ``gini``, and ``share_0`` ... the shares of the groups. The Gini index is
        (1 - sum_g p_g^2) G / (G - 1), 4 p (1 - p) for two groups: 1 for equally frequent groups, 0 for a
        single group; NaN for a leaf without rows.

    Examples:
        >>> leaf_groups([0, 0, 0, 1], [0, 1, 1, 1], n_groups=2, n_leaves=2)["gini"].round(3).tolist()
        [0.889, 0.0]
    """
    check_same_order(leaf=leaf, group=group)
    at, codes = check_vector(leaf, "leaf").astype(int), check_vector(group, "group").astype(int)
    counts = np.bincount(at * n_groups + codes, minlength=n_leaves * n_groups).reshape(n_leaves, n_groups)
    rows = counts.sum(axis=1)
    with np.errstate(invalid="ignore"):
        shares = counts / rows[:, None]
    gini = (1 - (shares**2).sum(axis=1)) * n_groups / (n_groups - 1)
    named = {f"share_{number}": share for number, share in enumerate(shares.T)}
    return pd.DataFrame({"rows": rows, "gini": gini} | named).rename_axis("leaf")


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
        values = dict.fromkeys(("median", "rmst", "calibration", "c_harrell"), np.nan)
        if inside.any():
            mean = curves[inside].mean(axis=0)
            values["median"] = float(median_survival_time(mean[None], grid)[0])
            values["rmst"] = float(restricted_mean_survival_time(mean[None], grid, tau=tau)[0])
            if followed_to(tau, own.time, own.event):
                predicted = float(survival_at(curves[inside], grid, np.full(inside.sum(), tau)).mean())
                values["calibration"] = predicted - float(KaplanMeier.fit(own, level=None).at([tau])[0])
            compared = Compared.of(own, curves[inside], grid)
            if compared.pairs.partners().any():
                values["c_harrell"] = compared.concordance()
        rows.append({"rows": own.time.size, "events": int(own.event.sum())} | values)
    return pd.DataFrame(rows).rename_axis("group")


def gap(values: npt.ArrayLike) -> float:
    """Largest minus smallest value of the groups; NaN if a value is NaN (infinite values are allowed)."""
    array = np.asarray(values, dtype=np.float64)
    if np.isnan(array).any():
        return float("nan")
    return 0.0 if (array == array[0]).all() else float(array.max() - array.min())


def _checked(
    survival: npt.ArrayLike, group: npt.ArrayLike, sample_weight: npt.ArrayLike | None
) -> tuple[FloatArray, IntArray, FloatArray]:
    """Curves (n, n_times), groups and weights of the rows of positive weight."""
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

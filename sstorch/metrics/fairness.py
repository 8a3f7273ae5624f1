"""Differences between groups in predicted survival, and the groups in the leaves of a tree."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import numpy.typing as npt
import pandas as pd

from sstorch._types import FloatArray
from sstorch.checks import check_same_order, check_vector
from sstorch.exceptions import DataError
from sstorch.metrics.censoring import followed_to
from sstorch.metrics.checks import check_survival, check_times
from sstorch.metrics.curves import survival_at
from sstorch.metrics.groups import KaplanMeier
from sstorch.metrics.outcome import Outcome, read_rows
from sstorch.metrics.pairs import Compared


def group_parity(survival: npt.ArrayLike, weights: npt.ArrayLike, group: npt.ArrayLike) -> float:
    """Mean over pairs of rows from different groups of sum_k w_k (S_i(t_k) - S_j(t_k))^2."""
    # Weights (n_times,) of a quadrature; moments suffice: E (X - Y)^2 = var X + var Y + (E X - E Y)^2.
    check_same_order(survival=survival, group=group)
    measure, codes = check_vector(weights, "weights"), check_vector(group, "group")
    curves = check_survival(survival, codes.size, measure.size)
    parts = [(curves - curves[0])[codes == number] for number in np.unique(codes)]
    if len(parts) < 2:
        raise DataError("group: all rows are of one group; two groups are needed.")
    moments = [(len(part), part.mean(axis=0), part.var(axis=0)) for part in parts]
    total = pairs = 0.0
    for (first, mean, variance), (second, other_mean, other_variance) in combinations(moments, 2):
        squares = variance + other_variance + (mean - other_mean) ** 2
        total += first * second * float(measure @ squares)
        pairs += first * second
    return total / pairs


def leaf_groups(leaf: npt.ArrayLike, group: npt.ArrayLike, n_groups: int, n_leaves: int) -> pd.DataFrame:
    """``rows``, ``gini`` and ``share_0`` ... of the groups (n,), 0 .. G - 1, in each leaf (n,)."""
    # Gini index: (1 - sum_g p_g^2) G / (G - 1), 1 for equally frequent groups, 0 for one, NaN without rows.
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
    """Score predictions by group, 0 .. n_groups - 1, (n,): a row per group, NaN for what is not defined."""
    # ``median`` and ``rmst`` (up to tau) are of the mean predicted curve, in the unit of time;
    # ``calibration`` is mean predicted minus Kaplan-Meier survival at tau.
    outcome = read_rows(y, "a score of groups", entry=True, survival=survival, group=group)
    grid, codes = check_times(times), check_vector(group, "group", outcome.time.size)
    curves = check_survival(survival, codes.size, grid.size)
    rows = []
    for number in range(n_groups):
        inside = codes == number
        own = outcome.take(inside)
        values = dict.fromkeys(("median", "rmst", "calibration", "c_harrell"), np.nan)
        if inside.any():
            values["median"], values["rmst"] = _median_and_mean(curves[inside].mean(axis=0), grid, tau)
            if followed_to(tau, own.time, own.event):
                predicted = float(survival_at(curves[inside], grid, np.full(inside.sum(), tau)).mean())
                values["calibration"] = predicted - float(KaplanMeier.fit(own, level=None).at([tau])[0])
            compared = Compared.of(own, curves[inside], grid)
            if compared.pairs.partners().any():
                values["c_harrell"] = compared.concordance()
        rows.append({"rows": own.time.size, "events": int(own.event.sum())} | values)
    return pd.DataFrame(rows).rename_axis("group")


def _median_and_mean(curve: FloatArray, grid: FloatArray, tau: float) -> tuple[float, float]:
    """Median, infinite if not reached, and mean up to tau of a curve (n_times,), linear from S(0) = 1."""
    if grid[-1] < tau:
        raise DataError(f"times must be a grid that reaches tau = {tau:g}; it ends at {grid[-1]:g}.")
    nodes, values = np.append(0.0, grid), np.append(1.0, curve)
    k, inside = int((values <= 0.5).argmax()), nodes < tau
    median = np.interp(0.5, values[[k, k - 1]], nodes[[k, k - 1]]) if k else np.inf
    ends = np.append(values[inside], np.interp(tau, nodes, values)), np.append(nodes[inside], tau)
    return float(median), float(np.trapezoid(*ends))


def gap(values: npt.ArrayLike) -> float:
    """Largest minus smallest value of the groups; NaN if a value is NaN (infinite values are allowed)."""
    array = np.asarray(values, dtype=np.float64)
    return 0.0 if (array == array[0]).all() else float(np.ptp(array))

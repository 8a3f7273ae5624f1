"""Disparities between sensitive groups in the predictions of a fitted tree."""

from __future__ import annotations

import numpy as np
import pandas as pd

from sstorch.data import Groups, SurvivalData
from sstorch.estimators import SoftSurvivalTree
from sstorch.exceptions import ConfigError
from sstorch.metrics.fairness import gap, group_parity, group_scores, leaf_groups, mean_gini
from sstorch.objective import L2Parity

# Of the scores, those that every table shows.
DISPARITIES = ("parity", "gini", "gini_weighted", "rmst_gap", "calibration_gap", "c_gap")
_QUADRATURE = L2Parity()


def leaf_table(tree: SoftSurvivalTree, rows: SurvivalData) -> pd.DataFrame:
    """Rows, Gini index and share of each sensitive group in the leaves of a tree.

    Raises:
        ConfigError: the sensitive groups of the rows are not known.
    """
    groups = known_groups(rows)
    n_leaves = 2**tree.module_.topology.depth
    table = leaf_groups(tree.apply(rows.frame), groups.codes, len(groups.labels), n_leaves)
    return table.rename(columns={f"share_{k}": f"{groups.name}={v}" for k, v in enumerate(groups.labels)})


def score_fairness(
    tree: SoftSurvivalTree, rows: SurvivalData, train: SurvivalData, tau: float | None = None
) -> dict[str, float]:
    """Disparities between sensitive groups in the predictions of a tree.

    Args:
        tree: fitted on ``train``.
        rows: rows to score, with their groups.
        train: training rows, whose extreme times bound the integral.
        tau: horizon; the 80 % quantile of the training times if None.

    Returns:
        ``parity``: mean over the pairs of persons of different groups of the integral of (S_i(t) - S_j(t))^2
        between the extreme training times, the penalty at rho = 1; ``parity_tau``: up to tau. ``gini`` and
        ``gini_weighted``: mean Gini index of the leaves, plain and weighted by their rows. ``median_gap`` and
        ``rmst_gap``: largest difference between groups of the median and of the mean up to tau of the mean
        predicted curve. For each group, ``calibration:NAME`` (mean predicted less Kaplan-Meier survival at
        tau) and ``c_harrell:NAME``; and the largest differences ``calibration_gap`` and ``c_gap``. What a
        group that is absent from the rows, or too small, leaves undefined is NaN.

    Raises:
        ConfigError: the groups of the rows are not known, or tau is outside the observed training times.
    """
    groups = known_groups(rows)
    first, last = float(train.time.min()), float(train.time.max())
    tau = float(np.quantile(train.time, 0.8)) if tau is None else tau
    if not first < tau <= last:
        raise ConfigError(
            f"tau must be above {first:g} and at most {last:g}, the last training time; got {tau!r}"
        )
    result = {}
    for name, times in (("parity", train.time), ("parity_tau", np.minimum(train.time, tau))):
        nodes, weights = _QUADRATURE.nodes(times)
        curves = np.asarray(tree.predict_survival_function(rows.frame, nodes))
        present = len(np.unique(groups.codes)) > 1
        result[name] = group_parity(curves, weights, groups.codes) if present else float("nan")
    result["gini"], result["gini_weighted"] = mean_gini(leaf_table(tree, rows))
    grid = np.unique(np.r_[train.time, rows.time, tau, np.linspace(first, tau, 101)])
    curves = tree.falling_curves(rows.frame, grid)
    table = group_scores(
        rows.time, rows.event, curves, grid, groups.codes, tau=tau, n_groups=len(groups.labels)
    )
    for column in ("median", "rmst", "calibration"):
        result[f"{column}_gap"] = gap(table[column])
    result["c_gap"] = gap(table["c_harrell"])
    for column in ("calibration", "c_harrell"):
        for label, value in zip(groups.labels, table[column], strict=True):
            result[f"{column}:{label}"] = float(value)
    return result


def known_groups(rows: SurvivalData) -> Groups:
    """The sensitive groups of the rows.

    Raises:
        ConfigError: they are not known.
    """
    if rows.groups is None:
        raise ConfigError("the sensitive groups are not known: use data.with_sensitive(column)")
    return rows.groups

"""The scores of one fitted tree on one set of rows."""

from __future__ import annotations

import numpy as np

from sstorch import metrics
from sstorch.data import SurvivalData
from sstorch.estimators import SoftSurvivalTree

SCORES = ("c_harrell", "ibs_sksurv", "ibs_graf", "log_likelihood")


def check_scorable(rows: SurvivalData, train: SurvivalData) -> None:
    """Make sure, before any training, that the scores of these rows will be defined.

    Raises:
        DataError: no two rows can be compared, or their follow-up is too short for a Brier score.
    """
    grid = metrics.evaluation_times(rows.time, train.time, "graf")
    metrics.evaluation_times(rows.time, train.time, "sksurv")
    metrics.concordance_harrell(rows.time, rows.event, np.zeros((len(rows), len(grid))), grid)


def score_tree(tree: SoftSurvivalTree, rows: SurvivalData, train: SurvivalData) -> dict[str, float]:
    """Score a tree.

    Args:
        tree: fitted on ``train``.
        rows: rows to score, of the training or of the test fold.
        train: training rows, from which the censoring weights come.

    Returns:
        ``c_harrell``: time-dependent concordance (higher is better); ``ibs_sksurv`` and ``ibs_graf``:
        integrated Brier score in two conventions (lower is better); ``log_likelihood`` per row.
    """
    reference = (train.time, train.event)
    # The Graf grid holds every distinct time, so all the curves that are needed are predicted once.
    grid = metrics.evaluation_times(rows.time, train.time, "graf")
    curves = tree.falling_curves(rows.frame, grid)
    inner = metrics.evaluation_times(rows.time, train.time, "sksurv")
    at_inner = curves[:, np.searchsorted(grid, inner)]
    return {
        "c_harrell": metrics.concordance_harrell(rows.time, rows.event, curves, grid),
        "ibs_sksurv": metrics.integrated_brier_score(
            rows.time, rows.event, at_inner, inner, train=reference, convention="sksurv"
        ),
        "ibs_graf": metrics.integrated_brier_score(
            rows.time, rows.event, curves, grid, train=reference, convention="graf"
        ),
        "log_likelihood": tree.log_likelihood(rows.frame, (rows.time, rows.event), rows.entry),
    }

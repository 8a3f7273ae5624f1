"""Scores of survival predictions: concordance, Brier score, likelihood.

Arrays in, a float or an array out; nothing here knows a model. Curves are (n_samples, n_times), `event` is
True or 1 where the event was observed, `risk` is higher where the event is expected earlier. Metrics that
correct for censoring estimate the censoring distribution from the training rows, `train=(time, event)`.
"""

from sstorch.metrics.auc import (
    cumulative_dynamic_auc,
    cumulative_dynamic_auc_risk,
    mean_cumulative_dynamic_auc,
)
from sstorch.metrics.brier import brier_score, scaled_brier_score
from sstorch.metrics.concordance import (
    concordance_harrell,
    concordance_harrell_risk,
    concordance_uno,
    concordance_uno_risk,
)
from sstorch.metrics.grid import evaluation_times
from sstorch.metrics.integrated_brier import integrated_brier_score, scaled_integrated_brier_score
from sstorch.metrics.ipcw import (
    KaplanMeier,
    censoring_distribution,
    censoring_floor,
    count_floored,
    ipcw_weights,
)
from sstorch.metrics.likelihood import log_likelihood, negative_log_likelihood

__all__ = [
    "KaplanMeier",
    "brier_score",
    "censoring_distribution",
    "censoring_floor",
    "concordance_harrell",
    "concordance_harrell_risk",
    "concordance_uno",
    "concordance_uno_risk",
    "count_floored",
    "cumulative_dynamic_auc",
    "cumulative_dynamic_auc_risk",
    "evaluation_times",
    "integrated_brier_score",
    "ipcw_weights",
    "log_likelihood",
    "mean_cumulative_dynamic_auc",
    "negative_log_likelihood",
    "scaled_brier_score",
    "scaled_integrated_brier_score",
]

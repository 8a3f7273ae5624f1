"""Scores of survival predictions: discrimination, calibration, prediction error, likelihood.

Arrays in, a float or an array out; nothing here knows a model. Curves are (n_samples, n_times), `event` is
True or 1 if the event was observed, `risk` is higher for an earlier event. Metrics that correct for censoring
estimate the censoring distribution from the training rows, `train=(time, event)`.
"""

from sstorch.metrics.auc import (
    cumulative_dynamic_auc,
    cumulative_dynamic_auc_risk,
    mean_cumulative_dynamic_auc,
)
from sstorch.metrics.brier import brier_score, integrated_brier_score
from sstorch.metrics.calibration import calibration_curve, calibration_errors, pseudo_observations
from sstorch.metrics.censoring import KaplanMeier, censoring_distribution, ipcw_weights
from sstorch.metrics.comparison import corrected_resampled_t_test
from sstorch.metrics.concordance import (
    concordance_harrell,
    concordance_uno,
    concordance_wolbers,
)
from sstorch.metrics.curves import (
    median_survival_time,
    restricted_mean_survival_time,
)
from sstorch.metrics.decision_curve import net_benefit
from sstorch.metrics.distribution import d_calibration
from sstorch.metrics.evaluation import SurvivalScorer, evaluate
from sstorch.metrics.fairness import group_parity, group_scores
from sstorch.metrics.gray import gray_test
from sstorch.metrics.grids import evaluation_times, incidence_times, thinned
from sstorch.metrics.groups import (
    Estimate,
    KaplanMeierBand,
    adjusted_rand_index,
    concordance_of_groups,
    logrank_test,
)
from sstorch.metrics.horizon import HorizonRows
from sstorch.metrics.incidence import aalen_johansen, aalen_johansen_error
from sstorch.metrics.measures import measure
from sstorch.metrics.weights import effective_sample_size

__all__ = [
    "Estimate",
    "HorizonRows",
    "KaplanMeier",
    "KaplanMeierBand",
    "SurvivalScorer",
    "aalen_johansen",
    "aalen_johansen_error",
    "adjusted_rand_index",
    "brier_score",
    "calibration_curve",
    "calibration_errors",
    "censoring_distribution",
    "concordance_harrell",
    "concordance_of_groups",
    "concordance_uno",
    "concordance_wolbers",
    "corrected_resampled_t_test",
    "cumulative_dynamic_auc",
    "cumulative_dynamic_auc_risk",
    "d_calibration",
    "effective_sample_size",
    "evaluate",
    "evaluation_times",
    "gray_test",
    "group_parity",
    "group_scores",
    "incidence_times",
    "integrated_brier_score",
    "ipcw_weights",
    "logrank_test",
    "mean_cumulative_dynamic_auc",
    "measure",
    "median_survival_time",
    "net_benefit",
    "pseudo_observations",
    "restricted_mean_survival_time",
    "thinned",
]

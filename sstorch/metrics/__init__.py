"""Scores of survival predictions: discrimination, calibration, prediction error, likelihood.

Arrays in, a float or an array out; nothing here knows a model. Arguments of one name are the same:

* `y`: outcome of n rows, a `Surv` or the tuple (time, event), with `event` True or 1 if the event was
  observed; (time, cause) with 0 for censored rows and 1 .. K where one of several causes is scored.
* `times`: a strictly increasing grid, (n_times,), in the unit of `y`.
* `survival`: predicted S_i(t_k), (n, n_times); of a cause one minus its cumulative incidence.
* `risk`: a score on any monotone scale, (n,), higher for an earlier event.
* `train`: outcome of the training rows, in the unit of `y`. They give the censoring distribution G, which is
  constant beyond them; where it is 0, its last positive value is used.
* `cause`: the scored cause, by number or name; None for one event.
* `sample_weight`: weights of the rows, (n,), which take the place of those of `y`. They are not used in G.

Invalid arguments raise a `DataError` that names them and the first rows, unknown options a `ConfigError`.
"""

from sstorch.metrics.auc import cumulative_dynamic_auc, mean_cumulative_dynamic_auc
from sstorch.metrics.brier import brier_score, integrated_brier_score
from sstorch.metrics.calibration import calibration_curve, calibration_errors, pseudo_observations
from sstorch.metrics.censoring import censoring_distribution
from sstorch.metrics.concordance import (
    concordance_harrell,
    concordance_of_groups,
    concordance_uno,
    concordance_wolbers,
)
from sstorch.metrics.decision_curve import net_benefit
from sstorch.metrics.distribution import d_calibration
from sstorch.metrics.evaluation import SurvivalScorer, evaluate
from sstorch.metrics.grids import evaluation_times
from sstorch.metrics.group_tests import gray_test, logrank_test
from sstorch.metrics.groups import KaplanMeier
from sstorch.metrics.horizon import HorizonRows
from sstorch.metrics.incidence import aalen_johansen
from sstorch.metrics.measures import measure

__all__ = [
    "HorizonRows",
    "KaplanMeier",
    "SurvivalScorer",
    "aalen_johansen",
    "brier_score",
    "calibration_curve",
    "calibration_errors",
    "censoring_distribution",
    "concordance_harrell",
    "concordance_of_groups",
    "concordance_uno",
    "concordance_wolbers",
    "cumulative_dynamic_auc",
    "d_calibration",
    "evaluate",
    "evaluation_times",
    "gray_test",
    "integrated_brier_score",
    "logrank_test",
    "mean_cumulative_dynamic_auc",
    "measure",
    "net_benefit",
    "pseudo_observations",
]

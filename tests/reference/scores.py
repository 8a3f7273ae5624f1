"""Metrics of fixed arrays."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from sstorch import metrics as m

Entry = dict[str, Any]
Case = Callable[[], Entry]

_draws = np.random.default_rng(41)
TIME, TRAIN_TIME = _draws.integers(1, 60, 70) / 2.0, _draws.integers(1, 64, 90) / 2.0
EVENT, TRAIN_EVENT = _draws.uniform(size=70) < 0.6, _draws.uniform(size=90) < 0.55
RISK = _draws.normal(size=70).round(1)
GROUP, WEIGHT = _draws.integers(0, 2, 70), _draws.integers(0, 4, 70) / 2.0
TRAIN = (TRAIN_TIME, TRAIN_EVENT)
GRID = np.arange(2.0, 30.0)
CURVES = np.exp(-np.outer(0.04 * np.exp(0.5 * RISK), GRID)).round(6)
WHOLE_GRID = np.arange(1.0, 60.0) / 2.0
WHOLE = np.exp(-np.outer(0.04 * np.exp(0.5 * RISK), WHOLE_GRID)).round(6)
AT_TEN = CURVES[:, 8]
HAZARD, LOG_HAZARD = -np.log(AT_TEN), np.log(0.04 * np.exp(0.5 * RISK)).round(6)
ROWS, TRAIN_ROWS = (None, (TIME, EVENT)), (None, TRAIN)
CONVENTIONS = ("graf", "sksurv", "surtree", "osst")
SEEN = (TIME, EVENT)
CURVES_OF_ROWS = (CURVES, GRID)


def _grid(convention: str) -> Any:
    times = m.evaluation_times(TIME, TRAIN_TIME, convention)
    return np.exp(-np.outer(0.04 * np.exp(0.5 * RISK), times)).round(6), times


def _ibs(convention: str, function: Any = m.integrated_brier_score) -> Any:
    return function(SEEN, *_grid(convention), train=TRAIN, convention=convention)


# Each gives what a metric returns.
PLAIN: dict[str, Callable[[], Any]] = {
    "concordance_harrell": lambda: m.concordance_harrell(SEEN, *CURVES_OF_ROWS),
    "concordance_harrell, ties": lambda: m.concordance_harrell(
        SEEN, *CURVES_OF_ROWS, tied_time="censored_later", tied_risk="exclude", tau=20.0
    ),
    "concordance_harrell, weights": lambda: m.concordance_harrell(
        SEEN, *CURVES_OF_ROWS, sample_weight=WEIGHT
    ),
    "concordance_harrell_risk": lambda: m.concordance_harrell(SEEN, RISK),
    "concordance_uno": lambda: m.concordance_uno(SEEN, *CURVES_OF_ROWS, train=TRAIN, tau=25.0),
    "concordance_uno_risk": lambda: m.concordance_uno(SEEN, RISK, train=TRAIN, ipcw="G(t)"),
    "cumulative_dynamic_auc": lambda: m.cumulative_dynamic_auc(SEEN, *CURVES_OF_ROWS, train=TRAIN),
    "cumulative_dynamic_auc_risk": lambda: m.cumulative_dynamic_auc_risk(SEEN, RISK, GRID, train=TRAIN),
    "mean_cumulative_dynamic_auc": lambda: m.mean_cumulative_dynamic_auc(
        SEEN, m.cumulative_dynamic_auc(SEEN, *CURVES_OF_ROWS, train=TRAIN), GRID
    ),
    **{
        f"brier_score, {c}": lambda c=c: m.brier_score(SEEN, *CURVES_OF_ROWS, train=TRAIN, convention=c)
        for c in CONVENTIONS
    },
    "brier_score, weights": lambda: m.brier_score(SEEN, *CURVES_OF_ROWS, train=TRAIN, sample_weight=WEIGHT),
    **{f"integrated_brier_score, {c}": partial(_ibs, c) for c in CONVENTIONS},
    **{
        f"scaled_integrated_brier_score, {c}": partial(
            _ibs, c, partial(m.integrated_brier_score, scaled=True)
        )
        for c in CONVENTIONS
    },
    **{f"evaluation_times, {c}": lambda c=c: m.evaluation_times(TIME, TRAIN_TIME, c) for c in CONVENTIONS},
    "calibration_curve": lambda: m.calibration_curve(m.HorizonRows.of(SEEN, AT_TEN, 10.0)),
    "integrated_calibration_index": lambda: m.calibration_errors(m.HorizonRows.of(SEEN, AT_TEN, 10.0)).ici,
    "pseudo_observations": lambda: m.pseudo_observations(SEEN, t=10.0),
    "d_calibration": lambda: m.d_calibration(SEEN, *CURVES_OF_ROWS),
    "median_survival_time": lambda: m.median_survival_time(CURVES, GRID),
    "restricted_mean_survival_time": lambda: m.restricted_mean_survival_time(CURVES, GRID, tau=20.5),
    "log_likelihood": lambda: m.log_likelihood(EVENT, HAZARD, LOG_HAZARD, sample_weight=WEIGHT),
    "censoring_distribution": lambda: m.censoring_distribution(TRAIN),
    "censoring_distribution, at risk": lambda: m.censoring_distribution(TRAIN, tied_events="at_risk"),
    "KaplanMeier": lambda: m.KaplanMeier.fit(TRAIN).at(GRID),
    "ipcw_weights": lambda: m.ipcw_weights(SEEN, train=TRAIN),
    "group_parity": lambda: m.group_parity(CURVES, np.ones(GRID.size), GROUP),
    "leaf_groups": lambda: m.fairness.leaf_groups(GROUP + 2 * (RISK > 0), GROUP, 2, 4),
    "mean_gini": lambda: m.fairness.mean_gini(m.fairness.leaf_groups((RISK > 0) * 1, GROUP, 2, 2)),
    "group_scores": lambda: m.group_scores(SEEN, *CURVES_OF_ROWS, GROUP, tau=20.0, n_groups=2),
    "gap": lambda: m.fairness.gap([0.25, 0.5, 0.125]),
    "evaluate": lambda: m.evaluate((WHOLE, WHOLE_GRID), TRAIN_ROWS, ROWS),
    "corrected_resampled_t_test": lambda: m.corrected_resampled_t_test(
        [0.7, 0.72, 0.69, 0.74], [0.68, 0.7, 0.7, 0.71], n_train=75, n_test=25
    ),
}


def _metric(function: Callable[[], Any]) -> Entry:
    return {"value": function()}


METRICS: dict[str, Case] = {name: partial(_metric, function) for name, function in PLAIN.items()}

"""Risks by very many event times."""

import numpy as np

from sstorch import SurvivalData, SurvivalRegression


def test_risk_of_many_event_times_is_near_their_sum(small_data: SurvivalData) -> None:
    tree = SurvivalRegression("log_logistic").fit(small_data.frame, small_data.y)
    times = np.unique(np.random.default_rng(0).weibull(1.0, 20_000) * tree.event_times_[-1] / 9 + 1e-3)
    tree.event_times_ = times
    rows = small_data.frame[:20]
    expected = tree.predict_cumulative_hazard_function(rows, times).sum(axis=1)
    np.testing.assert_allclose(tree.predict(rows), expected, rtol=5e-4)

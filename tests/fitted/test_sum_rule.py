"""Sums over very many times: against the sums themselves."""

import numpy as np
import pytest

from sstorch import SurvivalData, SurvivalRegression
from sstorch.fitted.model import MOST_TERMS, sum_rule
from sstorch.nn import FAMILIES
from tests.conftest import nightly_but

DISCRETE = {"logistic_hazard": 1e-3}  # jumps within a piece; the others bend at most


def test_few_times_are_summed_one_by_one() -> None:
    times = np.linspace(1.0, 2.0, MOST_TERMS)
    nodes, weights = sum_rule(times)
    assert nodes is times
    assert (weights == 1.0).all()


@pytest.mark.parametrize("scale", [1e-8, 1.0, 1e15])
def test_polynomials_of_each_piece_are_summed_exactly(scale: float) -> None:
    times = scale * np.unique(np.random.default_rng(0).weibull(1.0, 20_000) + 1e-3)
    nodes, weights = sum_rule(times)
    assert nodes.size == 512
    assert (np.diff(nodes) > 0).all()
    assert times[0] <= nodes[0]
    assert nodes[-1] <= times[-1]
    for power in range(8):
        expected = (np.log(times / scale) ** power).sum()
        assert np.log(nodes / scale) ** power @ weights == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("leaf", nightly_but({"log_logistic", "logistic_hazard"}, FAMILIES))
def test_the_risk_at_many_event_times_is_their_sum(small_data: SurvivalData, leaf: str) -> None:
    tree = SurvivalRegression(leaf=leaf).fit(small_data.frame, (small_data.time, small_data.event))
    last = tree.event_times_[-1]
    times = np.unique(np.random.default_rng(0).weibull(1.0, 20_000) * last / 3 + 1e-3)
    times = times[times < last]
    tree.event_times_ = times
    rows = small_data.frame[:20]
    expected = tree.predict_cumulative_hazard_function(rows, times).sum(axis=1)
    np.testing.assert_allclose(tree.predict(rows), expected, rtol=DISCRETE.get(leaf, 1e-5))

"""Models of competing causes: what they predict is made of what their parts predict."""

import numpy as np
import pytest

from sstorch import Surv, SurvivalData, metrics
from sstorch.bench.baselines import make_baseline
from sstorch.bench.baselines.base import AalenJohansen, CauseSpecific
from sstorch.data import Schema

TIMES = np.array([0.0, 2.0, 5.0, 9.0, 40.0])


@pytest.fixture(scope="module")
def data() -> SurvivalData:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(300, 2))
    first, second = rng.exponential(10 * np.exp(-x[:, 0])), rng.exponential(12 * np.exp(-x[:, 1]))
    censored = rng.uniform(1, 40, 300)
    time = np.minimum(np.minimum(first, second), censored)
    cause = np.select([first <= time, second <= time], [1, 2], 0)
    return SurvivalData(x, Surv(time, cause, causes={1: "relapse", 2: "death"}))


def test_aalen_johansen_is_the_same_for_everybody(data: SurvivalData) -> None:
    found = AalenJohansen().fit(data, Schema.of(data.frame)).predict_cumulative_incidence(data.frame, TIMES)
    expected = metrics.aalen_johansen((data.time, data.cause), TIMES)
    np.testing.assert_array_equal(found, np.broadcast_to(expected, (300, 2, 5)))


def test_kaplan_meier_of_every_cause_is_nearly_aalen_johansen(data: SurvivalData) -> None:
    """exp(-H) is not the product limit, but close to it while many are at risk."""
    schema = Schema.of(data.frame)
    model = CauseSpecific(make_baseline("kaplan_meier")).fit(data, schema)
    expected = metrics.aalen_johansen((data.time, data.cause), TIMES[:4])
    found = model.predict_cumulative_incidence(data.frame, TIMES[:4])
    np.testing.assert_allclose(found[0], expected, atol=3e-3)


def test_cox_of_every_cause_orders_by_its_own_column(data: SurvivalData) -> None:
    pytest.importorskip("sksurv")
    schema = Schema.of(data.frame)
    model = CauseSpecific(make_baseline("cox", penalties=(1.0,)))
    assert model.name == "cause_specific_cox"
    found = model.fit(data, schema).predict_cumulative_incidence(data.frame, TIMES)
    assert (np.diff(found, axis=2) >= 0).all()
    assert found.sum(axis=1).max() <= 1 + 1e-12
    for k in (1, 2):
        assert metrics.concordance_wolbers((data.time, data.cause), found[:, k - 1, 3], k, tau=9.0) > 0.65
    alone = model.baseline.fit(data.of_cause(1), schema)
    naive = 1 - alone.falling_curves(data.frame, TIMES)
    assert (found[:, 0] <= naive + 1e-12).all()  # the other cause takes its part

"""Quantiles and restricted means of the time to any of several events, against SciPy."""

import numpy as np
import pandas as pd
import pytest
from scipy.integrate import quad
from scipy.optimize import brentq

from sstorch import PrognosticTree
from tests.causes import simulated

TIMES = np.array([1e-3, 30.0, 400.0, 900.0, 2500.0, 6000.0])


@pytest.fixture(scope="module")
def tree() -> PrognosticTree:
    return PrognosticTree(depth=1, leaf="weibull").fit(*simulated(300))


def test_quantile_of_any_event_is_the_root(tree: PrognosticTree) -> None:
    X = simulated(4)[0]
    for q, after in ((0.25, None), (0.5, 200.0)):
        found = tree.predict_quantile(X, q, after=after)
        for row, value in enumerate(found):
            one, begin = X.iloc[[row]], after or 0.0

            def left(time: float, one: pd.DataFrame = one, begin: float = begin, q: float = q) -> float:
                curve = tree.predict_survival_function(one, [begin, begin + time])[0]
                return float(curve[1] / curve[0] - (1 - q))

            assert value == pytest.approx(brentq(left, 1e-6, 1e6, rtol=1e-12), rel=1e-7)


def test_restricted_mean_of_any_event_is_the_integral(tree: PrognosticTree) -> None:
    X = simulated(2)[0]
    for tau, after in ((1000.0, None), (700.0, 300.0)):
        found = tree.predict_rmst(X, tau, after=after)
        for row, value in enumerate(found):
            one, begin = X.iloc[[row]], after or 0.0

            def survival(time: float, one: pd.DataFrame = one) -> float:
                return float(tree.predict_survival_function(one, [time])[0, 0])

            area = quad(survival, begin, begin + tau, limit=200, epsabs=1e-5, epsrel=1e-8)[0]
            assert value == pytest.approx(area / survival(begin), rel=1e-7)


def test_hazards_of_causes_add_up(tree: PrognosticTree) -> None:
    fitted = tree.tree_
    x = fitted.encode(simulated(50)[0])
    for kind in ("hazard", "cumulative_hazard"):
        parts = [fitted.of_cause(cause).curves(x, TIMES, kind) for cause in fitted.causes]  # type: ignore[arg-type]
        np.testing.assert_allclose(fitted.curves(x, TIMES, kind), sum(parts), rtol=1e-12)  # type: ignore[arg-type]

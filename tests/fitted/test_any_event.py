"""Quantiles and restricted means of the time to any of several events, against SciPy."""

from collections.abc import Callable

import numpy as np
import pandas as pd
import pytest
from scipy.optimize import brentq

from sstorch import PrognosticTree
from tests.causes import simulated

TIMES = np.array([1e-3, 30.0, 400.0, 900.0, 2500.0, 6000.0])


@pytest.fixture(scope="module")
def tree() -> PrognosticTree:
    return PrognosticTree(depth=1, leaf="weibull").fit(*simulated(300))


def survival_of(tree: PrognosticTree, one: pd.DataFrame) -> Callable[[float], float]:
    return lambda time: float(tree.predict_survival_function(one, [time])[0, 0])


def test_quantile_of_any_event_is_the_root(tree: PrognosticTree) -> None:
    X = simulated(4)[0]
    for q, begin in ((0.25, 0.0), (0.5, 200.0)):
        for row, value in enumerate(tree.predict_quantile(X, q, after=begin or None)):
            survival = survival_of(tree, X.iloc[[row]])
            target = survival(begin) * (1 - q)
            root = brentq(lambda time, s=survival, b=begin, c=target: s(b + time) - c, 1e-6, 1e6, rtol=1e-12)
            assert value == pytest.approx(root, rel=1e-7)


def test_hazards_of_causes_add_up(tree: PrognosticTree) -> None:
    fitted = tree.tree_
    x = fitted.encode(simulated(50)[0])
    for kind in ("hazard", "cumulative_hazard"):
        parts = [fitted.of_cause(cause).curves(x, TIMES, kind) for cause in fitted.causes]  # type: ignore[arg-type]
        np.testing.assert_allclose(fitted.curves(x, TIMES, kind), sum(parts), rtol=1e-12)  # type: ignore[arg-type]

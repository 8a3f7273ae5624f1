"""Grouping censored times must change nothing but memory."""

import numpy as np
import pytest

from sstorch import SurvivalData
from sstorch.bench import make_baseline
from sstorch.bench.baselines.regressions import grouped_times
from sstorch.data import Preprocessor, Schema

pytest.importorskip("sksurv")
from sksurv.ensemble import GradientBoostingSurvivalAnalysis, RandomSurvivalForest
from sksurv.tree import SurvivalTree
from sksurv.util import Surv


def test_grouped_times_keep_the_order_and_the_risk_sets() -> None:
    time = np.array([1.0, 2.0, 3.0, 3.0, 4.0, 5.0, 9.0])
    event = np.array([0, 0, 1, 0, 0, 1, 0], dtype=bool)
    grouped = grouped_times(time, event)
    np.testing.assert_array_equal(grouped, [1, 1, 3, 3, 3, 5, 5])
    for t in time[event]:
        np.testing.assert_array_equal(grouped >= t, time >= t)


@pytest.mark.parametrize(
    ("name", "settings", "peer"),
    [
        ("sksurv", {"depth": 3}, SurvivalTree(max_depth=3, random_state=2)),
        ("rsf", {"n_trees": 10}, RandomSurvivalForest(10, min_samples_leaf=15, random_state=2)),
        (
            "gradient_boosting",
            {"n_trees": 10},
            GradientBoostingSurvivalAnalysis(n_estimators=10, random_state=2),
        ),
    ],
)
def test_equals_scikit_survival(
    gbsg2: SurvivalData, name: str, settings: dict[str, int], peer: object
) -> None:
    train, test = gbsg2.subset(range(500)), gbsg2.subset(range(500, 686))
    schema = Schema.of(gbsg2.frame)
    times = np.linspace(0.0, 2000.0, 50)
    curves = make_baseline(name, **settings).fit(train, schema, seed=2).falling_curves(test.frame, times)
    preprocessor = Preprocessor(schema).fit(train.frame)
    peer.fit(preprocessor.transform(train.frame), Surv.from_arrays(train.event, train.time))
    functions = peer.predict_survival_function(preprocessor.transform(test.frame))
    expected = np.array([f(np.clip(times, *f.domain)) for f in functions])
    expected[:, times < functions[0].x[0]] = 1.0
    np.testing.assert_allclose(curves, expected, atol=1e-10)

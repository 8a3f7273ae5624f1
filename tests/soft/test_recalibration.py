"""Recalibration: groups stay, leaves are the most likely ones of the new rows, and it is said and kept."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.optimize import minimize

from sstorch import GroupPenalties, PrognosticTree, Surv, SurvivalRegression, recalibrate
from sstorch.data import SurvivalData
from sstorch.exceptions import ConfigError, DataError, DataWarning
from sstorch.groups import Recalibration
from sstorch.nn import Spline
from tests.conftest import nightly
from tests.flat import soft_tree


def elsewhere(data: SurvivalData, seed: int = 0) -> tuple[Any, ...]:
    """Other rows, whose times are longer and more alike."""
    rows = data.subset(np.random.default_rng(seed).choice(len(data), 300))
    return rows.frame, (3 * rows.time**0.9, rows.event)


@pytest.mark.parametrize(
    ("leaf", "how", "more"),
    [
        ("log_logistic", "intercept", {}),
        ("weibull", "slope", {"prediction": "mixture"}),
        pytest.param("spline_ph", "baseline", {}, marks=pytest.mark.nightly),
        nightly("log_normal", "slope", {"dtype": "float32"}),
    ],
)
def test_it_is_the_maximum_of_the_likelihood(
    leaf: str, how: Any, more: dict[str, Any], gbsg2: SurvivalData
) -> None:
    X, y = elsewhere(gbsg2)
    entry = 0.3 * y[0] * (np.arange(300) % 3 == 0)
    old = soft_tree(leaf=leaf, **more).fit(gbsg2.frame, (gbsg2.time, gbsg2.event))
    before = old.predict_survival_function(X, [500.0])
    late = Surv(*y, entry=entry)
    new = recalibrate(old, X, late, how)
    report = new.recalibration_
    # The same tree with numbers that a general minimiser finds, from predictions alone.
    old_state = {name: value.clone() for name, value in new.module_.state_dict().items()}

    def loss(step: np.ndarray) -> float:
        for node in new.module_.topology.leaves:
            parts = new.module_.leaf(node)
            key = f"leaves.{node}."
            parts.slope.data = old_state[key + "slope"] * (1 + (step[1] if how == "slope" else 0))
            parts.intercept.data = (
                old_state[key + "intercept"] * (1 + (step[1] if how == "slope" else 0)) + step[0]
            )
            if how == "baseline":
                parts.shape.data = old_state[key + "shape"] + parts.shape.data.new_tensor(step[1:])
        return -new.log_likelihood(X, late)

    n_free = {"intercept": 1, "slope": 2, "baseline": 1 + len(report.shape)}[how]
    at_rest = loss(np.zeros(n_free))
    exact = "dtype" not in more
    assert -at_rest == pytest.approx(report.log_likelihood[1], rel=1e-10 if exact else 1e-5)
    assert old.log_likelihood(X, late) == pytest.approx(
        report.log_likelihood[0], rel=1e-10 if exact else 1e-5
    )
    found = minimize(
        loss, np.full(n_free, 0.01), method="Nelder-Mead", options={"xatol": 1e-6, "fatol": 1e-12}
    )
    assert at_rest <= found.fun + (1e-9 if exact else 1e-5)
    np.testing.assert_array_equal(old.predict_survival_function(X, [500.0]), before)


def test_groups_stay_and_times_in_another_unit_are_a_shift(gbsg2: SurvivalData, tmp_path: Path) -> None:
    X, y = gbsg2.frame, (gbsg2.time, gbsg2.event)
    old = PrognosticTree(leaf="log_logistic", penalties=GroupPenalties(ridge=0.0)).fit(X, y)
    new = recalibrate(old, X, (2 * gbsg2.time, gbsg2.event))
    report = new.recalibration_
    assert report.intercept == pytest.approx(np.log(2), abs=0.02)
    assert report.intercept_error is not None
    assert 0.02 < report.intercept_error < 0.08
    assert report.slope_error is None
    np.testing.assert_array_equal(new.apply(X), old.apply(X))
    assert new._reading.rules == old._reading.rules
    assert new.node_table_["rows"].tolist() == old.node_table_["rows"].tolist()
    assert "Recalibrated (intercept) on 686 rows, 299 events" in new.summary()
    assert "Recalibrated" not in old.summary()
    new.save(tmp_path)
    again = PrognosticTree.load(tmp_path)
    assert again.recalibration_ == report
    times = [400.0, 4000.0]
    np.testing.assert_array_equal(
        again.predict_survival_function(X, times), new.predict_survival_function(X, times)
    )
    assert isinstance(report, Recalibration)


def test_refusals(gbsg2: SurvivalData) -> None:
    X, y = gbsg2.frame, (gbsg2.time, gbsg2.event)
    tree = PrognosticTree(depth=1).fit(X, y)
    with pytest.raises(ConfigError, match="how must be one of intercept, slope, baseline, got 'shift'"):
        recalibrate(tree, X, y, "shift")  # type: ignore[arg-type]
    few = np.flatnonzero(gbsg2.event)[:1]
    rows = gbsg2.subset(np.r_[np.flatnonzero(~gbsg2.event)[:20], few])
    with pytest.raises(DataError, match=r"parameters, 2, and 1 of 21 rows.*how='intercept'"):
        recalibrate(tree, rows.frame, (rows.time, rows.event), "slope")
    with pytest.warns(DataWarning, match="estimated from 1 events: 1"):
        recalibrate(tree, rows.frame, (rows.time, rows.event))
    rising = SurvivalRegression(leaf=Spline("hazard", monotone=False)).fit(X, y)
    with pytest.raises(ConfigError, match="monotone=True"):
        recalibrate(rising, X, y)

"""Recalibration: groups stay, leaves are the most likely ones of the new rows, and reports are kept."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy.optimize import minimize
from sklearn.base import clone

from sstorch import Surv, SurvivalData, metrics, recalibrate
from sstorch.exceptions import ConfigError, DataError, DataWarning
from sstorch.groups import Recalibration
from sstorch.soft.recalibration import recalibrated
from tests.conftest import nightly
from tests.flat import soft_tree
from tests.groups.trees import CAUSES, TREES, fitted
from tests.histories import halved

KINDS = ["soft", "exact", "soft causes", "exact causes"]


def _reports(tree: Any) -> dict[str, Recalibration]:
    found = tree.recalibration_
    return {"": found} if isinstance(found, Recalibration) else found


@pytest.mark.parametrize("kind", KINDS)
def test_groups_stay_and_reports_are_kept(kind: str, tmp_path: Path) -> None:
    tree, data = fitted(kind)
    plain = tree.summary()
    new = recalibrate(tree, data.frame, Surv(2 * data.time, data.cause, causes=data.y.causes))
    np.testing.assert_array_equal(new.apply(data.frame), tree.apply(data.frame))
    assert (tree.summary(), "recalibration_" in vars(tree)) == (plain, False)
    for name, report in _reports(new).items():
        assert f"{name}: {report}" if name else str(report) in new.summary()
    new.save(tmp_path)
    again = type(tree).load(tmp_path)
    assert (again.recalibration_, again.summary()) == (new.recalibration_, new.summary())
    curves, saved = (each.predict_survival_function(data.frame, [400.0, 4000.0]) for each in (new, again))
    np.testing.assert_array_equal(curves, saved)
    if kind == "exact":
        assert "686 rows, 299 events of the recalibration" in new.summary()
        assert "Groups, recalibrated Kaplan-Meier curves" in new.summary()
    if kind == "soft":
        assert new._reading.rules == tree._reading.rules
        assert new._reading.nodes["rows"].tolist() == tree._reading.nodes["rows"].tolist()


@pytest.mark.parametrize("kind", ["soft", "exact causes", nightly("soft causes"), nightly("exact")])
def test_weights_are_repetitions_and_split_rows_are_whole_rows(kind: str) -> None:
    tree, data = fitted(kind)
    weight = 1 + np.arange(len(data)) % 2
    rows = np.repeat(np.arange(len(data)), weight)
    whole = Surv(data.time, data.cause, id=np.arange(len(data)), causes=data.y.causes)
    subjects = clone(tree).fit(data.frame, whole)
    for how in ("intercept", "baseline") if "exact" in kind else ("intercept", "slope", "baseline"):
        one = recalibrate(tree, data.frame, data.y, how, weight)
        many = recalibrate(tree, data.frame.iloc[rows].reset_index(drop=True), data.y[rows], how)
        first = recalibrate(subjects, data.frame, whole, how)
        both = data.frame.iloc[np.tile(np.arange(len(data)), 2)].reset_index(drop=True)
        second = recalibrate(subjects, both, halved(data.y), how)
        for new, same, names in ((one, many, ()), (first, second, ("intercept_error", "slope_error"))):
            for name, report in _reports(new).items():
                for field in ("intercept", "slope", *names):
                    value, expected = (getattr(each, field) for each in (report, _reports(same)[name]))
                    assert value is expected is None or value == pytest.approx(expected, abs=1e-6), field


@pytest.mark.parametrize(
    ("leaf", "how", "more"),
    [
        ("log_logistic", "intercept", {}),
        ("weibull", "slope", {"prediction": "mixture"}),
        nightly("spline_ph", "baseline", {}),
        nightly("log_normal", "slope", {"dtype": "float32"}),
    ],
)
def test_soft_leaves_are_the_maximum_of_the_likelihood(
    leaf: str, how: Any, more: dict[str, Any], gbsg2: SurvivalData
) -> None:
    rows = gbsg2.subset(np.random.default_rng(0).choice(len(gbsg2), 300))
    X, time = rows.frame, 3 * rows.time**0.9
    late = Surv(time, rows.event, entry=0.3 * time * (np.arange(300) % 3 == 0))
    old = soft_tree(leaf=leaf, **more).fit(gbsg2.frame, gbsg2.y)
    new = recalibrate(old, X, late, how)
    report = new.recalibration_
    # The same tree with numbers that a general minimiser finds, from predictions alone.
    state = {name: value.clone() for name, value in new.module_.state_dict().items()}

    def loss(step: np.ndarray) -> float:
        factor = 1 + (step[1] if how == "slope" else 0)
        for node in new.module_.topology.leaves:
            parts, key = new.module_.leaf(node), f"leaves.{node}."
            parts.slope.data = state[key + "slope"] * factor
            parts.intercept.data = state[key + "intercept"] * factor + step[0]
            if how == "baseline":
                parts.shape.data = state[key + "shape"] + parts.shape.data.new_tensor(step[1:])
        return -new.log_likelihood(X, late)

    n_free = {"intercept": 1, "slope": 2, "baseline": 1 + len(report.shape)}[how]
    at_rest, within = loss(np.zeros(n_free)), 1e-5 if "dtype" in more else 1e-10
    assert -at_rest == pytest.approx(report.log_likelihood[1], rel=within)
    assert old.log_likelihood(X, late) == pytest.approx(report.log_likelihood[0], rel=within)
    options = {"xatol": 1e-6, "fatol": 1e-12}
    found = minimize(loss, np.full(n_free, 0.01), method="Nelder-Mead", options=options)
    assert at_rest <= found.fun + 10 * within


def test_error_of_a_soft_intercept_takes_one_pass(
    gbsg2: SurvivalData, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sandwich of an exponential hazard by residuals, without a derivative for each of 686 rows."""
    old, passes, grad = (
        soft_tree(leaf="exponential").fit(gbsg2.frame, gbsg2.y),
        list[int](),
        torch.autograd.grad,
    )
    counted = lambda *args, **more: passes.append(1) or grad(*args, **more)  # noqa: E731
    monkeypatch.setattr(torch.autograd, "grad", counted)
    y = Surv(2 * gbsg2.time, gbsg2.event)
    new = recalibrate(old, gbsg2.frame, y)
    times = np.unique(y.time)
    hazard = new.predict_cumulative_hazard_function(gbsg2.frame, times)
    residuals = y.event - hazard[np.arange(len(y)), np.searchsorted(times, y.time)]
    error = np.sqrt((residuals**2).sum()) / y.event.sum()
    assert new.recalibration_.intercept_error == pytest.approx(error)
    assert len(passes) < 50


@pytest.mark.parametrize("depth", [0, 1])
def test_soft_causes_are_recalibrated_one_by_one(depth: int) -> None:
    tree, data = fitted("soft causes")
    if depth == 0:
        tree = clone(tree).set_params(depth=0).fit(data.frame, data.y)
    y = Surv(2 * data.time, data.cause, causes=CAUSES)
    new = recalibrate(tree, data.frame, y, "slope")
    for number, cause in enumerate(CAUSES, 1):
        rows = SurvivalData(data.frame, Surv(y.time, data.cause == number))
        _, alone = recalibrated(tree.tree_.of_cause(cause), rows, "slope")
        assert new.recalibration_[cause] == alone
    assert new.log_likelihood(data.frame, y) > tree.log_likelihood(data.frame, y)


# ---------------------------------------------------------------------- exact trees


def test_intercept_is_observed_over_expected() -> None:
    tree, data = fitted("exact")
    leaf = tree.apply(data.frame) - 1
    hazard = tree.curves_.cumulative_hazard_at(2 * data.time[:, None], leaf)[:, 0]
    new = recalibrate(tree, data.frame, (2 * data.time, data.event))
    report = new.recalibration_
    factor = np.exp(report.intercept)
    assert report.observed_expected == pytest.approx((data.event.sum() / hazard.sum(), 1.0))
    assert factor == pytest.approx(report.observed_expected[0])
    # sandwich: sum of squared residuals over the square of the events
    residuals = data.event - factor * hazard
    assert report.intercept_error == pytest.approx(np.sqrt((residuals**2).sum()) / data.event.sum())
    old = tree.predict_survival_function(data.frame, [500.0, 1500.0])
    np.testing.assert_allclose(new.predict_survival_function(data.frame, [500.0, 1500.0]), old**factor)
    # Left truncation takes off the hazard before; Nelson-Aalen expects as many events as there were.
    y = Surv(data.time, data.event, entry=0.3 * data.time)
    late = clone(TREES["exact"]).set_params(max_depth=1).fit(data.frame, y)
    hazard = late.curves_.cumulative_hazard_at(data.time[:, None] * [0.3, 1.0], late.apply(data.frame) - 1)
    found = recalibrate(late, data.frame, y).recalibration_.observed_expected[0]
    assert found == pytest.approx(data.event.sum() / np.diff(hazard).sum())
    assert found == pytest.approx(1.0)


def test_baseline_is_the_curve_of_the_new_rows() -> None:
    tree, data = fitted("exact")
    y, leaf = Surv(3 * data.time, data.event), tree.apply(data.frame) - 1
    new = recalibrate(tree, data.frame, y, "baseline")
    for number in range(tree.tree_.n_leaves):
        band = metrics.KaplanMeier.fit(y[leaf == number])
        survival = new.curves_.survival_at(np.array([1500.0]))[number]
        np.testing.assert_allclose(survival, band.at(1500.0))
    assert new.recalibration_.observed_expected[1] == pytest.approx(1.0)
    assert new.recalibration_.intercept is None
    with pytest.raises(DataError, match="group 1 has none"):
        recalibrate(tree, data.frame[leaf != 0], y[leaf != 0], "baseline")
    # Numbers stay where group 1 has the shorter survival.
    other = recalibrate(tree, data.frame, (np.where(leaf == 0, 0.1, 3) * data.time, data.event), "baseline")
    np.testing.assert_array_equal(other.apply(data.frame), leaf + 1)


def test_cause_specific_hazards_are_multiplied() -> None:
    tree, data = fitted("exact causes")
    same = recalibrate(tree, data.frame, data.y)
    np.testing.assert_allclose(same.curves_.incidences, tree.curves_.incidences, rtol=1e-10)  # factors 1
    new = recalibrate(tree, data.frame, Surv(2 * data.time, data.cause, causes=CAUSES))
    for k, report in enumerate(new.recalibration_.values()):
        assert report.observed_expected[1] == pytest.approx(1.0)
        np.testing.assert_allclose(
            new.curves_.hazards[:, k], np.exp(report.intercept) * tree.curves_.hazards[:, k]
        )
    np.testing.assert_allclose(new.curves_.incidences.sum(axis=1) + new.curves_.survival, 1.0, rtol=1e-12)
    # Equal factors give a power of survival.
    curves = tree.curves_.scaled(np.full(2, 0.5))
    np.testing.assert_allclose(curves.survival, tree.curves_.survival**0.5, rtol=1e-10)
    np.testing.assert_allclose(curves.incidences.sum(axis=1), 1 - curves.survival, rtol=1e-10)


def test_invalid_arguments_raise(gbsg2: SurvivalData) -> None:
    exact, soft, (causes, data) = fitted("exact").tree, fitted("soft").tree, fitted("soft causes")
    few = gbsg2.subset(np.r_[np.flatnonzero(~gbsg2.event)[:20], np.flatnonzero(gbsg2.event)[:1]])
    none = Surv(data.time, np.where(data.cause == 2, 0, data.cause), causes={1: "relapse"})
    for error, words, tree, rows, how in (
        (ConfigError, "how must be one of", exact, gbsg2, "shift"),
        (ConfigError, "'intercept' or 'baseline' for an exact tree", exact, gbsg2, "slope"),
        (DataError, r"parameters, 2, and 1 of 21 rows.*how='intercept'", soft, few, "slope"),
        (DataError, "cause death: how='intercept'", causes, SurvivalData(data.frame, none), "intercept"),
    ):
        with pytest.raises(error, match=words):
            recalibrate(tree, rows.frame, rows.y, how)  # type: ignore[arg-type]
    with pytest.warns(DataWarning, match="estimated from 1 events: 1"):
        recalibrate(soft, few.frame, few.y)

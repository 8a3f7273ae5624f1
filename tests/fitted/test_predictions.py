"""Quantiles, incidences and restricted means, also of those without an event at a time: SciPy, quadrature."""

from typing import Any

import numpy as np
import pytest
import torch
from scipy.optimize import brentq

from sstorch import OptimalSurvivalTree, PrognosticTree, SurvivalRegression, load_dataset
from sstorch.data import SurvivalData
from sstorch.deploy import export_code
from sstorch.exceptions import DataError, DataWarning
from sstorch.fitted import FittedTree
from sstorch.nn import FAMILIES, SurvivalDistribution
from tests.causes import simulated
from tests.conftest import nightly_but
from tests.flat import soft_tree
from tests.groups.trees import fitted

POINTS, WEIGHTS = np.polynomial.legendre.leggauss(20)
TIMES = np.array([0.0, 1e-3, 3.0, 41.5, 120.0, 424.0, 6000.0])


def test_quantiles_and_hazards_of_any_event() -> None:
    model = PrognosticTree(depth=1, leaf="weibull").fit(*simulated(300))
    X, tree = simulated(4)[0], model.tree_
    for q, begin in ((0.25, 0.0), (0.5, 200.0)):
        for row, value in enumerate(model.predict_quantile(X, q, after=begin or None)):

            def survival(time: float, row: int = row) -> float:
                return float(model.predict_survival_function(X.iloc[[row]], [time])[0, 0])

            target = survival(begin) * (1 - q)
            root = brentq(lambda t, b=begin, c=target, s=survival: s(b + t) - c, 1e-6, 1e6, rtol=1e-12)
            assert value == pytest.approx(root, rel=1e-7)
    x = tree.encode(simulated(50)[0])
    for kind in ("hazard", "cumulative_hazard"):
        parts = [tree.of_cause(cause).curves(x, TIMES[1:], kind) for cause in tree.causes]  # type: ignore[arg-type]
        np.testing.assert_allclose(tree.curves(x, TIMES[1:], kind), sum(parts), rtol=1e-12)  # type: ignore[arg-type]


def test_risks_by_many_skewed_event_times_are_near_sums_of_hazards(small_data: SurvivalData) -> None:
    model = SurvivalRegression("log_logistic").fit(small_data.frame, small_data.y)
    times = np.unique(np.exp(1.5 * np.random.default_rng(0).normal(size=6000)))
    model.event_times_ = times * np.median(model.event_times_)
    X = small_data.frame[:20]
    expected = model.predict_cumulative_hazard_function(X, model.event_times_).sum(axis=1)
    np.testing.assert_allclose(model.predict(X), expected, rtol=1e-6)


def integral(tree: FittedTree, x: Any, edges: np.ndarray, logged: bool, before: Any = 0.0) -> np.ndarray:
    """Sums of hazard times survival at twenty nodes between edges, which are logarithms of times or times."""
    half = np.diff(edges)[:, None] / 2
    nodes = (edges[:-1, None] + half * (1 + POINTS)).ravel()
    times, scale = (np.exp(nodes), nodes) if logged else (nodes, 0.0)
    total = tree.curves(x, times, "cumulative_hazard") - before
    hazards = [tree.of_cause(cause).curves(x, times, "log_hazard") for cause in tree.causes]
    return np.stack([np.exp(hazard + scale - total) @ (half * WEIGHTS).ravel() for hazard in hazards], axis=1)


@pytest.mark.parametrize(
    "leaf", nightly_but(("log_logistic", "piecewise_exponential", "spline"), sorted(FAMILIES))
)
def test_incidences_are_the_integrals_of_hazard_times_survival(leaf: str) -> None:
    data = load_dataset("mgus2")
    tree = PrognosticTree(depth=1, leaf=leaf).fit(data.frame, data.y)._tree
    x = tree.encode(data.frame[:20])
    found = tree.incidence(x, TIMES)
    fine = np.unique(np.concatenate([tree.panels[:-1] + k / 5 * np.diff(tree.panels) for k in range(5)]))
    for place, time in enumerate(np.log(TIMES[1:]), 1):
        expected = integral(tree, x, np.append(fine[fine < time], time), logged=True)
        np.testing.assert_allclose(found[..., place], expected, atol=1e-8)
    np.testing.assert_allclose(found.sum(axis=1) + tree.curves(x, TIMES), 1, atol=1e-12)
    assert (found[:, :, 0] == 0).all()
    assert (np.diff(found, axis=2) >= 0).all()
    # An incidence does not depend on the other times that are asked for, nor on their order.
    alone = [tree.incidence(x, np.array([time]))[..., 0] for time in TIMES]
    np.testing.assert_allclose(np.stack(alone, axis=2), found, atol=1e-14)
    np.testing.assert_allclose(tree.incidence(x, TIMES[::-1]), found[..., ::-1], atol=1e-14)


def test_conditional_incidences_keep_their_digits_where_few_survive() -> None:
    data = load_dataset("mgus2")
    model = PrognosticTree(depth=0, leaf="weibull").fit(data.frame, data.y)
    frame, tree = data.frame[:3].assign(age=[70.0, 100.0, 130.0]), model._tree
    after, later = 300.0, np.array([0.0, 0.5, 30.0, 400.0])
    assert model.predict_survival_function(frame, [after]).min() < 1e-20
    found, x = model.predict_cumulative_incidence(frame, later, after=after), tree.encode(frame)
    before = tree.curves(x, np.array([after]), "cumulative_hazard")
    for place, time in enumerate(later[1:], 1):  # panels that halve towards `after`, of h_k S / S(after)
        edges = after + np.append(0.0, time * 0.5 ** np.arange(20.0, -1, -1))
        expected = integral(tree, x, edges, logged=False, before=before)
        np.testing.assert_allclose(found[..., place], expected, atol=1e-9)
    assert (found[..., 0] == 0).all()
    names: dict[str, Any] = {}
    exec(export_code(model, "python", after=after), names)
    rows = frame.to_dict("records")
    code = [[[*names["incidence"](each, time).values()] for time in later] for each in rows]
    np.testing.assert_allclose(np.swapaxes(code, 1, 2), found, atol=1e-12)


LEAVES = ["spline_ph", "spline_po", "spline_probit", "generalized_gamma", "weibull", "log_logistic"]


@pytest.mark.parametrize("leaf", [*LEAVES, "piecewise_exponential", "groups"])
def test_restricted_means_are_areas_under_curves(leaf: str, gbsg2: SurvivalData) -> None:
    model = PrognosticTree(leaf="spline_po") if leaf == "groups" else SurvivalRegression(leaf)
    model.fit(gbsg2.frame, gbsg2.y)
    # Pieces between all event times, where every hazard is smooth, and in octaves elsewhere.
    bends = np.concatenate([gbsg2.event_times, *(2.0 ** np.arange(-20, 16) * k for k in (1, 1.4))])
    for after, tau in ((0.0, 1000.0), (500.0, 1000.0), (0.0, 0.5), (0.0, 20_000.0)):
        inside = bends[(bends > after) & (bends < after + tau)] - after
        edges = np.unique(np.concatenate([[0.0, tau], inside]))
        half = np.diff(edges)[:, None] / 2
        times = np.unique(edges[:-1, None] + half * (1 + POINTS))
        curves = model.predict_survival_function(gbsg2.frame[:3], times, after=after)
        found = model.predict_rmst(gbsg2.frame[:3], tau, after=after)
        np.testing.assert_allclose(found, curves @ (half * WEIGHTS).ravel(), rtol=1e-8)


@pytest.mark.parametrize("after", [None, 500.0])
def test_all_rows_share_the_times_of_curves(
    after: float | None, gbsg2: SurvivalData, monkeypatch: pytest.MonkeyPatch
) -> None:
    """20,000 rows of splines took 7.2 CPU s at 1,700 times of their own each; 501-point curves .4."""
    model, shapes = SurvivalRegression("spline_ph").fit(gbsg2.frame, gbsg2.y), list[torch.Size]()
    expected = model.predict_rmst(gbsg2.frame, 1000.0, after=after)
    survival = SurvivalDistribution.survival

    def counted(self: SurvivalDistribution, times: torch.Tensor) -> torch.Tensor:
        shapes.append(times.shape)
        return survival(self, times)

    monkeypatch.setattr(SurvivalDistribution, "survival", counted)
    monkeypatch.setattr("sstorch.nn.hazards.base.invert", None)  # quantiles of rows are not needed
    np.testing.assert_allclose(model.predict_rmst(gbsg2.frame, 1000.0, after=after), expected, rtol=1e-12)
    assert max(shape[-1] for shape in shapes) < 501
    assert {shape[-2] for shape in shapes if shape[-1] > 1} == {1}


# ---------------------------------------------------------------------- with `after`

AFTER = np.array([0.0, 200.0, 1000.0, 1900.0])
LATER = np.array([0.0, 50.0, 400.0, 1500.0])
MIXTURE = soft_tree(
    depth=1, leaf="weibull", trainer="leaves", init="distilled", ridge=1e-3, prediction="mixture"
)
of_kinds = pytest.mark.parametrize("kind", ["soft", "mixture", "exact"])


@pytest.fixture(scope="module")
def trees(gbsg2: SurvivalData) -> dict[str, Any]:
    trees = {kind: fitted(kind).tree for kind in ("soft", "exact")}
    return trees | {"mixture": MIXTURE.fit(gbsg2.frame, gbsg2.y)}


@of_kinds
def test_curves_are_ratios(trees: dict[str, Any], kind: str, gbsg2: SurvivalData) -> None:
    tree, rows = trees[kind], gbsg2.frame[:4]
    at = np.concatenate([AFTER[:, None], AFTER[:, None] + LATER], axis=1)
    whole = np.array([tree.predict_survival_function(rows[i : i + 1], at[i])[0] for i in range(4)])
    found = tree.predict_survival_function(rows, LATER, after=AFTER)
    np.testing.assert_allclose(found, whole[:, 1:] / whole[:, :1], rtol=1e-12)
    if kind != "exact":
        hazard = tree.predict_cumulative_hazard_function(rows, LATER, after=AFTER)
        np.testing.assert_allclose(hazard, -np.log(found), rtol=1e-9, atol=1e-12)
        of_a_time = [tree.predict_hazard_function(rows[i : i + 1], at[i, 1:])[0] for i in range(4)]
        np.testing.assert_allclose(tree.predict_hazard_function(rows, LATER, after=AFTER), of_a_time)
    frame = tree.predict_survival_function(rows, LATER, after=200, as_frame=True)
    np.testing.assert_array_equal(frame.to_numpy()[1], found[1])
    default = tree.predict_survival_function(rows, after=AFTER[1])
    assert default.shape[1] <= 100
    assert (np.diff(default, axis=1) <= 0).all()


@of_kinds
def test_quantiles_and_means_are_those_of_the_curves(
    trees: dict[str, Any], kind: str, gbsg2: SurvivalData
) -> None:
    tree, rows = trees[kind], gbsg2.frame[:4]
    quantile = tree.predict_quantile(rows, 0.25, after=AFTER)
    reached = np.flatnonzero(np.isfinite(quantile))
    assert reached.size
    for i in reached:
        near = [quantile[i] * (1 - 1e-8), quantile[i]]
        before, there = tree.predict_survival_function(rows[i : i + 1], near, after=AFTER[i])[0]
        assert before >= 0.75 - 1e-9 >= there - 2e-9
    fine = np.linspace(0, 1200.0, 60_001)
    curves = tree.predict_survival_function(rows, (fine[1:] + fine[:-1]) / 2, after=AFTER)
    means = tree.predict_rmst(rows, 1200.0, after=AFTER)
    np.testing.assert_allclose(means, curves.mean(axis=1) * 1200, rtol=2e-5)
    for method, value in ((tree.predict_quantile, 0.25), (tree.predict_rmst, 900.0)):
        np.testing.assert_allclose(method(rows, value, after=np.zeros(4)), method(rows, value), rtol=1e-8)


@pytest.mark.parametrize("kind", ["soft causes", "exact causes"])
def test_incidences_of_those_without_an_event(kind: str) -> None:
    tree, data = fitted(kind)
    rows, times = data.frame[:6], np.array([200.0, 900.0])
    found = tree.predict_cumulative_incidence(rows, times, after=240.0)
    alive = tree.predict_survival_function(rows, times, after=240.0)
    np.testing.assert_allclose(found.sum(axis=1) + alive, 1, atol=1e-12)
    whole = tree.predict_cumulative_incidence(rows, np.append(240.0, 240 + times))
    left = tree.predict_survival_function(rows, [240.0])[:, None]
    np.testing.assert_allclose(found, (whole[..., 1:] - whole[..., :1]) / left, atol=1e-12)
    at_horizon = tree.predict_cumulative_incidence(rows, [tree.horizon_])[..., 0]
    np.testing.assert_allclose(tree.predict(rows), at_horizon[:, 0], rtol=1e-12)
    np.testing.assert_allclose(tree.predict(rows, cause="death"), at_horizon[:, 1], rtol=1e-12)


def test_what_is_refused(trees: dict[str, Any], gbsg2: SurvivalData) -> None:
    rows, y = gbsg2.frame[:3], (gbsg2.time, gbsg2.event)
    for tree in (trees["soft"], trees["exact"]):
        for after, words in (
            (-1.0, "after must be finite and >= 0"),
            ([1.0, 2.0, np.nan], r"after must be finite and >= 0 in 1 row \(.* 2\)"),
            ([1.0, 2.0], r"after has shape \(2,\); give one time, or one for each of 3 rows"),
            (99999.0, "no training event is later than after=99999"),
        ):
            with pytest.raises(DataError, match=words):
                tree.predict_survival_function(rows, after=after)
    x = np.arange(12.0)[:, None]
    dead = OptimalSurvivalTree(max_depth=0).fit(x, (np.arange(1.0, 13.0), np.ones(12)))
    with pytest.raises(DataError, match=r"survival of 1 row \(.* 1\) at after=12 is 0"):
        dead.predict_survival_function(x[:2], [1.0], after=[7.0, 12.0])
    tiny = SurvivalRegression("weibull").fit(gbsg2.frame[["tsize"]], y)
    far = rows[["tsize"]].assign(tsize=[20.0, 20.0, 1e8])  # S(500) underflows
    with (
        pytest.warns(DataWarning, match="far outside"),
        pytest.raises(DataError, match=r"survival of 1 row \(.* 2\) at after=500 is 0"),
    ):
        tiny.predict_survival_function(far, LATER, after=500.0)


def test_median_beyond_the_last_training_event_is_infinite(gbsg2: SurvivalData) -> None:
    """No Kaplan-Meier estimate gives it either; only `extrapolate` asks the family of the leaf."""
    tree = PrognosticTree(depth=1, leaf="weibull").fit(gbsg2.frame, (gbsg2.time, gbsg2.event))
    last = tree.event_times_[-1]
    whole = tree.predict_quantile(gbsg2.frame, extrapolate=True)
    beyond = whole > last
    assert 0 < beyond.sum() < len(beyond)
    np.testing.assert_array_equal(tree.predict_quantile(gbsg2.frame), np.where(beyond, np.inf, whole))
    late = int(np.argmax(whole))
    assert "predicted median not reached" in str(tree.explain(gbsg2.frame.iloc[[late]]))
    # The time that is left ends with the last event, too; at 1/2 of S(after) it comes later than from zero.
    left, free = (tree.predict_quantile(gbsg2.frame, after=1000.0, extrapolate=e) for e in (False, True))
    np.testing.assert_array_equal(left, np.where(1000.0 + free > last, np.inf, free))

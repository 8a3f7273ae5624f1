"""Turnbull's curve, and scores of rows that are known up to intervals, against plain sums and peers."""

import warnings

import numpy as np
import pandas as pd
import pytest
from lifelines import KaplanMeierFitter

from sstorch import Columns, Surv, SurvivalRegression, metrics
from sstorch._types import FloatArray
from sstorch.data import SurvivalData
from sstorch.exceptions import DataError
from sstorch.metrics import TurnbullCurve
from sstorch.metrics.interval_censoring import ScoredIntervals

Bounds = tuple[FloatArray, FloatArray]


def visits(seed: int, n: int = 120, exact: float = 0.0, digits: int = 1) -> Bounds:
    """Bounds of Weibull times from three visits at random times, which coincide; some times known exactly."""
    rng = np.random.default_rng(seed)
    time, at = 4 * rng.weibull(1.5, n), np.sort(rng.uniform(0, 8, (n, 3)).round(digits), axis=1)
    lower = np.where(at < time[:, None], at, 0.0).max(axis=1)
    upper = np.where(at >= time[:, None], at, np.inf).min(axis=1)
    known = rng.random(n) < exact
    return np.where(known, time, lower), np.where(known, time, upper)


def log_likelihood(curve: TurnbullCurve, bounds: Bounds, mass: FloatArray) -> float:
    """Sum over rows of the log of the masses that are within the bounds, one by one."""
    total = 0.0
    for low, high in zip(*bounds, strict=True):
        inside = [
            m
            for left, right, m in zip(curve.left, curve.right, mass, strict=True)
            if (left == right == low == high)
            or (low < high and left >= low and right <= high and not left == right == low)
        ]
        total += np.log(sum(inside))
    return total


@pytest.mark.parametrize(("seed", "exact"), [(0, 0.0), (1, 0.0), (2, 0.3), (3, 0.9)])
def test_turnbull_is_the_maximum(seed: int, exact: float) -> None:
    bounds = visits(seed, exact=exact)
    curve = TurnbullCurve.fit(Surv.interval(*bounds))
    assert curve.mass.sum() == pytest.approx(1)
    best = log_likelihood(curve, bounds, curve.mass)
    rng = np.random.default_rng(seed)
    for _ in range(20):  # concave: no step in any direction is better
        other = curve.mass + 1e-4 * rng.dirichlet(np.ones(len(curve.mass)))
        assert log_likelihood(curve, bounds, other / other.sum()) <= best + 1e-8


def test_turnbull_against_lifelines() -> None:
    lower, upper = visits(4, n=60, digits=9)  # they have closed intervals, which meet where visits coincide
    curve = TurnbullCurve.fit(Surv.interval(lower, upper))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        theirs = KaplanMeierFitter().fit_interval_censoring(lower, upper, tol=1e-8).survival_function_
    times = theirs.index.to_numpy()
    outside = ~((curve.left < times[:, None]) & (times[:, None] < curve.right)).any(axis=1)
    found, expected = curve.at(times[outside]), theirs["NPMLE_estimate_lower"].to_numpy()[outside]
    np.testing.assert_allclose(found, expected, atol=3e-3)  # they stop earlier
    ends = [np.searchsorted(times, part, side="right") - 1 for part in (lower, upper)]
    at = theirs["NPMLE_estimate_lower"].to_numpy()
    their_value = np.log(at[ends[0]] - np.where(np.isinf(upper), 0, at[ends[1]])).sum()
    assert log_likelihood(curve, (lower, upper), curve.mass) >= their_value


def test_turnbull_of_exact_and_right_censored_rows_is_kaplan_meier() -> None:
    rng = np.random.default_rng(5)
    time, event = rng.exponential(2, 80).round(1) + 0.1, rng.random(80) < 0.6
    weight = rng.integers(0, 4, 80)
    curve = TurnbullCurve.fit((time, event), sample_weight=weight)
    expected = KaplanMeierFitter().fit(
        *(part[weight > 0] for part in (time, event)), weights=weight[weight > 0]
    )
    at = np.unique(time[event & (weight > 0)])
    np.testing.assert_allclose(curve.at(at), expected.predict(at).to_numpy(), atol=1e-7)
    assert curve.quantile(0.5) == expected.median_survival_time_


def test_turnbull_ends() -> None:
    curve = TurnbullCurve.fit(Surv.interval([1, 2], [3, 4]))
    assert (curve.quantile(0.5), curve.follow_up) == (2.5, np.inf)  # one interval, from 2 to 3
    assert curve.at([0.0, 2.0, 3.0, 9.0, np.inf]).tolist() == [1, 1, 0, 0, 0]
    late = TurnbullCurve.fit(Surv.interval([1, 2], [1, np.inf]))
    assert (late.follow_up, late.quantile(0.6)) == (2, np.inf)
    with pytest.raises(DataError, match="upper"):
        TurnbullCurve.fit(Surv.interval([2.0], [1.0]))


def test_brier_and_coverage_against_survivaleval() -> None:
    evaluator = pytest.importorskip(
        "SurvivalEVAL.evaluators.interval_cen_evaluator", reason="extra 'oracles'"
    )
    train, test = visits(6, n=100), visits(7, n=40)
    # Without mass beyond the last bound: the peer has none there.
    train, test = (tuple(np.where(np.isinf(part), 9.0, part) for part in bounds) for bounds in (train, test))
    grid = np.linspace(0, 9, 46)
    rng = np.random.default_rng(8)
    survival = np.exp(-rng.uniform(0.1, 0.5, (40, 1)) * grid)
    theirs = evaluator.IntervalCenEvaluator(survival, grid, *test, *train)
    at = np.array([1.0, 3.0, 5.0])
    curve = TurnbullCurve.fit(Surv.interval(*train))
    peer, given = theirs.brier_score_multiple_points(at), survival[:, [5, 15, 25]]
    rows = ScoredIntervals.predicted((given, at), None, Surv.interval(*test), Surv.interval(*train))
    mine = rows.brier_curve(given)
    # They have Turnbull's mass elsewhere within its intervals, and fewer steps.
    np.testing.assert_allclose(mine, peer, atol=0.02)
    alive = np.empty(given.shape)
    for i, (low, high) in enumerate(zip(*test, strict=True)):
        for j, t in enumerate(at):
            mass = curve.at(low) - curve.at(high)
            inside = (curve.at(t) - curve.at(high)) / mass if mass > 0 else np.nan
            alive[i, j] = 1.0 if t <= low else 0.0 if t >= high else inside
    np.testing.assert_allclose(mine, np.nanmean((given - alive) ** 2, axis=0), rtol=1e-12)


def test_scores_of_exact_rows_are_the_plain_ones() -> None:
    rng = np.random.default_rng(9)
    time, grid = rng.exponential(2, 30), np.array([0.5, 1.0, 2.0])
    survival = np.exp(-grid / rng.uniform(1, 3, (30, 1)))
    y = Surv.interval(time, time)
    plain = ((survival - (time[:, None] > grid)) ** 2).mean(axis=0)
    integrated = np.trapezoid(plain, grid) / 1.5
    rows, names = (np.zeros((30, 1)), y), ["ibs_turnbull", "coverage"]

    class Known:
        def predict_survival_function(self, X: FloatArray, times: FloatArray) -> FloatArray:
            return survival[:, np.searchsorted(grid, times).clip(max=2)]

        def predict_quantile(self, X: FloatArray, q: float) -> FloatArray:
            return np.full(len(X), 0.5 if q < 0.5 else 2.0)

    found = metrics.evaluate((survival, grid), rows, rows, metrics=names[:1])["value"]
    assert found["ibs_turnbull"] == pytest.approx(integrated)
    inside = (time > 0.5) & (time <= 2)
    found = metrics.evaluate(Known(), rows, rows, metrics=names)["value"]
    assert found["coverage"] == pytest.approx(inside.mean())


def test_the_truth_scores_best_and_is_covered() -> None:
    """Curves of the distribution that made the rows, flatter ones and steeper ones."""
    train, test = visits(10, n=3000), visits(11, n=3000)
    X, y = np.zeros((3000, 1)), Surv.interval(*test)

    class Weibull:
        def __init__(self, scale: float) -> None:
            self.scale = scale

        def predict_survival_function(self, X: FloatArray, times: FloatArray) -> FloatArray:
            return np.tile(np.exp(-((np.asarray(times) / self.scale) ** 1.5)), (len(X), 1))

        def predict_quantile(self, X: FloatArray, q: float) -> FloatArray:
            return np.full(len(X), self.scale * (-np.log1p(-q)) ** (1 / 1.5))

        def log_likelihood(self, X: FloatArray, y: FloatArray) -> float:
            ends = [np.exp(-((bound / self.scale) ** 1.5)) for bound in (y.lower, y.upper)]
            return float(np.log(ends[0] - ends[1]).mean())

    tables = {
        scale: metrics.evaluate(Weibull(scale), (X, Surv.interval(*train)), (X, y))["value"]
        for scale in (3.0, 4.0, 5.5)
    }
    for name in ("ibs_turnbull", "negative_log_likelihood"):
        assert tables[4.0][name] < min(tables[3.0][name], tables[5.5][name])
    # Turnbull's curve of 3000 rows is known to a few per cent alone.
    assert tables[4.0]["coverage"] == pytest.approx(0.9, abs=0.03)
    assert tables[3.0]["coverage"] < 0.85
    assert tables[4.0]["scaled_ibs_turnbull"] == pytest.approx(0, abs=0.005)


def test_a_table_of_a_tree_and_what_is_refused() -> None:
    lower, upper = visits(12, n=200)
    x = pd.DataFrame({"age": np.random.default_rng(0).normal(size=200)})
    data = SurvivalData(x, Surv.interval(lower, upper))
    tree = SurvivalRegression("weibull", columns=Columns(numeric="linear")).fit(x, data.y)
    table = metrics.evaluate(tree, data, data)
    assert list(table.index) == [
        "ibs_turnbull",
        "scaled_ibs_turnbull",
        "coverage",
        "negative_log_likelihood",
    ]
    assert table.loc["negative_log_likelihood", "value"] == pytest.approx(-tree.log_likelihood(x, data.y))
    weighted = metrics.evaluate(tree, data, (x, data.y.weighted(np.full(200, 0.3))))
    np.testing.assert_allclose(weighted["value"], table["value"])
    with pytest.raises(
        DataError, match="ibs_graf: it is not defined for interval-censored times; there ibs_t"
    ):
        metrics.evaluate(tree, data, data, metrics=["ibs_graf"])
    with pytest.raises(DataError, match="after: which rows with interval-censored times were at risk"):
        metrics.evaluate(tree, data, data, after=1.0)
    with pytest.raises(DataError, match="train must be SurvivalData"):
        metrics.evaluate(tree, x, data)  # type: ignore[arg-type]
    train, test = (None, Surv.interval([1.0], [1.0])), (None, Surv.interval([1.0], [9.0]))
    with pytest.raises(DataError, match="no row is known"):
        metrics.evaluate(([[0.5, 0.4]], [5.0, 6.0]), train, test, metrics=["ibs_turnbull"])

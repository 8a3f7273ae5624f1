"""Conformal lower bounds: the arithmetic by hand, and coverage in a simulation."""

import itertools
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone

from sstorch import Columns, OptimalSurvivalTree, SoftSurvivalTree, Surv, SurvivalData, SurvivalRegression
from sstorch.base import SurvivalEstimator
from sstorch.conformal import ConformalLowerBound
from sstorch.exceptions import ConfigError, DataError, DataWarning
from sstorch.metrics import censoring_distribution
from sstorch.optim import Joint, LBFGSOptions
from sstorch.soft import bootstrap_trees

PLAIN = SoftSurvivalTree(
    depth=0, leaf="exponential", trainer=Joint(LBFGSOptions(max_iterations=30)), init="random", n_starts=1
)
CENSORING = clone(PLAIN).set_params(leaf="weibull")


class Gone(SurvivalEstimator):
    """Everybody is censored at once."""

    def fit(self, X: object, y: object) -> "Gone":
        return self

    def falling_curves(self, X: Any, times: Any) -> np.ndarray:
        return np.zeros((len(X), len(times)))


def _cohort(
    n: int, rate: float, seed: int, depends: bool = False
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Features, true times with a rising hazard, and censoring times."""
    rng = np.random.default_rng(seed)
    x = rng.uniform(size=(n, 2))
    time = np.exp(x[:, 0]) * rng.weibull(3.0, n)
    return x, time, rng.exponential(size=n) / rate * (np.exp(1.5 - 3 * x[:, 0]) if depends else 1.0)


def test_bounds_are_those_of_the_definition(small_data: SurvivalData) -> None:
    """Row by row and time by time, from the weights, scores and curves that users see."""
    y = (small_data.time, small_data.event)
    for censoring in ("kaplan_meier", CENSORING):
        found = ConformalLowerBound(PLAIN, 0.7, censoring=censoring).fit(small_data.frame, y)
        held = found._calibration_rows(small_data.event)
        train, rows = small_data.subset(~held), small_data.subset(held)
        assert abs(held.sum() - 60) <= 1
        model = clone(PLAIN).fit(train.frame, (train.time, train.event))
        marginal = censoring_distribution((train.time, train.event))
        assert found.cutoff_ == max(t for t in train.time if marginal.before([t])[0] >= 0.2)

        turned = clone(CENSORING).fit(train.frame, (train.time, ~train.event))

        def uncensored(
            x: pd.DataFrame, t: float, kind: object = censoring, km: Any = marginal, turned: Any = turned
        ) -> float:
            if kind == "kaplan_meier":
                return float(km.before([t])[0])
            return float(turned.predict_survival_function(x, [t])[0, 0])

        cutoff, scores, weights = found.cutoff_, [], []
        for i in range(len(rows)):
            x, t, d = rows.frame[i : i + 1], rows.time[i], rows.event[i]
            if t >= cutoff:
                scores.append(np.inf)
                weights.append(1 / uncensored(x, cutoff))
            elif d:
                scores.append(1 - float(model.predict_survival_function(x, [t])[0, 0]))
                weights.append(1 / uncensored(x, t))
        order = np.argsort(scores, kind="stable")
        scores, weights = list(np.array(scores)[order]), np.array(weights)[order]
        np.testing.assert_allclose(found.scores_, scores, rtol=1e-12)
        # The model is fitted to censoring times a billionth later.
        np.testing.assert_allclose(found.weights_, weights, rtol=1e-7)
        assert found.effective_size_ == pytest.approx(sum(weights) ** 2 / sum(weights**2))
        lower = found.predict(small_data.frame[:2])
        grid = np.r_[0.0, found._grid]
        for i in range(2):
            x, bound = small_data.frame[i : i + 1], 0.0
            for previous, t in itertools.pairwise(grid):
                own = 1 / uncensored(x, t)
                total = own + weights.sum()
                failed = 1 - float(model.predict_survival_function(x, [t])[0, 0])
                # Share of weight, the subject's own included, of scores below that of t.
                below = own + weights[np.array(scores) <= failed].sum()
                if below > 0.3 * total:
                    bound = previous
                    break
            else:
                bound = cutoff
            assert lower[i] == pytest.approx(bound)


@pytest.mark.nightly
@pytest.mark.parametrize("share", [0.2, 0.5, 0.8])
def test_coverage_of_a_wrong_model_under_censoring(share: float) -> None:
    """The leaf is wrong and its own quantiles cover far too often; the bounds cover as asked for."""
    rate = {0.2: 0.14, 0.5: 0.44, 0.8: 1.15}[share]
    coverage, plain, censored = [], [], []
    for seed in range(16):
        x, t, c = _cohort(700, rate, seed)
        new, truth, _ = _cohort(2000, rate, 1000 + seed)
        y = np.minimum(t, c), t <= c
        bounds = ConformalLowerBound(PLAIN, 0.9, random_state=seed).fit(x, y)
        coverage.append((truth >= bounds.predict(new)).mean())
        plain.append((truth >= bounds.estimator_.predict_quantile(new, 0.1, extrapolate=True)).mean())  # type: ignore[attr-defined]
        censored.append((t > c).mean())
    assert np.mean(censored) == pytest.approx(share, abs=0.04)
    assert np.mean(plain) > 0.93
    assert np.mean(coverage) == pytest.approx(0.9, abs=0.02)


@pytest.mark.nightly
def test_censoring_that_depends_on_x_needs_a_model_of_it() -> None:
    found: dict[str, list[float]] = {"kaplan_meier": [], "model": []}
    for seed in range(10):
        x, t, c = _cohort(1000, 0.5, seed, depends=True)
        new, truth, _ = _cohort(2000, 0.5, 1000 + seed)
        y = np.minimum(t, c), t <= c
        for name, kind in (("kaplan_meier", "kaplan_meier"), ("model", CENSORING)):
            bounds = ConformalLowerBound(PLAIN, 0.7, censoring=kind, random_state=seed).fit(x, y)
            found[name].append((truth >= bounds.predict(new)).mean())
    assert np.mean(found["model"]) > 0.68
    assert np.mean(found["kaplan_meier"]) < 0.64


def test_levels_cutoffs_and_data_without_censoring(small_data: SurvivalData) -> None:
    X, y = small_data.frame, (small_data.time, small_data.event)
    bounds = ConformalLowerBound(PLAIN, 0.9).fit(X, y)
    lower = [bounds.predict(X, level) for level in (0.95, 0.9, 0.6)]
    assert (lower[0] <= lower[1]).all()
    assert (lower[1] <= lower[2]).all()
    np.testing.assert_array_equal(lower[1], bounds.predict(X))
    assert (bounds.predict(X, 0.999) == 0).all()  # 60 rows cannot tell so much
    assert (bounds.predict(X, 0.01) == bounds.cutoff_).all()
    near = ConformalLowerBound(PLAIN, 0.5, cutoff=10.0).fit(X, y)
    assert near.predict(X).max() == near.cutoff_ == 10.0
    whole = ConformalLowerBound(PLAIN, 0.5, censoring=CENSORING).fit(X, (y[0], np.ones(120, dtype=bool)))
    np.testing.assert_array_equal(whole.weights_, 1.0)
    assert whole.effective_size_ == 60


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"level": 1.0}, r"level must be a number in \(0, 1\), got 1.0"),
        ({"calibration": 0}, r"calibration must be a number in \(0, 1\)"),
        ({"cutoff": -1.0}, "cutoff must be a finite time > 0"),
        ({"estimator": "tree"}, "estimator must be an estimator of sstorch, got 'tree'"),
        ({"censoring": "cox"}, "censoring must be an estimator of sstorch, or 'kaplan_meier', got 'cox'"),
        ({"random_state": None}, "random_state must be at least 0"),
    ],
)
def test_what_does_not_exist_is_refused(
    small_data: SurvivalData, parameters: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        ConformalLowerBound(**({"estimator": PLAIN} | parameters)).fit(
            small_data.frame, (small_data.time, small_data.event)
        )


def test_too_little_to_calibrate_or_to_weigh_is_refused(small_data: SurvivalData) -> None:
    X, time, event = small_data.frame, small_data.time, small_data.event
    with pytest.raises(DataError, match="leaves none to train or none to calibrate"):
        ConformalLowerBound(PLAIN, calibration=0.001).fit(X, (time, event))
    with pytest.raises(ConfigError, match="cutoff=1000 is beyond the last training time"):
        ConformalLowerBound(PLAIN, cutoff=1000.0).fit(X, (time, event))
    with pytest.raises(DataError, match="y has weights, and conformal bounds do not support them"):
        ConformalLowerBound(PLAIN).fit(X, Surv(time, event, weight=1.0 + event))
    with pytest.raises(DataError, match="all but certain to be censored before the cutoff"):
        ConformalLowerBound(PLAIN, censoring=Gone()).fit(X, (time, event))


@pytest.mark.parametrize("depth", [0, 1])
def test_curved_trees_have_bounds(small_data: SurvivalData, depth: int) -> None:
    """Knots come from the rows that train, not from those that calibrate; the model of G may be curved."""
    y = (small_data.time, small_data.event)
    curved = clone(PLAIN).set_params(depth=depth, columns=Columns(numeric="spline", gate_numeric="log"))
    found = ConformalLowerBound(
        curved, 0.7, censoring=clone(CENSORING).set_params(columns__numeric="piecewise")
    )
    found.fit(small_data.frame, y)
    train = small_data.subset(~found._calibration_rows(small_data.event))
    model = clone(curved).fit(train.frame, (train.time, train.event))
    seen, own = found.estimator_.preprocessor_.basis_, model.preprocessor_.basis_  # type: ignore[attr-defined]
    np.testing.assert_array_equal(seen.cube_knot, own.cube_knot)
    bounds = found.predict(small_data.frame)
    assert ((bounds > 0) & (bounds <= found.cutoff_)).all()
    straight = ConformalLowerBound(clone(curved).set_params(columns__numeric="linear"), 0.7).fit(
        small_data.frame, y
    )
    assert not np.allclose(straight.predict(small_data.frame), bounds, rtol=1e-3)


def test_atoms_of_the_censoring_times_have_the_weights_of_kaplan_meier() -> None:
    """Two ends of a study: G is wanted just before them, also from a model."""
    draws = np.random.default_rng(3)
    life, end = draws.exponential(5 / np.log(2), 600), np.where(draws.random(600) < 0.7, 5.0, 10.0)
    frame, y = pd.DataFrame({"x": draws.normal(size=600)}), (np.minimum(life, end), life <= end)
    flat = SurvivalRegression(leaf="exponential")
    known = ConformalLowerBound(flat, cutoff=5.0).fit(frame, y)
    steps = ConformalLowerBound(flat, censoring=OptimalSurvivalTree(max_depth=0), cutoff=5.0).fit(frame, y)
    np.testing.assert_allclose(steps.weights_, known.weights_, rtol=1e-9)
    np.testing.assert_allclose(steps.predict(frame, 0.7), known.predict(frame, 0.7))
    with pytest.warns(DataWarning, match=r"uncensored on average, Kaplan-Meier \d\d%"):
        ConformalLowerBound(flat, censoring=SurvivalRegression(leaf="log_logistic")).fit(frame, y)


def test_columns_beside_the_features_are_left_alone() -> None:
    draws = np.random.default_rng(4)
    frame, y = (
        pd.DataFrame({"x": draws.normal(size=80)}),
        (draws.exponential(size=80) + 0.1, np.ones(80, bool)),
    )
    flat = SurvivalRegression(leaf="exponential")
    more = frame.assign(seen=pd.Timestamp("2020-01-01"))
    bounds = ConformalLowerBound(flat, level=0.5).fit(frame, y)
    np.testing.assert_array_equal(bounds.predict(more), bounds.predict(frame))
    sample = bootstrap_trees(flat, frame, y, n_resamples=2)
    np.testing.assert_array_equal(sample.survival(more, [1.0]), sample.survival(frame, [1.0]))

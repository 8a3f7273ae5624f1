"""Bootstraps of trees."""

import numpy as np
import pytest
from sklearn.base import clone

from sstorch import Penalties, SoftSurvivalTree, SurvivalData
from sstorch.exceptions import DataError
from sstorch.soft import bootstrap_trees

PLAIN = SoftSurvivalTree(
    depth=0, leaf="exponential", trainer="joint", init="random", n_starts=1, penalties=Penalties(ridge=0.0)
)


def test_bootstrap_has_the_spread_of_the_maximum_likelihood_estimate() -> None:
    """Exponential times and no covariate that matters: the standard error is known."""
    rng = np.random.default_rng(0)
    time, censoring = rng.exponential(10, 400), rng.exponential(20, 400)
    event, seen = time <= censoring, np.minimum(time, censoring)
    X = np.zeros((400, 1))
    sample = bootstrap_trees(PLAIN, X, (seen, event), n_resamples=150)
    assert len(sample) == 150
    times = np.array([2.0, 10.0, 25.0])
    rate = event.sum() / seen.sum()
    expected = times * np.exp(-rate * times) * rate / np.sqrt(event.sum())
    np.testing.assert_allclose(sample.survival(X[:1], times).std(axis=0, ddof=1)[0], expected, rtol=0.15)
    band = sample.band(X[:2], times, level=0.9)
    np.testing.assert_allclose(band.median[0], np.exp(-rate * times), atol=0.01)
    np.testing.assert_allclose(band.upper[0] - band.lower[0], 2 * 1.645 * expected, rtol=0.2)
    np.testing.assert_array_equal(band.lower[0], band.lower[1])
    curves = sample.survival(X[:1], times)
    inside = (curves >= band.lower[:1]) & (curves <= band.upper[:1])
    assert inside.mean() == pytest.approx(0.9, abs=0.02)


@pytest.mark.filterwarnings("ignore:.* repeat others in every column")
def test_a_resample_is_the_rows_as_often_as_they_were_drawn(small_data: SurvivalData) -> None:
    estimator = SoftSurvivalTree(
        depth=0,
        leaf="weibull",
        trainer="joint",
        init="random",
        n_starts=1,
        penalties=Penalties(ridge=0.01),
        random_state=3,
    )
    sample = bootstrap_trees(estimator, small_data.frame, small_data.y, n_resamples=3)
    draws = np.random.default_rng((3, 3))
    for number in range(3):
        counts = draws.multinomial(120, np.full(120, 1 / 120))
        rows = np.repeat(np.arange(120), counts)
        assert counts.max() > 1
        alone = clone(estimator).set_params(random_state=0)
        alone.fit(small_data.frame.iloc[rows], (small_data.time[rows], small_data.event[rows]))
        curves = alone.predict_survival_function(small_data.frame, [5.0, 40.0])
        np.testing.assert_allclose(sample.survival(small_data.frame, [5.0, 40.0])[number], curves, atol=2e-4)
    again = bootstrap_trees(estimator, small_data.frame, small_data.y, n_resamples=3)
    np.testing.assert_array_equal(
        again.survival(small_data.frame, [5.0]), sample.survival(small_data.frame, [5.0])
    )


def test_weights_multiply_and_rows_of_weight_zero_are_never_drawn(small_data: SurvivalData) -> None:
    weight = np.where(np.arange(120) < 60, 0.5, 0.0)
    own = bootstrap_trees(PLAIN, small_data.frame, small_data.y, 4, sample_weight=weight)
    part = small_data.subset(range(60))
    alone = bootstrap_trees(PLAIN, part.frame, part.y, 4)
    X = small_data.frame[:5]
    np.testing.assert_allclose(own.survival(X, [9.0]), alone.survival(X, [9.0]), atol=1e-5)
    doubled = small_data.reweighted(np.where(np.arange(120) == 4, 2.0, 0.0))
    assert (len(doubled), doubled.sample_weight.tolist()) == (1, [2.0])
    assert doubled.reweighted([3.0]).sample_weight.tolist() == [6.0]
    with pytest.raises(DataError, match="negative"):
        small_data.reweighted(np.full(120, -1.0))

import numpy as np
import pytest
from hypothesis import given
from lifelines import ExponentialFitter

from sstorch.exceptions import DataError
from sstorch.metrics import log_likelihood

from .cohorts import cohorts


@given(cohorts())
def test_exponential_by_loops(rows):
    rate = 0.3
    expected = sum(c * np.log(rate) - rate * t for t, c in zip(*rows, strict=True)) / rows.time.size
    log_h = np.full(rows.time.size, np.log(rate))
    assert log_likelihood(rows.event, rate * rows.time, log_h) == pytest.approx(expected, abs=1e-12)


def test_exponential_equals_lifelines():
    rng = np.random.default_rng(0)
    time, event = rng.exponential(2.0, 200), rng.random(200) < 0.7
    fit = ExponentialFitter().fit(time, event)
    log_h = np.full(200, -np.log(fit.lambda_))
    expected = fit.log_likelihood_ / 200
    assert log_likelihood(event, time / fit.lambda_, log_h) == pytest.approx(expected, abs=1e-10)


def test_weights_count_rows():
    event, hazard, log_h = [1, 0, 1], [0.1, 0.2, 0.7], [-1.0, 5.0, 0.5]
    repeated = log_likelihood([1, 0, 0, 1], [0.1, 0.2, 0.2, 0.7], [-1.0, 5.0, 5.0, 0.5])
    assert log_likelihood(event, hazard, log_h, sample_weight=[1, 2, 1]) == pytest.approx(repeated, abs=1e-15)
    without = log_likelihood([1, 0], [0.1, 0.2], [-1.0, 5.0])
    assert log_likelihood(event, hazard, [-1.0, 5.0, -np.inf], sample_weight=[1, 1, 0]) == without


def test_zero_hazard_counts_only_at_events():
    assert log_likelihood([0, 1], [0.0, 1.0], [-np.inf, 0.0]) == -0.5
    assert log_likelihood([1, 1], [0.0, 1.0], [-np.inf, 0.0]) == -np.inf


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"log_hazard": [0.0, np.nan]}, "log_hazard: NaN in 1 row"),
        ({"cumulative_hazard": [np.nan, 1.0]}, "cumulative_hazard: NaN in 1 row"),
        ({"cumulative_hazard": [1.0, -0.5]}, "cumulative_hazard must be values >= 0, got -0.5 in 1 row"),
        (
            {"cumulative_hazard": [1.0]},
            "cumulative_hazard must have 2 rows, as in the other arguments, got 1",
        ),
        ({"log_hazard": [np.inf, 0.0]}, r"log_hazard must be values below \+inf, got \+inf in 1 row"),
        ({"sample_weight": [1.0, -1.0]}, "sample_weight is negative"),
        ({"sample_weight": [0.0, 0.0]}, "zero in every row"),
        ({"event": [2, 1]}, "event must be True/1"),
    ],
)
def test_refusals(changed, message):
    arguments = {"event": [1, 0], "cumulative_hazard": [0.5, 1.0], "log_hazard": [0.0, 0.0]} | changed
    with pytest.raises(DataError, match=message):
        log_likelihood(**arguments)

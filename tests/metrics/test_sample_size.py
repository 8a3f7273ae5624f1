"""Sample sizes against printed examples, and the third criterion against its definition."""

import math
from typing import Any

import numpy as np
import pandas as pd
import pytest
from lifelines import CoxPHFitter

from sstorch.exceptions import ConfigError
from sstorch.metrics import concordance_harrell_risk, sample_size

OF_THE_BMJ = {"event_rate": 0.065, "mean_follow_up": 2.07, "t": 2.0}


def test_the_example_of_the_bmj() -> None:
    """Riley et al. (2020), BMJ 368, m441: recurrence of thromboembolism, 30 parameters."""
    size = sample_size(30, 0.051, **OF_THE_BMJ)
    assert (size.n_shrinkage, size.n_optimism, size.n) == (5143, 1039, 5143)
    assert size.n_events == 692
    assert size.events_per_parameter == pytest.approx(23.07, abs=0.005)
    assert [round(part, 3) for part in (size.risk, size.risk_lower, size.risk_upper)] == [0.122, 0.113, 0.13]
    assert size.n_risk < size.n


@pytest.mark.parametrize(
    ("n_parameters", "r2", "rate", "follow_up", "t", "printed"),
    [  # of R's pmsampsize, by the authors of the criteria
        (25, 0.051, 0.1, 2.07, 2, (4286, 731)),
        (25, 0.051, 0.065, 4, 2, (4286, 679)),
        (40, 0.06, 0.08, 5, 3, (5798, 969)),
        (10, 0.03, 0.09, 3, 3, (2950, 272)),
        (80, 0.3, 0.03, 5, 1, (1974, 2272)),
    ],
)
def test_more_printed_examples(
    n_parameters: int, r2: float, rate: float, follow_up: float, t: float, printed: tuple[int, int]
) -> None:
    size = sample_size(n_parameters, r2, event_rate=rate, mean_follow_up=follow_up, t=t)
    assert (size.n_shrinkage, size.n_optimism) == printed


@pytest.mark.parametrize(("rate", "t", "margin"), [(0.065, 2.0, 0.02), (0.5, 3.0, 0.05), (0.02, 1.0, 0.05)])
def test_the_overall_risk_is_within_the_margin_and_with_one_row_less_is_not(
    rate: float, t: float, margin: float
) -> None:
    n = sample_size(1, 0.001, event_rate=rate, mean_follow_up=4.0, t=t, margin=margin).n_risk

    def off(rows: int) -> float:
        half = 1.96 * math.sqrt(rate / (4.0 * rows))
        risk, low, high = (1.0 - math.exp(-max(r, 0.0) * t) for r in (rate, rate - half, rate + half))
        return max(risk - low, high - risk)

    assert off(n) <= margin < off(n - 1)


@pytest.mark.parametrize(("spread", "censoring"), [(0.5, 0.5), (0.9, 2.0)])
def test_the_r2_of_a_concordance_is_below_that_of_a_cox_model(spread: float, censoring: float) -> None:
    rng = np.random.default_rng(0)
    score = spread * rng.normal(size=3000)
    failed, left = rng.exponential(np.exp(-score)), rng.exponential(1.0 / censoring, 3000)
    time, event = np.minimum(failed, left), failed <= left
    model = CoxPHFitter().fit(pd.DataFrame({"time": time, "event": event, "x": score}), "time", "event")
    r2 = 1.0 - np.exp(-model.log_likelihood_ratio_test().test_statistic / 3000)
    rate = event.sum() / time.sum()
    concordance = concordance_harrell_risk((time, event), score)
    size = sample_size(5, concordance=concordance, event_rate=rate, mean_follow_up=time.mean(), t=0.2)
    assert 0.75 * r2 < size.r2 < r2
    assert size.n == sample_size(5, size.r2, event_rate=rate, mean_follow_up=time.mean(), t=0.2).n


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"n_parameters": 0}, "n_parameters"),
        ({"r2": 0.9}, "Is it that of Nagelkerke"),
        ({"event_rate": 0.0}, "event_rate must be events per unit of time"),
        ({"mean_follow_up": -1.0}, "mean_follow_up must be one finite time"),
        ({"shrinkage": 1.0}, "shrinkage"),
        ({"margin": 0.0}, "margin"),
        ({"concordance": 0.7}, "give either r2 or concordance, got both"),
        ({"r2": None}, "give either r2 or concordance, got neither"),
        ({"r2": None, "concordance": 0.4}, "concordance must be a number in"),
    ],
)
def test_what_is_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        sample_size(**{"n_parameters": 30, "r2": 0.051, **OF_THE_BMJ, **change})

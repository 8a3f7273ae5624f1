"""Strategies for censored rows with heavy ties, curves on their times, and models of known hazards."""

from typing import NamedTuple

import numpy as np
from hypothesis import strategies as st
from sklearn.base import BaseEstimator


class Cohort(NamedTuple):
    time: np.ndarray
    event: np.ndarray


class Scored(NamedTuple):
    time: np.ndarray
    event: np.ndarray
    survival: np.ndarray
    times: np.ndarray
    train: Cohort


@st.composite
def cohorts(draw, min_size=2, max_size=14, max_time=8):
    """Rows on few distinct times; from no event to all events; one event or one censoring is likely."""
    n = draw(st.integers(min_size, max_size))
    time = draw(st.lists(st.integers(1, max_time), min_size=n, max_size=n))
    kind = draw(st.sampled_from(["mixed", "mixed", "one event", "one censored", "all events"]))
    if kind == "mixed":
        event = draw(st.lists(st.booleans(), min_size=n, max_size=n))
    else:
        event = [kind != "one event"] * n
        if kind != "all events":
            event[draw(st.integers(0, n - 1))] = kind == "one event"
    return Cohort(np.array(time, dtype=float), np.array(event, dtype=bool))


@st.composite
def scored(draw):
    """Test and training rows, with falling curves from few values (so that they tie) on a grid of halves."""
    time, event = draw(cohorts())
    train = draw(cohorts())
    extra = draw(st.sets(st.integers(0, 20), max_size=6))
    times = np.union1d(time, np.array(sorted(extra), dtype=float) / 2)
    seed = draw(st.integers(0, 2**20))
    levels = draw(st.sampled_from([4, 1000]))
    steps = np.random.default_rng(seed).integers(0, levels + 1, size=(time.size, times.size)) / levels
    survival = -np.sort(-steps, axis=1)
    return Scored(time, event, survival, times, train)


class Rates(BaseEstimator):
    """Exponential curves with the rate in the first column."""

    def fit(self, X, y):
        self.fitted_ = True
        return self

    def predict_survival_function(self, X, times):
        return np.exp(-np.outer(np.asarray(X)[:, 0], times))


class CauseRates(BaseEstimator):
    """Constant hazards of two causes, the columns."""

    def fit(self, X, y):
        self.fitted_ = True
        return self

    def predict_cumulative_incidence(self, X, times):
        rate = np.asarray(X)
        total = rate.sum(axis=1)
        share = (rate / total[:, None])[:, :, None]
        return share * (1 - np.exp(-np.outer(total, times)))[:, None]


def rows_of_causes(n, seed):
    """Rates (n, 2), and times, which tie, with causes."""
    rng = np.random.default_rng(seed)
    rate = rng.gamma(3.0, 0.02, (n, 2))
    each, censored = rng.exponential(1 / rate), rng.uniform(5, 60, n)
    time = np.minimum(each.min(axis=1), censored)
    cause = np.where(censored < each.min(axis=1), 0, 1 + each.argmin(axis=1))
    return rate, (np.ceil(time), cause)


def predicted_rows(n, seed=0, digits=1):
    """Rounded times, so that events and censorings tie, and predictions of survival with some error."""
    rng = np.random.default_rng(seed)
    score = rng.normal(size=n)
    failed, left = rng.exponential(np.exp(-score)), rng.exponential(2.0, n)
    time = np.maximum(np.round(np.minimum(failed, left), digits), 0.1)
    return time, failed <= left, np.exp(-np.exp(0.8 * score + 0.2))

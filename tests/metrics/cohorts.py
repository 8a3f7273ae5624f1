"""Rows with heavy ties, curves on their times, models of known hazards; plain loops, and peers."""

import itertools
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import strategies as st
from scipy.special import logit
from scipy.stats import norm
from scipy.stats import t as student
from sklearn.base import BaseEstimator

from sstorch.exceptions import DataError


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


def tied_rows(seed=0, n=70):
    """Whole times, so that events of two causes, censorings and entries tie; the last is no event."""
    rng = np.random.default_rng(seed)
    risk = rng.normal(size=n).round(1)
    time = np.ceil(8 * rng.exponential(np.exp(-0.7 * risk))).clip(max=25)
    return {
        "time": time,
        "code": np.where(time < 25, rng.integers(0, 3, n), 0),
        "entry": np.floor(time * rng.choice([0, 0, 0.3, 0.8], n)),
        "risk": risk,
        "group": rng.integers(0, 3, n),
        "stratum": rng.integers(0, 2, n),
        "weight": rng.integers(1, 4, n).astype(float),
    }


def predicted_rows(n, seed=0, digits=1):
    """Rounded times, so that events and censorings tie, and predictions of survival with some error."""
    rng = np.random.default_rng(seed)
    score = rng.normal(size=n)
    failed, left = rng.exponential(np.exp(-score)), rng.exponential(2.0, n)
    time = np.maximum(np.round(np.minimum(failed, left), digits), 0.1)
    return time, failed <= left, np.exp(-np.exp(0.8 * score + 0.2))


# The scale on which the limits of a measure are symmetric, and its derivative.
SCALES = {
    **dict.fromkeys(
        ("c_harrell_t", "c_uno_t", "c_cause_specific", "auc", "brier"),
        (logit, lambda value: 1 / (value * (1 - value))),
    ),
    "scaled_brier": (lambda value: -np.log(1 - value), lambda value: 1 / (1 - value)),
    "oe_ratio": (np.log, lambda value: 1 / value),
}


def error_of_limits(name, value, lower, upper, n_subjects):
    """The standard error that limits of 95 % are made of, from both of them."""
    quantile = student.ppf(0.975, n_subjects - 1) if "brier" in name else norm.ppf(0.975)
    scale, slope = SCALES.get(name, (lambda value: value, lambda value: 1.0))
    half = [scale(upper) - scale(value), scale(value) - scale(lower)]
    assert half[0] == pytest.approx(half[1], rel=1e-6)
    return half[0] / slope(value) / quantile


SKSURV = "scikit-survival is the oracle (extra 'baselines')"


def g_by_loops(rows, t, left, weight=None):
    """G(t) or G(t-) of times and events or causes: at each time events leave, then censorings."""
    time, code = rows
    g, weight = 1.0, np.ones(len(time)) if weight is None else weight
    for u in np.unique(time[code == 0]):
        if u < t or (u == t and not left):
            censored = (code == 0) & (time == u)
            g *= 1 - weight[censored].sum() / weight[(time > u) | censored].sum()
    return g


def last_positive_g(train):
    positive = [g_by_loops(train, u, left=False) for u in train.time]
    return min([g for g in positive if g > 0], default=1.0)


def concordance_by_loops(
    time,
    event,
    value_at,
    *,
    tied_time="exclude",
    tau=np.inf,
    pair_weight=lambda i, j: 1.0,
):
    """The formula: value_at(j, t) is the survival of row j at t (or minus its risk); None without a pair."""
    pairs = total = 0.0
    for i, j in itertools.permutations(range(len(time)), 2):
        later = time[i] < time[j]
        if time[i] == time[j] and (tied_time == "all" or (tied_time == "censored_later" and not event[j])):
            later = True
        if event[i] and later and time[i] < tau:
            own, other = value_at(i, time[i]), value_at(j, time[i])
            weight = pair_weight(i, j)
            pairs += weight
            total += weight * ((own < other) + 0.5 * (own == other))
    return total / pairs if pairs else None


def step_value(survival, times):
    def value(row, t):
        before = [k for k in range(len(times)) if times[k] <= t]
        return survival[row][before[-1]] if before else 1.0

    return value


def or_no_pair(function, *args, **kwargs):
    """The value, or None where there is no comparable pair."""
    try:
        return function(*args, **kwargs)
    except DataError as error:
        if "no comparable pair" not in str(error):
            raise
        return None


def study(n=90, n_train=150, seed=3, scale=1.0):
    """Continuous times in a unit; training rows are observed longer than all test rows."""
    rng = np.random.default_rng(seed)
    life, censoring = scale * rng.weibull(1.3, n + n_train), scale * rng.uniform(0.2, 2.5, n + n_train)
    time, event = np.minimum(life, censoring), life <= censoring
    order = np.argsort(time)
    test = np.sort(order[rng.choice(n + n_train - 5, n, replace=False)])
    train = np.setdiff1d(order, test)
    return time[test], event[test], (time[train], event[train])


def untied(rows):
    """Censorings a moment later, so that none ties with an event."""
    return rows._replace(time=np.where(rows.event, rows.time, rows.time + 0.25))


def structured(time, event):
    return np.array(list(zip(event, time, strict=True)), dtype=[("event", bool), ("time", float)])


def sksurv_metrics():
    return pytest.importorskip("sksurv.metrics", reason=SKSURV)

"""Plain loops over rows and pairs, and peers called as their users call them."""

import itertools

import numpy as np
import pytest
from scipy.special import logit
from scipy.stats import norm
from scipy.stats import t as student

from sstorch.exceptions import DataError

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


def g_by_loops(train, t, left):
    """G(t) or G(t-), in the order: at each time events leave, then censorings."""
    g = 1.0
    for u in sorted(set(train.time)):
        if u < t or (u == t and not left):
            events = sum(1 for a, c in zip(*train, strict=True) if a == u and c)
            censored = sum(1 for a, c in zip(*train, strict=True) if a == u and not c)
            at_risk = sum(1 for a in train.time if a >= u) - events
            g *= 1 - censored / at_risk if at_risk else 1.0
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

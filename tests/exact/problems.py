"""Random problems of every additive task, with the cost of a leaf by plain loops."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from sstorch.exact import (
    Classification,
    DecisionCosts,
    FeatureCosts,
    IntegratedBrier,
    LeastSquares,
    LogLikelihood,
    log,
)
from tests.exact import reference


@dataclass
class Case:
    """A task, the cost of a leaf of some rows, and of a row for a test below others."""

    features: Any
    task: Any
    cost: Callable[..., float]
    pay: Callable[..., float] | None = None


def survival_rows(rng, n):
    """Times, some tied, causes 0 to 2, entry times and weights."""
    time = rng.integers(1, 9, n) * 1.0 if rng.random() < 0.5 else rng.exponential(3.0, n).round(2) + 0.01
    cause = np.where(rng.random(n) < rng.uniform(0.3, 1.0), rng.integers(1, 3, n), 0)
    cause[time.argmin()] = 1
    cause[time.argmax() if time.argmax() != time.argmin() else -1] = 2
    time[-1] += 5.0
    time = time.round(2)  # equal times are equal to the last digit: loops do not take near ones as tied
    weight = rng.lognormal(sigma=1.5, size=n) * 10.0 ** rng.integers(-3, 4)
    return time, cause, np.floor(rng.uniform(0, 0.9, n) * time), weight


def survival(kind):
    def make(rng, features):
        time, cause, entry, weight = survival_rows(rng, len(features))
        t, e, w = time.tolist(), entry.tolist(), weight.tolist()
        event = cause > 0
        if kind == "entry":
            hazard = reference.exposures(t, event.tolist(), e, w)
            task = LogLikelihood(time, event, entry=entry, sample_weight=weight)
        elif kind == "weights":
            hazard = reference.hazards(t, event.tolist(), w)
            task = LogLikelihood(time, event, sample_weight=weight)
        else:
            hazard, w = reference.hazards(t, event.tolist()), None
            task = LogLikelihood(time, event)
        return Case(features, task, lambda rows: reference.deviance(rows, t, event.tolist(), hazard, w))

    return make


def causes(rng, features):
    time, cause, _, weight = survival_rows(rng, len(features))
    t, w = time.tolist(), weight.tolist()
    events = [(cause == k).tolist() for k in (1, 2)]
    hazards = [reference.hazards(t, event, w) for event in events]

    def cost(rows):
        parts = zip(events, hazards, strict=True)
        return sum(reference.deviance(rows, t, event, hazard, w) for event, hazard in parts)

    return Case(features, LogLikelihood(time, cause, n_causes=2, sample_weight=weight), cost)


def brier(weighted):
    def make(rng, features):
        time, cause, _, weight = survival_rows(rng, len(features))
        t, event, w = time.tolist(), (cause > 0).tolist(), weight.tolist() if weighted else None
        task = IntegratedBrier(time, cause > 0, sample_weight=w)
        return Case(features, task, lambda rows: reference.brier(rows, t, event, w))

    return make


def labels_of(rng, n, n_classes):
    return np.concatenate([np.arange(n_classes), rng.integers(0, n_classes, n - n_classes)])


def errors(rng, features):
    n = len(features)
    labels = labels_of(rng, n, 2)
    cost = lambda rows: reference.class_cost(rows, labels, np.ones(n), [[0, 1], [1, 0]]) / n  # noqa: E731
    return Case(features, Classification(labels), cost)


def balanced(rng, features):
    labels = labels_of(rng, len(features), 3)
    weight, matrix = 1 / 3 / np.bincount(labels)[labels], 1 - np.eye(3)
    cost = lambda rows: reference.class_cost(rows, labels, weight, matrix)  # noqa: E731
    return Case(features, Classification(labels, balanced=True), cost)


def weighted_costs(rng, features):
    labels = labels_of(rng, len(features), 3)
    weight, matrix = rng.exponential(1.0, len(features)), rng.integers(0, 9, (3, 3)) / 4
    task = Classification(labels, sample_weight=weight, cost_matrix=matrix)
    total = weight.sum()
    return Case(features, task, lambda rows: reference.class_cost(rows, labels, weight, matrix) / total)


def treatments(rng, features):
    n = len(features)
    scores = rng.normal(size=(n, 3))
    return Case(features, DecisionCosts(-scores), lambda rows: reference.treatment_cost(rows, scores) / n)


def means(rng, features):
    n = len(features)
    y, weight = 1e3 + rng.normal(size=n) * 50, rng.integers(0, 3, n).astype(float)
    weight[0] = 1.0
    task = LeastSquares(y, sample_weight=weight)
    return Case(features, task, lambda rows: reference.squared_cost(rows, y, weight) / weight.sum())


def tests_that_cost(rng, features):
    n, p = features.shape
    labels, matrix = labels_of(rng, n, 2), [[0.0, 3.0], [5.0, 0.5]]
    full = rng.uniform(0, 1.0, 3)
    costs = FeatureCosts(rng.integers(0, 3, p), full, full * rng.uniform(0, 1, 3), rng.integers(-1, 1, 3))
    state = costs.price, costs.discounted, costs.group
    return Case(
        features,
        Classification(labels, cost_matrix=matrix, feature_costs=costs),
        lambda rows: reference.class_cost(rows, labels, np.ones(n), matrix) / n,
        lambda above, column: reference.price(costs.attribute, above, column, *state) / n,
    )


class Rates:
    """A task of its own: constant event rates, minus the log-likelihood."""

    constant = 0.0

    def __init__(self, years, events):
        self.years, self.events, self.n_rows = years, events, len(years)

    def row_values(self):
        return np.stack([self.events, self.years])

    @staticmethod
    def leaf_cost(sums, i):
        events, years = sums[0, i], sums[1, i]
        return events - events * log(max(events, 1e-290) / max(years, 1e-290))

    def loss(self, leaf):
        rate = self.decisions(leaf, leaf.max() + 1)[leaf]
        hit = self.events > 0
        return float((rate * self.years).sum() - (self.events * np.log(np.where(hit, rate, 1.0))).sum())

    def decisions(self, leaf, n_leaves):
        return np.bincount(leaf, self.events, n_leaves) / np.bincount(leaf, self.years, n_leaves)


def rates(rng, features):
    n = len(features)
    years, events = rng.exponential(1.0, n) + 0.1, rng.poisson(1.0, n) * 1.0

    def cost(rows):
        d, y = (sum(values[i] for i in rows) for values in (events, years))
        return d - (d * np.log(d / y) if d else 0.0)

    return Case(features, Rates(years, events), cost)


TASKS = {
    "log_likelihood": survival("plain"),
    "weighted log_likelihood": survival("weights"),
    "log_likelihood with entry": survival("entry"),
    "causes": causes,
    "integrated_brier": brier(False),
    "weighted integrated_brier": brier(True),
    "errors": errors,
    "balanced": balanced,
    "weighted_costs": weighted_costs,
    "treatments": treatments,
    "means": means,
    "tests_that_cost": tests_that_cost,
    "rates": rates,
}


def random_case(name, seed):
    """A case of a task, and the generator."""
    features, rng = reference.random_features(seed)
    return TASKS[name](rng, features), rng

"""Limits by the infinitesimal jackknife, against derivatives by differences of plain weighted loops."""

from collections.abc import Callable

import numpy as np
import pytest

from sstorch.exceptions import ConfigError, DataError
from sstorch.metrics import HorizonRows, measure

from .oracles import error_of_limits

T = 1.2
Array = np.ndarray


def _cohort(n: int, seed: int = 0, digits: int = 1) -> tuple[Array, Array, Array]:
    """Times that tie, events with censorings too, and predictions that tie."""
    rng = np.random.default_rng(seed)
    score = rng.normal(size=n)
    failed, left = rng.exponential(np.exp(-score)), rng.exponential(1.5, n)
    time = np.maximum(np.round(np.minimum(failed, left), digits), 0.1)
    return time, failed <= left, np.clip(np.round(np.exp(-np.exp(score)), 1), 0.05, 0.95)


def _product_limit(
    time: Array,
    leaves: Array,
    at_risk: Callable[[float], Array],
    weight: Array,
    until: Callable[[Array], Array],
) -> float:
    """Weighted Kaplan-Meier over the times that `until` marks, by its formula."""
    value = 1.0
    for u in np.unique(time[leaves]):
        if until(np.array([u]))[0]:
            value *= 1.0 - weight[leaves & (time == u)].sum() / weight[at_risk(u)].sum()
    return value


def _g(time: Array, event: Array, weight: Array, t: float, *, before: bool) -> float:
    """G(t), or G(t-): an event leaves before a censoring at its time."""
    at_risk = lambda u: (time > u) | (~event & (time == u))  # noqa: E731
    return _product_limit(time, ~event, at_risk, weight, lambda u: (u < t) if before else (u <= t))


def _concordance(uno: bool) -> Callable[..., float]:
    def value(time: Array, event: Array, survival: Array, weight: Array) -> float:
        right = total = 0.0
        for i in np.flatnonzero(event & (time <= T)):
            g = _g(time, event, weight, time[i], before=True) if uno else 1.0
            for j in range(time.size):
                if time[j] > time[i] or (time[j] == time[i] and not event[j]):
                    pair = weight[i] * weight[j] / g**2
                    right += pair * ((survival[i] < survival[j]) + 0.5 * (survival[i] == survival[j]))
                    total += pair
        return right / total

    return value


def _auc(time: Array, event: Array, survival: Array, weight: Array) -> float:
    right = total = 0.0
    for i in np.flatnonzero(event & (time <= T)):
        g = _g(time, event, weight, time[i], before=True)
        for j in np.flatnonzero(time > T):
            pair = weight[i] * weight[j] / g
            right += pair * ((survival[i] < survival[j]) + 0.5 * (survival[i] == survival[j]))
            total += pair
    return right / total


def _brier(time: Array, event: Array, survival: Array, weight: Array) -> float:
    total, at_t = 0.0, _g(time, event, weight, T, before=False)
    for i in range(time.size):
        if time[i] > T:
            total += weight[i] * (1.0 - survival[i]) ** 2 / at_t
        elif event[i]:
            total += weight[i] * survival[i] ** 2 / _g(time, event, weight, time[i], before=True)
    return total / weight.sum()


def _scaled_brier(time: Array, event: Array, survival: Array, weight: Array) -> float:
    at_t = _product_limit(time, event, lambda u: time >= u, weight, lambda u: u <= T)
    reference = np.full(time.size, at_t)
    return 1.0 - _brier(time, event, survival, weight) / _brier(time, event, reference, weight)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize(
    ("name", "plain"),
    [
        ("c_harrell_t", _concordance(uno=False)),
        ("c_uno_t", _concordance(uno=True)),
        ("auc", _auc),
        ("brier", _brier),
        ("scaled_brier", _scaled_brier),
    ],
)
def test_value_and_error_are_those_of_a_plain_loop(
    name: str, plain: Callable[..., float], weighted: bool
) -> None:
    rows, step = _cohort(28), 1e-5
    weight = np.random.default_rng(1).uniform(0.3, 3.0, 28) if weighted else np.ones(28)
    influence = [
        (plain(*rows, weight + step * unit) - plain(*rows, weight - step * unit)) / (2.0 * step)
        for unit in np.diag(weight)
    ]
    given = HorizonRows.of(rows[:2], rows[2], T, sample_weight=weight if weighted else None)
    estimate = measure(given, name)
    assert estimate.value == pytest.approx(plain(*rows, weight), abs=1e-12)
    error = float(np.sqrt(np.square(influence).sum()))
    assert error_of_limits(name, *estimate, n_subjects=28) == pytest.approx(error, rel=1e-6)


@pytest.mark.nightly
def test_limits_hold_what_they_say() -> None:
    """The true AUC and Brier score, of a million rows, are within the limits of 95 % of 500 samples."""
    everybody = _cohort(400_000, seed=2, digits=6)
    uncensored = np.random.default_rng(2)
    score = uncensored.normal(size=1_000_000)
    failed = uncensored.exponential(np.exp(-score))
    survival = np.clip(np.round(np.exp(-np.exp(score)), 1), 0.05, 0.95)
    truth = {
        "brier": np.mean(((failed > T) - survival) ** 2),
        "auc": measure(HorizonRows.of((failed, np.ones(failed.size, dtype=bool)), survival, T), "auc").value,
    }
    held = dict.fromkeys(truth, 0)
    for start in range(0, 500 * 300, 300):
        rows = tuple(part[start : start + 300] for part in everybody)
        for name in truth:
            estimate = measure(HorizonRows.of(rows[:2], rows[2], T), name)
            held[name] += estimate.lower <= truth[name] <= estimate.upper
    assert all(0.92 <= count / 500 <= 0.98 for count in held.values()), held


def test_concordance_and_auc_of_one_have_no_limits() -> None:
    time, survival = np.arange(1.0, 11.0), np.linspace(0.05, 0.95, 10)
    one_event = np.arange(10) == 0
    for estimate in (
        measure(HorizonRows.of((time, np.ones(10)), survival, 5.5), "c_harrell_t"),
        measure(HorizonRows.of((time, one_event), survival, 5.5), "c_harrell_t"),
        measure(HorizonRows.of((time, np.ones(10)), survival, 5.5), "c_uno_t"),
        measure(HorizonRows.of((time, np.ones(10)), survival, 1.0), "auc"),
    ):
        assert estimate.value == 1.0
        assert np.isnan(estimate[1:]).all()


def test_one_event_or_one_case_or_one_control_has_no_limits() -> None:
    """The variance between events cannot be estimated from one; that of the other rows is not all of it."""
    time, survival = np.arange(1.0, 11.0), np.linspace(0.05, 0.95, 10)[[*range(3, 10), 0, 1, 2]]
    one_event = (time, np.arange(10) == 0)
    for estimate in (
        measure(HorizonRows.of(one_event, survival, 5.5), "c_harrell_t"),
        measure(HorizonRows.of(one_event, survival, 5.5), "auc"),
        measure(HorizonRows.of((time, np.ones(10)), survival, 9.5), "auc"),
    ):
        assert 0.0 < estimate.value < 1.0
        assert np.isnan(estimate[1:]).all()


def test_what_is_refused() -> None:
    rows = ([1.0, 2.0, 3.0], [0, 1, 0]), [0.5, 0.6, 0.7]
    with pytest.raises(DataError, match="no comparable pair"):
        measure(HorizonRows.of(*rows, 1.5), "c_harrell_t")
    for name, words in (("c_both", "name must be one of"), ("c_wolbers", "bootstrap")):
        with pytest.raises(ConfigError, match=words):
            measure(HorizonRows.of(*rows, 2.5), name)
    with pytest.raises(DataError, match="cases and controls"):
        measure(HorizonRows.of(*rows, 3.0), "auc")
    with pytest.raises(DataError, match="Kaplan-Meier makes no error"):
        measure(HorizonRows.of(*rows, 1.5), "scaled_brier")
    with pytest.raises(ConfigError, match="level"):
        measure(HorizonRows.of(*rows, 2.5), "brier", level=1.0)

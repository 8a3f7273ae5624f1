"""Aalen and Johansen's estimate: by hand, against Kaplan-Meier, scikit-survival and counting; its errors."""

import numpy as np
import pytest

from sstorch import Surv
from sstorch.exceptions import DataError
from sstorch.metrics import aalen_johansen, aalen_johansen_error


def by_hand(time: np.ndarray, cause: np.ndarray, times: np.ndarray, entry: np.ndarray) -> np.ndarray:
    """One step after the other, as the definition has it."""
    survival, incidence = 1.0, np.zeros(cause.max())
    found = []
    for t in np.unique(np.concatenate([time, times])):
        n = ((entry < t) & (time >= t)).sum()
        events = np.array([((time == t) & (cause == k + 1)).sum() for k in range(len(incidence))])
        if n:
            incidence = incidence + survival * events / n
            survival *= 1 - events.sum() / n
        if t in times:
            found.append(incidence)
    return np.array(found).T


def _rows(n: int, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    time = np.ceil(rng.exponential(20, n))
    return time, rng.integers(0, 4, n), np.floor(rng.uniform(0, 1, n) * time * 0.9)


@pytest.mark.parametrize("late", [False, True])
def test_it_is_the_definition(late: bool) -> None:
    time, cause, entry = _rows(200, 1)
    entry = entry if late else np.zeros(200)
    times = np.unique(np.r_[0.0, time, 3.5, 200.0])
    found = aalen_johansen(Surv(time, cause, causes="auto", entry=entry if late else None), times)
    np.testing.assert_allclose(found, by_hand(time, cause, times, entry), atol=1e-14)


@pytest.mark.nightly
def test_scikit_survival_gives_the_same() -> None:
    nonparametric = pytest.importorskip("sksurv.nonparametric")
    time, cause, _ = _rows(300, 2)
    at, expected = nonparametric.cumulative_incidence_competing_risks(cause, time)
    np.testing.assert_allclose(aalen_johansen((time, cause), at), expected[1:], atol=1e-14)


def test_no_event_and_wrong_codes() -> None:
    assert (aalen_johansen(([1.0, 2.0], [0, 0]), [1.0], n_causes=2) == 0).all()
    with pytest.raises(DataError, match=r"the number of a cause, 1 .. 2, got 3 in 1 row"):
        aalen_johansen(([1.0, 2.0], [0, 3]), [1.0], n_causes=2)
    with pytest.raises(DataError, match="cause must have 2 rows"):
        aalen_johansen(([1.0, 2.0], [0]), [1.0])
    with pytest.raises(DataError, match="time: NaN in 1 row"):
        aalen_johansen(([1.0, np.nan], [0, 1]), [1.0])


def _by_derivatives(time: np.ndarray, cause: np.ndarray, times: np.ndarray) -> np.ndarray:
    """Errors by differences of weighted estimates."""
    step, each = 1e-5, np.eye(len(time))
    above, below = (
        np.array([aalen_johansen((time, cause), times, sample_weight=1 + h * row) for row in each])
        for h in (step, -step)
    )
    return np.sqrt((((above - below) / (2 * step)) ** 2).sum(axis=0))


@pytest.mark.parametrize("last_is_event", [False, True])
def test_errors_are_derivatives_with_respect_to_weights(last_is_event: bool) -> None:
    time, cause, _ = _rows(60, 4)
    cause[time.argmax()] = int(last_is_event)
    times = np.r_[0.5, np.unique(time)[:-1], time.max(), 200.0]
    found = aalen_johansen_error((time, cause), times)
    np.testing.assert_allclose(found, _by_derivatives(time, cause, times), atol=1e-9)
    assert (found[:, 0] == 0).all()


def test_the_error_of_one_cause_is_greenwoods() -> None:
    time, cause, _ = _rows(100, 5)
    times = np.unique(time)[:-4]
    at_risk, events = np.array([[(time >= t).sum(), ((time == t) & (cause > 0)).sum()] for t in times]).T
    survival = np.cumprod(1 - events / at_risk)
    greenwood = survival * np.sqrt(np.cumsum(events / (at_risk * (at_risk - events))))
    np.testing.assert_allclose(aalen_johansen_error((time, cause > 0), times)[0], greenwood, rtol=1e-12)

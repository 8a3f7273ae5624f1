"""Aalen and Johansen's estimate: by hand, against Kaplan-Meier, scikit-survival and counting."""

import numpy as np
import pytest

from sstorch.exceptions import DataError
from sstorch.metrics import aalen_johansen


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
    found = aalen_johansen(time, cause, times, entry=entry if late else None)
    np.testing.assert_allclose(found, by_hand(time, cause, times, entry), atol=1e-14)


def test_scikit_survival_gives_the_same() -> None:
    nonparametric = pytest.importorskip("sksurv.nonparametric")
    time, cause, _ = _rows(300, 2)
    at, expected = nonparametric.cumulative_incidence_competing_risks(cause, time)
    np.testing.assert_allclose(aalen_johansen(time, cause, at), expected[1:], atol=1e-14)


def test_weights_are_repetitions() -> None:
    time, cause, _ = _rows(100, 3)
    count = np.random.default_rng(0).integers(0, 4, 100)
    times = np.arange(0.0, 60.0)
    np.testing.assert_allclose(
        aalen_johansen(time, cause, times, 3, sample_weight=count),
        aalen_johansen(np.repeat(time, count), np.repeat(cause, count), times, 3),
        atol=1e-14,
    )


def test_no_event_and_wrong_codes() -> None:
    assert (aalen_johansen([1.0, 2.0], [0, 0], [1.0], 2) == 0).all()
    with pytest.raises(DataError, match="no number from 0 to 2"):
        aalen_johansen([1.0, 2.0], [0, 3], [1.0], 2)
    with pytest.raises(DataError, match="one of each"):
        aalen_johansen([1.0, 2.0], [0], [1.0])

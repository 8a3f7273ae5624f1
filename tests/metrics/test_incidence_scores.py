"""Scores of incidences: by their definitions, pair by pair, and against hazardous."""

import numpy as np
import pytest

from sstorch.exceptions import DataError
from sstorch.metrics import (
    aalen_johansen,
    brier_score,
    concordance_harrell,
    concordance_wolbers,
    integrated_brier_score,
)
from sstorch.metrics.distribution import aalen_johansen_distance
from sstorch.metrics.outcome import read_rows

TIMES = np.array([2.0, 5.0, 9.0, 14.0])
Rows = tuple[np.ndarray, np.ndarray]


def draw(n: int, rng: np.random.Generator, ties: bool = False) -> Rows:
    first, second, censored = rng.exponential(10, n), rng.exponential(15, n), rng.uniform(1, 30, n)
    time = np.minimum(np.minimum(first, second), censored)
    cause = np.where(censored < np.minimum(first, second), 0, np.where(first < second, 1, 2))
    return (np.ceil(time) if ties else time), cause


@pytest.fixture(scope="module")
def cohort() -> tuple[Rows, Rows, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(5)
    train, test = draw(150, rng), draw(120, rng)
    risk = rng.uniform(size=120)
    return train, test, risk, np.clip(risk[:, None] * (1 - np.exp(-TIMES / 12)), 0, 1)


# hazardous 0.2.0 on the same rows: brier_score_incidence, integrated_brier_score_incidence at TIMES, and
# concordance_index_incidence(taus=[9.0]) with and without Kaplan-Meier's weights.
HAZARDOUS = {
    1: (
        [0.18134889060478018, 0.2788750346825251, 0.3344251302564069, 0.34373154800000855],
        0.30102732612082167,
        0.51806316,
        0.52397981,
    ),
    2: (
        [0.09499110538960157, 0.17720249359566895, 0.2076613598369375, 0.2600781767704608],
        0.19561391223846789,
        0.4947865,
        0.48713491,
    ),
}


@pytest.mark.parametrize("which", [1, 2])
def test_hazardous_gives_the_same(which: int, cohort: tuple[Rows, Rows, np.ndarray, np.ndarray]) -> None:
    train, test, _, incidence = cohort
    brier, integrated, weighted, plain = HAZARDOUS[which]
    found = brier_score(test, 1 - incidence, TIMES, cause=which, train=train)
    np.testing.assert_allclose(found, brier, rtol=1e-12)
    mean = integrated_brier_score(
        test, 1 - incidence, TIMES, cause=which, train=train, convention="trapezoid"
    )
    assert mean == pytest.approx(integrated, rel=1e-12)
    risk = incidence[:, 2]
    found = concordance_wolbers(test, risk, which, tau=9.0, train=train)
    assert found == pytest.approx(weighted, abs=1e-8)
    assert concordance_wolbers(test, risk, which, tau=9.0) == pytest.approx(plain, abs=1e-8)


# concordance_index_cr of comprisk 0.8.0 on the same rows, and with times rounded up: of causes 1 and 2, each
# with the risk and the risk rounded to tenths.
COMPRISK = [0.5353329944077275, 0.5330452465683783, 0.4928956393924547, 0.49093581577658013]
COMPRISK_TIED = [0.5367476851851852, 0.5353009259259259, 0.49201981287837093, 0.4887176664832141]


def test_comprisk_gives_the_cause_specific_concordance(
    cohort: tuple[Rows, Rows, np.ndarray, np.ndarray],
) -> None:
    _, (time, cause), risk, _ = cohort
    for at, expected in ((time, COMPRISK), (np.ceil(time), COMPRISK_TIED)):
        found = [concordance_harrell((at, cause), r, cause=k) for k in (1, 2) for r in (risk, risk.round(1))]
        np.testing.assert_allclose(found, expected, rtol=1e-14)


# aj_calibration_per_event of hazardous 0.2.0 at 0 and TIMES, by alpha and min_prop_at_risk.
DISTANCES = {
    (1, 0.05): [0.1883334970577658, 0.03293846054244811],
    (1, 0.4): [0.06693493936660008, 0.012354706416892021],
    (2, 0.05): [0.04292422000638146, 0.0014983907484465043],
    (2, 0.4): [0.00896057221602086, 0.00030527754129518577],
}


def test_distance_from_aalen_johansen(cohort: tuple[Rows, Rows, np.ndarray, np.ndarray]) -> None:
    _, (time, cause), _, incidence = cohort
    rows = read_rows((time, cause), "a distance", causes=True)
    for (power, share), expected in DISTANCES.items():
        for k in (1, 2):
            found = aalen_johansen_distance(rows, 1 - incidence, np.array(TIMES), k, power, share)
            assert found == pytest.approx(expected[k - 1], rel=1e-12)
    observed = np.broadcast_to(aalen_johansen((time, cause), TIMES)[0], (120, 4))
    assert aalen_johansen_distance(rows, 1 - observed, np.array(TIMES), 1) < 1e-30
    with pytest.raises(DataError, match="at none of them 99%"):
        aalen_johansen_distance(rows, 1 - observed[:, 3:], np.array([9.0]), 1, least=0.99)


def test_what_is_refused(cohort: tuple[Rows, Rows, np.ndarray, np.ndarray]) -> None:
    train, (time, cause), risk, incidence = cohort
    with pytest.raises(DataError, match="no comparable pair"):
        concordance_wolbers((time, cause), risk, 3)
    with pytest.raises(DataError, match="cause must be 0"):
        brier_score((time, cause + 0.5), 1 - incidence, TIMES, train=train, cause=1)
    with pytest.raises(DataError, match="cause must have 120 rows"):
        concordance_harrell((time, cause[:3]), risk, cause=1)
    with pytest.raises(DataError, match="they increase in 120 rows"):
        brier_score((time, cause), incidence, TIMES, train=train, cause=1)
    with pytest.raises(DataError, match=r"must be probabilities in \[0, 1\]"):
        brier_score((time, cause), 1 - incidence + 2, TIMES, train=train, cause=1)
    with pytest.raises(DataError, match="needs two times"):
        integrated_brier_score(
            (time, cause), incidence[:, :1], TIMES[:1], train=train, cause=1, convention="trapezoid"
        )

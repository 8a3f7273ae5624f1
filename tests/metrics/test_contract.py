"""The contract of every metric: orders, units, scales of weights, counts, rows cut in two, one cause."""

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

from .cohorts import tied_rows

Array, Rows = np.ndarray, pd.DataFrame
UNIT, GRID = 365.25, np.arange(1.0, 26.0)
HORIZON = 8  # its place in the grid


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


def outcome(rows: Rows, kind: str) -> Surv:
    """One event or, with "causes", two; with "entry"; with "plain" without weights."""
    time, code, entry, weight = rows[["time", "code", "entry", "weight"]].to_numpy().T
    given = {"entry": entry, "id": rows.get("id")} if "entry" in kind else {}
    given |= {"causes": ("a", "b")} if "causes" in kind else {}
    code = code.astype(int) if "causes" in kind else code > 0
    return Surv(time, code, weight=None if "plain" in kind else weight, **given)


class Model:
    """Curves of rows at times in the unit of a grid."""

    def __init__(self, grid: Array) -> None:
        self.rate = 1 / 8 / grid[0]

    def predict_survival_function(self, X: Rows, times: Any) -> Array:
        return np.exp(-np.outer(np.exp(0.7 * X["risk"].to_numpy()) * self.rate, times))

    def predict_cumulative_incidence(self, X: Rows, times: Any) -> Array:
        curves = self.predict_survival_function(X, times)
        return np.stack([0.6 * (1 - curves), 0.3 * (1 - curves**2)], axis=1)


def curves(rows: Rows, grid: Array) -> Array:
    return Model(grid).predict_survival_function(rows, grid)


Metric = Callable[[Surv, Rows, Array], Any]  # of an outcome, its rows and the grid


def of_model(*names: str) -> Metric:
    return lambda y, rows, grid: evaluate(Model(grid), (rows, y), (rows, y), metrics=names or None)["value"]


def of_incidences(y: Surv, rows: Rows, grid: Array) -> Any:
    given = Model(grid).predict_cumulative_incidence(rows, grid[2:12:3]), grid[2:12:3]
    return evaluate(given, (None, y), (None, y))["value"]


def pairs(*ties: str) -> Metric:
    return lambda y, rows, grid: [
        concordance_harrell(y, *given, tied_time=tied)
        for given in ((curves(rows, grid), grid), (rows["risk"],))
        for tied in ties
    ]


def at_horizon(name: str, limits: bool = False) -> Metric:
    def found(y: Surv, rows: Rows, grid: Array) -> Any:
        cause = None if y.causes is None else 2
        given = HorizonRows.of(y, curves(rows, grid)[:, HORIZON], grid[HORIZON], cause=cause)
        return measure(given, name) if limits else MEASURES[name].of(given)

    return found


OF_HORIZON = [
    (name, kind)
    for name, known in MEASURES.items()
    for kind in ("", "causes")
    if known.defined_for(kind == "causes") and name not in ("e50", "e90", "e_max")  # as "ici"
]
NO_WEIGHTS = ("d_calibration_p", "ici_pseudo")
OF_EVENTS = [name for name in names_of("event") if name not in (*NO_WEIGHTS, "negative_log_likelihood")]
LATE = "entry causes"
# By name: kind of outcome, metric. Whole weights are repeated rows.
VALUES: dict[str, tuple[str, Metric]] = {
    "evaluate": ("", of_model(*OF_EVENTS, "ibs_graf_own")),
    "evaluate late": ("entry", of_model("c_harrell")),
    "incidences": ("causes", of_incidences),
    "concordance": ("", pairs("exclude", "censored_later")),
    "concordance late": ("entry", pairs("exclude", "censored_later")),
    "groups": ("entry", lambda y, rows, _: concordance_of_groups(y, rows["group"], train=(y, rows["group"]))),
    "survival": ("entry", lambda y, _, grid: KaplanMeier.fit(y).at(grid)),
    "censoring": ("entry", lambda y, _, grid: censoring_distribution(y).at(grid)),
    "censoring at risk": (
        "entry",
        lambda y, _, grid: censoring_distribution(y, tied_events="at_risk").at(grid),
    ),
    "incidence": (LATE, lambda y, _, grid: aalen_johansen(y, grid)),
    "follow-up": ("entry", lambda y, _, grid: median_follow_up(y).value / grid[0]),
    "net benefit": (
        "",
        lambda y, rows, grid: net_benefit(
            y, curves(rows, grid)[:, HORIZON], t=grid[HORIZON], thresholds=[0.2, 0.5]
        )["net_benefit"],
    ),
} | {f"{name} {kind}": (kind, at_horizon(name)) for name, kind in OF_HORIZON if name != "ici"}
# Copies of a row tie, and are subjects of their own in limits and tests.
OF_SUBJECTS: dict[str, tuple[str, Metric]] = {
    "concordance ties": ("entry", pairs("all")),
    "evaluate ties": ("", of_model("c_harrell_ties")),
    "evaluate causes": ("causes", of_model()),  # at quantiles of the times of rows
    "limits": ("entry", lambda y, _, grid: KaplanMeier.fit(y).limits(grid)),
    "quantile": ("entry", lambda y, _, grid: np.array(KaplanMeier.fit(y).quantile(0.3)) / grid[0]),
    "error": (LATE, lambda y, _, grid: aalen_johansen_error(y, grid)),
    "logrank": ("entry", lambda y, rows, _: logrank_test(y, rows["group"])),
    "logrank strata": ("entry", lambda y, rows, _: logrank_test(y, rows["group"], strata=rows["stratum"])),
    "gray": (LATE, lambda y, rows, _: gray_test(y, rows["group"])),
    "gray strata": (LATE, lambda y, rows, _: gray_test(y, rows["group"], strata=rows["stratum"])),
} | {
    f"limits {name} {kind}": (kind, at_horizon(name, limits=True))
    for name, kind in OF_HORIZON
    if name != "c_wolbers"
}
PLAIN: dict[str, tuple[str, Metric]] = {
    "evaluate plain": ("plain", of_model(*NO_WEIGHTS)),
    "d_calibration": ("plain", lambda y, rows, grid: d_calibration(y, curves(rows, grid), grid).p_value),
    "scores of groups": (
        "entry plain",
        lambda y, rows, grid: group_scores(
            y, curves(rows, grid), grid, rows["group"], tau=grid[HORIZON], n_groups=3
        )["c_harrell"],
    ),
}
CELLS = [
    pytest.param(kind, metric, change, id=f"{name}-{change}")
    for table, without in ((VALUES, ()), (OF_SUBJECTS, ("counts",)), (PLAIN, ("counts", "scale", "zero")))
    for name, (kind, metric) in table.items()
    for change in CHANGES
    if change not in without and (change != "cut" or "entry" in kind)
]


@pytest.mark.parametrize(("kind", "metric", "change"), CELLS)
def test_equal_rows_have_equal_metrics(kind: str, metric: Metric, change: str) -> None:
    rows = pd.DataFrame(tied_rows())
    changed, grid = CHANGES[change](rows), GRID / UNIT if change == "unit" else GRID
    found = metric(outcome(changed, kind), changed, grid)
    np.testing.assert_allclose(found, metric(outcome(rows, kind), rows, GRID), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("name", [name for name, known in MEASURES.items() if known.events == "both"])
def test_one_event_is_the_only_cause(name: str) -> None:
    rows = pd.DataFrame(tied_rows())
    y, predicted = outcome(rows, ""), curves(rows, GRID)[:, HORIZON]
    only = Surv(y.time, y.event.astype(int), weight=y.weight, causes=("a",))
    found, expected = (measure(HorizonRows.of(each, predicted, GRID[HORIZON]), name) for each in (only, y))
    np.testing.assert_array_equal(found, expected)

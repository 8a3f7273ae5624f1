"""Every estimator with every kind of outcome of ``docs/fitting.md``: equal data give equal numbers.

Each kind has its rows in two forms, such as arrays and names of columns.
"""

import functools
import re
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd
import pytest
import torch
from sklearn.base import clone

from sstorch import (
    Columns,
    OptimalSurvivalTree,
    PrognosticTree,
    SoftSurvivalTree,
    Surv,
    SurvivalRegression,
    load_dataset,
    metrics,
    validate,
    validation,
)
from tests.conftest import nightly

PAGE = Path(__file__).parents[1] / "docs" / "fitting.md"
Numbers = npt.NDArray[np.float64]
pytestmark = pytest.mark.filterwarnings("ignore::sstorch.exceptions.DataWarning", "ignore::UserWarning")

LINEAR = Columns(numeric="linear")
ESTIMATORS: dict[str, Any] = {
    "SurvivalRegression": SurvivalRegression("weibull", columns=LINEAR),
    "PrognosticTree": PrognosticTree(depth=1, leaf="weibull", columns=LINEAR),
    "SoftSurvivalTree": SoftSurvivalTree(depth=1, leaf="weibull", columns=LINEAR),
    "SoftSurvivalTree(trainer=)": SoftSurvivalTree(
        depth=1, leaf="weibull", trainer="joint", init="random", n_starts=2
    ),
    "OptimalSurvivalTree": OptimalSurvivalTree(max_depth=1, min_leaf=20),
}


class Case(NamedTuple):
    """Rows in one form."""

    X: pd.DataFrame
    y: Any
    weight: Numbers | None = None


@functools.cache
def _patients() -> tuple[pd.DataFrame, Numbers, npt.NDArray[np.bool_]]:
    """160 patients of GBSG2: age, hormone therapy, nodes; years to recurrence."""
    data = load_dataset("gbsg2")
    rows = np.flatnonzero(data.frame["age"].notna())[:160]
    X = data.frame.iloc[rows][["age", "horTh", "pnodes"]].reset_index(drop=True)
    return X, data.time[rows] / 365.25, data.event[rows]


def new() -> pd.DataFrame:
    """Rows to predict."""
    return _patients()[0][:8]


@functools.cache
def times() -> Numbers:
    """Times of predictions."""
    _, time, event = _patients()
    return np.quantile(time[event], [0.25, 0.5, 0.75])


KINDS = ("right-censored", "weights", "left truncation", "start-stop rows", "competing risks")


@functools.cache
def forms(kind: str) -> tuple[Case, Case]:
    """Two forms of equal data: arrays and names of columns, weights and multiplied ones, codes and words."""
    X, time, event = _patients()
    n = len(X)
    named = X.assign(years=time, recurrence=event)
    if kind == "right-censored":
        return Case(X, Surv(time, event)), Case(named, Surv.of(named, time="years", event="recurrence"))
    if kind == "weights":
        counts = np.random.default_rng(0).integers(1, 4, n).astype(float)
        return Case(X, Surv(time, event), counts), Case(X, Surv(time, event), 7 * counts)
    if kind == "left truncation":
        entry = np.where(np.arange(n) % 3 == 0, 0.4 * time, 0.0)
        named = named.assign(entered=entry)
        y = Surv.of(named, time="years", event="recurrence", entry="entered")
        return Case(X, Surv(time, event, entry=entry)), Case(named, y)
    if kind == "start-stop rows":  # two of each patient, in the second of which the nodes have changed
        cut = time * np.random.default_rng(1).uniform(0.2, 0.8, n)
        row, last = np.repeat(np.arange(n), 2), np.arange(2 * n) % 2 == 1
        begin, end = np.where(last, cut[row], 0.0), np.where(last, time[row], cut[row])
        rows, recurrence = X.iloc[row].reset_index(drop=True), event[row] & last
        rows["pnodes"] += last * (row % 3)
        named = rows.assign(years=end, recurrence=recurrence, entered=begin, patient=row)
        y = Surv.of(named, time="years", event="recurrence", entry="entered", id="patient")
        return Case(rows, Surv(end, recurrence, entry=begin, id=row.astype(str))), Case(named, y)
    cause = np.where(event, np.random.default_rng(2).choice([1, 2], n, p=[0.6, 0.4]), 0)
    words = np.array(["none", "relapse", "death"])[cause]
    names = {"relapse": "relapse", "death": "death"}
    return Case(X, Surv(time, cause, causes=tuple(names))), Case(X, Surv(time, words, causes=names))


# A trainer minimises the loss of one event.
CELLS = [
    (estimator, kind)
    for estimator in ESTIMATORS
    for kind in KINDS
    if (estimator, kind) != ("SoftSurvivalTree(trainer=)", "competing risks")
]


def results(model: Any, case: Case) -> dict[str, Any]:
    """What predictions, scores, a validation and a table of groups return, by name."""
    # A model with time-varying covariates predicts from a time on.
    after = {"after": 0.0} if getattr(model, "time_varying_", False) else {}
    last, y = float(times()[-1]), case.y if case.weight is None else case.y.weighted(case.weight)
    rows = case.X, y
    found = {
        "risk": model.predict(new()),
        "group": model.apply(new()),
        "survival": model.predict_survival_function(new(), times(), **after),
        "median": np.minimum(model.predict_quantile(new(), **after), last),
        "mean": model.predict_rmst(new(), last, **after),
    }
    if model.causes_:
        found["incidence"] = model.predict_cumulative_incidence(new(), times(), **after)
    tables = {}
    if after:  # curves from time zero, which the table of metrics is of, are not known
        found["score"] = model.score(case.X, case.y)
        after = {"after": 0.5 * float(times()[0])}  # rows at risk then, followed from there
    else:
        found["score"] = model.score(case.X, case.y, sample_weight=case.weight)
        tables["scores"] = metrics.evaluate(model, rows, rows)
    report = validate(model, *rows, horizon=float(times()[1]), n_resamples=0, **after)
    tables["validation"] = report.to_frame()
    for title, table in tables.items():
        known = table["value"].astype(float).dropna()
        assert len(known), table
        found |= {f"{title} {name}": value for name, value in known.items()}
    groups = validation.group_table(model, case.X, case.y, horizons=times(), sample_weight=case.weight)
    return found | {"groups": groups[[name for name in groups.columns if name[1] in ("estimate", "model")]]}


@functools.cache
def fitted(estimator: str, kind: str, form: int, device: str = "cpu") -> Any:
    """A model of one form of the rows, which several tests ask."""
    case, model = forms(kind)[form], clone(ESTIMATORS[estimator])
    if device != "cpu":
        model.set_params(device=device)
    return model.fit(case.X, case.y, sample_weight=case.weight)


def assert_same(one: dict[str, Any], other: dict[str, Any], rtol: float = 1e-6, atol: float = 1e-8) -> None:
    shared = one.keys() & other.keys()
    assert shared >= {"risk", "survival", "score", "groups"}
    for name in shared:
        pair = (np.asarray(each[name], dtype=np.float64) for each in (one, other))
        np.testing.assert_allclose(*pair, rtol=rtol, atol=atol, err_msg=name)


# Every run has two kinds of each estimator and two estimators of each kind.
DAILY = {(name, KINDS[(k + j) % 5]) for k, name in enumerate(ESTIMATORS) for j in (0, 2)}


@pytest.mark.parametrize(("estimator", "kind"), [cell if cell in DAILY else nightly(*cell) for cell in CELLS])
def test_equal_data_give_equal_numbers(estimator: str, kind: str, tmp_path: Path) -> None:
    first, second = forms(kind)
    model = fitted(estimator, kind, 0)
    expected = results(model, first)
    assert_same(results(fitted(estimator, kind, 1), second), expected)
    model.save(tmp_path / "model")
    assert_same(results(type(model).load(tmp_path / "model"), first), expected, 0, 0)


# Pairs that together run what is computed on the device.
ON_CUDA = [
    ("PrognosticTree", "right-censored"),
    ("PrognosticTree", "competing risks"),
    ("SoftSurvivalTree", "competing risks"),
    ("SoftSurvivalTree(trainer=)", "weights"),
    ("SoftSurvivalTree(trainer=)", "start-stop rows"),
]


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="torch sees no CUDA device")
@pytest.mark.parametrize(("estimator", "kind"), ON_CUDA)
def test_cells_on_cuda_equal_those_on_the_cpu(estimator: str, kind: str) -> None:
    case, _ = forms(kind)
    cpu, cuda = (results(fitted(estimator, kind, 0, at), case) for at in ("cpu", "cuda"))
    # Minima are reached to the tolerance of the minimiser.
    assert_same(cuda, cpu, 1e-5, 1e-7)


def test_the_page_has_the_cells() -> None:
    section = PAGE.read_text().partition("### Which model")[2].partition("\n## ")[0]
    head, _, *rows = re.findall(r"^\|(.*)\|$", section, re.MULTILINE)
    titles = [cell.strip() for cell in head.split("|")][1:]
    cells = {
        (row.split("|")[0].strip(" `"), kind)
        for row in rows
        for kind, mark in zip(titles, row.split("|")[1:], strict=True)
        if "✓" in mark
    }
    assert titles == list(KINDS)
    assert cells == set(CELLS)

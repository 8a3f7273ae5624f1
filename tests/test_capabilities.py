"""Every estimator with every kind of outcome of ``docs/fitting.md``: equal data give equal numbers.

Each kind has its rows in two forms: integer weights and repeated rows, arrays and
names of columns. What is asked of a model of the one is asked of a model of the other.
"""

import functools
import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

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
from sstorch.exceptions import DataError

PAGE = Path(__file__).parents[1] / "docs" / "fitting.md"
Numbers = npt.NDArray[np.float64]
# Results by name; equal names of the two forms of the same rows are to be equal.
Result = dict[str, Numbers]
pytestmark = pytest.mark.filterwarnings("ignore::sstorch.exceptions.DataWarning", "ignore::UserWarning")

LINEAR = Columns(numeric="linear")
ESTIMATORS: dict[str, Any] = {
    "SurvivalRegression": SurvivalRegression("weibull", columns=LINEAR),
    "PrognosticTree": PrognosticTree(depth=1, leaf="weibull", columns=LINEAR),
    "SoftSurvivalTree": SoftSurvivalTree(depth=1, leaf="weibull", columns=LINEAR),
    # All parameters at once: the decomposition moves a number of rows, in which repeated ones count as two.
    "SoftSurvivalTree(trainer=)": SoftSurvivalTree(
        depth=1, leaf="weibull", trainer="joint", init="random", n_starts=2
    ),
    "OptimalSurvivalTree": OptimalSurvivalTree(max_depth=1, min_leaf=20),
}
# Estimated penalties depend on the effective number of subjects, which repeated rows raise, weights not.
ESTIMATED = ("SurvivalRegression", "PrognosticTree")


@dataclass(frozen=True)
class Case:
    """Rows in one form: features, outcome and weights."""

    X: pd.DataFrame
    y: Any
    weight: Numbers | None = None

    @property
    def outcome(self) -> Any:
        """The outcome with its weights, for what takes no separate weights."""
        return self.y if self.weight is None else self.y.weighted(self.weight)


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
def forms(estimator: str, kind: str) -> tuple[Case, Case]:
    """Two forms of equal data: arrays and names of columns, weights and repeated rows, codes and words.

    Variances of gates are always estimated, and repeated rows are more subjects: with them the other form of
    weights are the multiplied ones.
    """
    X, time, event = _patients()
    n = len(X)
    named = X.assign(years=time, recurrence=event)
    if kind == "right-censored":
        return Case(X, Surv(time, event)), Case(named, Surv.of(named, time="years", event="recurrence"))
    if kind == "weights":
        counts = np.random.default_rng(0).integers(1, 4, n)
        weighted, again = Case(X, Surv(time, event), counts.astype(float)), np.repeat(np.arange(n), counts)
        if estimator == "SoftSurvivalTree":
            return weighted, replace(weighted, weight=7.0 * counts)
        return weighted, Case(X.iloc[again].reset_index(drop=True), Surv(time[again], event[again]))
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


# ---------------------------------------------------------------------- operations


def _named(**values: Any) -> Result:
    return {name: np.asarray(value, dtype=np.float64).ravel() for name, value in values.items()}


def _after(model: Any) -> dict[str, float]:
    """What predictions of a model with time-varying covariates ask for."""
    return {"after": 0.0} if getattr(model, "time_varying_", False) else {}


def _of_table(table: pd.DataFrame, left_out: tuple[str, ...]) -> Result:
    """The finite values of a table of metrics, by metric and cause; each that is missing has a reason."""
    value = table["value"].to_numpy(dtype=np.float64)
    missing = np.isnan(value)
    assert not missing.all(), table
    assert (table["reason"].to_numpy()[missing] != "").all(), table
    rows = {str(name): value[[row]] for row, name in enumerate(table.index) if not missing[row]}
    return {name: found for name, found in rows.items() if not any(part in name for part in left_out)}


def predict(model: Any, case: Case, tmp_path: Path) -> Result:
    """Risk, group, survival, medians and means of eight rows, the incidence of each competing cause."""
    last, after = float(times()[-1]), _after(model)
    median = np.minimum(model.predict_quantile(new(), **after), last)
    found = _named(
        risk=model.predict(new()),
        group=model.apply(new()),
        survival=model.predict_survival_function(new(), times(), **after),
        median=median,
        mean=model.predict_rmst(new(), last, **after),
    )
    if model.causes_:
        found |= _named(incidence=model.predict_cumulative_incidence(new(), times(), **after))
    return found


def scores(model: Any, case: Case, tmp_path: Path) -> Result:
    """The estimator's score and the table of metrics.

    Left out is the mean negative log-likelihood, which is that of a row.
    """
    rows = (case.X, case.outcome)
    if _after(model):  # curves from time zero, which the table is of, are not known
        return _named(score=model.score(case.X, case.y))
    found = _of_table(metrics.evaluate(model, rows, rows), ("negative_log_likelihood",))
    return found | _named(score=model.score(case.X, case.y, sample_weight=case.weight))


def validated(model: Any, case: Case, tmp_path: Path) -> Result:
    """The table of a validation at the median event time.

    Left out is the calibration by a Cox model, in which equal rows are ties, and rows of weight 2 are not.
    """
    after = 0.5 * float(times()[0]) if _after(model) else None  # rows at risk then, followed from there
    report = validate(model, case.X, case.outcome, horizon=float(times()[1]), after=after, n_resamples=0)
    tied = ("calibration_intercept", "calibration_slope", "ici", "e50", "e90", "e_max")
    return _of_table(report.to_frame(), tied if case.weight is not None else ())


def group_table(model: Any, case: Case, tmp_path: Path) -> Result:
    """Medians, survival or incidences of the groups, predicted and observed."""
    table = validation.group_table(model, case.X, case.y, horizons=times(), sample_weight=case.weight)
    kept = [name for name in table.columns if name[1] in ("estimate", "model")]
    assert kept, table
    return _named(table=table[kept])


def saved(model: Any, case: Case, tmp_path: Path) -> Result:
    """Predictions of the saved model, which are those of the model."""
    model.save(tmp_path / "model")
    found = predict(type(model).load(tmp_path / "model"), case, tmp_path)
    for name, value in predict(model, case, tmp_path).items():
        np.testing.assert_array_equal(found[name], value)
    return found


OPERATIONS = {operation.__name__: operation for operation in (predict, scores, validated, group_table, saved)}


@functools.cache
def fitted(estimator: str, kind: str, form: int, device: str = "cpu") -> Any:
    """A model of one form of the rows, which several cells ask."""
    case = forms(estimator, kind)[form]
    model = clone(ESTIMATORS[estimator])
    if kind == "weights" and estimator in ESTIMATED:
        model.set_params(penalties__ridge=1e-3)
    if device != "cpu":
        model.set_params(device=device)
    return model.fit(case.X, case.y, sample_weight=case.weight)


@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize(("estimator", "kind"), CELLS)
def test_equal_data_give_equal_numbers(estimator: str, kind: str, operation: str, tmp_path: Path) -> None:
    one, other = (
        OPERATIONS[operation](fitted(estimator, kind, form), case, tmp_path)
        for form, case in enumerate(forms(estimator, kind))
    )
    shared = one.keys() & other.keys()
    assert shared
    for name in shared:
        np.testing.assert_allclose(one[name], other[name], rtol=1e-6, atol=1e-8, err_msg=name)


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_multiplied_weights_fit_the_same_model(estimator: str, tmp_path: Path) -> None:
    case, _ = forms(estimator, "weights")
    assert case.weight is not None
    found = [
        predict(clone(ESTIMATORS[estimator]).fit(case.X, case.y, sample_weight=weight), case, tmp_path)
        for weight in (case.weight, 7.0 * case.weight)
    ]
    for name, value in found[0].items():
        np.testing.assert_allclose(found[1][name], value, rtol=1e-6, atol=1e-8, err_msg=name)


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
def test_cells_on_cuda_equal_those_on_the_cpu(estimator: str, kind: str, tmp_path: Path) -> None:
    case, _ = forms(estimator, kind)
    for operation in (predict, scores, group_table):
        cpu, cuda = (operation(fitted(estimator, kind, 0, at), case, tmp_path) for at in ("cpu", "cuda"))
        assert cpu.keys() == cuda.keys()
        for name, value in cpu.items():
            # Minima are reached to the tolerance of the minimiser.
            message = f"{operation.__name__}: {name}"
            np.testing.assert_allclose(cuda[name], value, rtol=1e-5, atol=1e-7, err_msg=message)


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_model_of_one_event_scored_with_causes_raises(estimator: str) -> None:
    right, competing = forms(estimator, "right-censored")[0], forms(estimator, "competing risks")[0]
    with pytest.raises(DataError, match="competing causes"):
        fitted(estimator, "right-censored", 0).score(competing.X, competing.y)
    if (estimator, "competing risks") in CELLS:
        with pytest.raises(DataError, match="causes"):
            fitted(estimator, "competing risks", 0).score(right.X, right.y)


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

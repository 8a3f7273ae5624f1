"""What each estimator does with each kind of outcome: cells that are run, and the table of the documentation.

``python -m tests.capabilities`` writes ``docs/capabilities.md``; ``tests/test_capabilities.py`` runs every
cell and compares the page. A cell that works is checked against the same data in another form, from which
the same numbers must come: integer weights and repeated rows, start-stop rows and whole rows. A cell that
does not work raises, for the reason that the page gives.
"""

from __future__ import annotations

import functools
import re
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import openpyxl
import pandas as pd
import torch
from sklearn.base import clone

from sstorch import (
    Columns,
    OptimalSurvivalTree,
    OptimalSurvivalTreeCV,
    PrognosticTree,
    PrognosticTreeCV,
    Search,
    SoftSurvivalTree,
    Surv,
    SurvivalData,
    SurvivalRegression,
    deploy,
    load_dataset,
    metrics,
    reading,
    recalibrate,
    validate,
    validation,
)
from sstorch.bench import cross_validate
from tests.deploy.test_code import LANGUAGES, TIMES

PAGE = Path(__file__).parents[1] / "docs" / "capabilities.md"
Numbers = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Case:
    """Rows in one form.

    Attributes:
        X: features.
        y: outcome.
        weight: of each row, or None.
        new: rows to predict.
        times: to predict at.
        sensitive: group of each row, or None.
    """

    X: pd.DataFrame
    y: Any
    new: pd.DataFrame
    times: Numbers
    weight: Numbers | None = None
    sensitive: Any = None

    @property
    def outcome(self) -> Any:
        """The outcome with its weights, for what takes no separate weights."""
        if self.weight is None:
            return self.y
        parts = {name: getattr(self.y, name) for name in ("time", "event", "entry", "id")}
        return Surv(**parts, weight=self.weight)


@dataclass(frozen=True)
class Kind:
    """A kind of outcome: the same data in two forms, of which all numbers are the same.

    Attributes:
        title: in the table.
        forms: the two; the second may be another one for operations that draw or split rows.
        resampled: the second form for those, if it is another.
    """

    title: str
    forms: Callable[[], tuple[Case, Case]]
    resampled: Callable[[], tuple[Case, Case]] | None = None


# ---------------------------------------------------------------------- kinds of outcomes


@functools.cache
def _patients() -> tuple[pd.DataFrame, Numbers, npt.NDArray[np.bool_]]:
    """160 patients of GBSG2: age, hormone therapy, nodes; years to recurrence."""
    data = load_dataset("gbsg2")
    rows = np.flatnonzero(data.frame["age"].notna())[:160]
    X = data.frame.iloc[rows][["age", "horTh", "pnodes"]].reset_index(drop=True)
    return X, data.time[rows] / 365.25, data.event[rows]


def _case(X: pd.DataFrame, y: Any, **parts: Any) -> Case:
    new, time, event = _patients()
    return Case(X, y, new[:8], np.quantile(time[event], [0.25, 0.5, 0.75]), **parts)


def _right() -> tuple[Case, Case]:
    X, time, event = _patients()
    named = X.assign(years=time, recurrence=event)
    return _case(X, Surv(time, event)), _case(named, Surv.of(named, time="years", event="recurrence"))


def _counts() -> npt.NDArray[np.int64]:
    return np.random.default_rng(0).integers(1, 4, len(_patients()[0]))


def _weighted() -> tuple[Case, Case]:
    X, time, event = _patients()
    again = np.repeat(np.arange(len(X)), _counts())
    repeated = _case(X.iloc[again].reset_index(drop=True), Surv(time[again], event[again]))
    return _case(X, Surv(time, event), weight=_counts().astype(float)), repeated


def _scaled() -> tuple[Case, Case]:
    X, time, event = _patients()
    weight = _counts().astype(float)
    y = Surv(time, event)
    return _case(X, y, weight=weight), _case(X, y, weight=7.0 * weight)


def _cuts(time: Numbers) -> tuple[npt.NDArray[np.int64], Numbers, Numbers, npt.NDArray[np.bool_]]:
    """Rows cut at a random time each: row, begin and end of each part, and whether it is the last."""
    cut = time * np.random.default_rng(1).uniform(0.2, 0.8, len(time))
    row = np.repeat(np.arange(len(time)), 2)
    last = np.arange(len(row)) % 2 == 1
    return row, np.where(last, cut[row], 0.0), np.where(last, time[row], cut[row]), last


def _late() -> Numbers:
    _, time, _ = _patients()
    return np.where(np.arange(len(time)) % 3 == 0, 0.4 * time, 0.0)


def _left_truncated() -> tuple[Case, Case]:
    X, time, event = _patients()
    named = X.assign(years=time, recurrence=event, entered=_late())
    y = Surv.of(named, time="years", event="recurrence", entry="entered")
    return _case(X, Surv(time, event, entry=_late())), _case(named, y)


def _start_stop() -> tuple[Case, Case]:
    X, time, event = _patients()
    row, begin, end, last = _cuts(time)
    whole = Surv(time, event, entry=np.zeros(len(time)), id=np.arange(len(time)))
    parts = Surv(end, event[row] & last, entry=begin, id=row)
    return _case(X, whole), _case(X.iloc[row].reset_index(drop=True), parts)


def _interval() -> tuple[Case, Case]:
    X, time, event = _patients()
    # Visits every half year.
    lower, upper = np.floor(2 * time) / 2, np.where(event, np.ceil(2 * time + 1e-9) / 2, np.inf)
    lower = np.where(event, lower, time)
    bounds = X.assign(low=lower, high=upper)
    return _case(X, Surv.interval(lower, upper)), _case(bounds, Surv.of(bounds, lower="low", upper="high"))


@functools.cache
def _causes() -> npt.NDArray[np.int64]:
    _, _, event = _patients()
    return np.where(event, np.random.default_rng(2).choice([1, 2], len(event), p=[0.6, 0.4]), 0)


def _competing() -> tuple[Case, Case]:
    X, time, _ = _patients()
    words = np.array(["none", "relapse", "death"])[_causes()]
    y = Surv(time, _causes(), causes=("relapse", "death"))
    return _case(X, y), _case(X, Surv(time, words, causes={"relapse": "relapse", "death": "death"}))


def _competing_counting() -> tuple[Case, Case]:
    X, time, _ = _patients()
    names = ("relapse", "death")
    row, begin, end, last = _cuts(time)
    whole = Surv(time, _causes(), entry=np.zeros(len(time)), id=np.arange(len(time)), causes=names)
    parts = Surv(end, np.where(last, _causes()[row], 0), entry=begin, id=row, causes=names)
    return _case(X, whole), _case(X.iloc[row].reset_index(drop=True), parts)


KINDS = {
    "right": Kind("right-censored", _right),
    "weights": Kind("weights", _weighted, _scaled),
    "entry": Kind("left truncation", _left_truncated),
    "start-stop": Kind("start-stop rows", _start_stop),
    "interval": Kind("interval-censored", _interval),
    "competing": Kind("competing risks", _competing),
    "competing start-stop": Kind("competing risks, start-stop rows", _competing_counting),
}


# ---------------------------------------------------------------------- operations

# Results by name; equal names of two forms of the same rows are to be equal.
Result = dict[str, Numbers]


def _after(model: Any) -> dict[str, float]:
    """What predictions of a model with time-varying covariates ask for."""
    return {"after": 0.0} if getattr(model, "time_varying_", False) else {}


def _named(**values: Any) -> Result:
    return {name: np.asarray(value, dtype=np.float64).ravel() for name, value in values.items()}


def _of_table(table: pd.DataFrame, names: Sequence[str] = ()) -> Result:
    """The finite values of a table of metrics, by metric and cause; each that is missing has a reason."""
    value = table["value"].to_numpy(dtype=np.float64)
    missing = np.isnan(value)
    assert not missing.all(), table
    assert (table["reason"].to_numpy()[missing] != "").all(), table
    left_out = [any(name in str(row) for name in names) for row in table.index]
    kept = ~missing & ~np.array(left_out)
    return {str(name): value[[row]] for row, name in enumerate(table.index) if kept[row]}


def _groups(found: Any) -> Result:
    """Numbers of a validation of groups, of one event or of each cause."""
    each = getattr(found, "causes", {"": found})
    parts = {name: getattr(one, "hazard", one) for name, one in each.items()}
    return _named(**{f"of {name}": [part.c_groups, part.p_value, part.ari] for name, part in parts.items()})


def fit(model: Any, case: Case) -> Result:
    """The risks that the fitted model predicts."""
    return _named(risk=model.predict(case.new))


def predict(model: Any, case: Case) -> Result:
    """Survival of eight rows, of competing causes also the cumulative incidence of each."""
    after = _after(model)
    found = _named(survival=model.predict_survival_function(case.new, case.times, **after))
    if getattr(case.y, "causes", None):
        found |= _named(incidence=model.predict_cumulative_incidence(case.new, case.times, **after))
    return found


def quantiles(model: Any, case: Case) -> Result:
    """Medians, up to the last time, and restricted means of eight rows."""
    last, after = float(case.times[-1]), _after(model)
    median = np.minimum(model.predict_quantile(case.new, **after), last)
    return _named(median=median, mean=model.predict_rmst(case.new, last, **after))


def groups(model: Any, case: Case) -> Result:
    """Number of the group of eight rows."""
    return _named(group=model.apply(case.new))


def log_likelihood(model: Any, case: Case) -> Result:
    """The mean over the rows, weighted or repeated; of start-stop rows the sum, which is of whole rows."""
    found = model.log_likelihood(case.X, case.y, sample_weight=case.weight)
    return _named(total=found * (1 if case.weight is not None or case.y.id is None else len(case.X)))


def texts(model: Any, case: Case) -> Result:
    """Number of groups that a text names; it names every cause."""
    written = {"summary": model.summary()}
    written |= {kind: validation.model_card(model, kind) for kind in ("markdown", "html")}
    for text in written.values():
        assert all(cause in text for cause in model.causes_), text
    return _named(**{name: len(set(re.findall(r"group (\d+)", text))) for name, text in written.items()})


def explain(model: Any, case: Case) -> Result:
    """Number of groups described; curves of a row at round times, and what its columns contribute."""
    described = len(set(re.findall(r"Group (\d+)", model.describe())))
    found = model.explain(case.new[:1])
    # The constant is in units of the mean log time of the rows, whatever their weights.
    terms = found.contributions.drop(index="(constant)")
    curves = _named(groups=described, survival=found.survival, contributions=terms)
    return curves | ({} if found.incidence is None else _named(incidence=found.incidence))


def rules(model: Any, case: Case) -> Result:
    """Coefficients of gates and leaves; importance is a mean over numbers of rows, whatever their weights."""
    assert reading.export_text(model)
    assert not reading.importance(model).empty
    assert reading.export_graphviz(model)
    return _named(
        gates=len(reading.gate_table(model)),
        gate_coefficients=reading.gate_coefficients(model)[["coefficient", "effect"]],
        leaf_coefficients=reading.leaf_coefficients(model)[["coefficient", "effect"]],
    )


def leaf_table(model: Any, case: Case) -> Result:
    """Estimates and predictions of the groups of the training rows."""
    return _estimates(reading.leaf_table(model))


def effects(model: Any, case: Case) -> Result:
    """Effect of each column in each group."""
    return _named(effect=reading.effects(model, case.new)["effect"])


def simpler(model: Any, case: Case) -> Result:
    """Merged groups of eight rows, and their shorter rules."""
    assert str(reading.simplify(model, case.new))
    return _named(merged=reading.merge_leaves(model, case.new).group)


def score(model: Any, case: Case) -> Result:
    """The estimator's score of the rows."""
    return _named(score=model.score(case.X, case.y, sample_weight=case.weight))


def evaluate(model: Any, case: Case) -> Result:
    """The table of metrics.

    Left out are the mean negative log-likelihood, which is that of a row, and pseudo-observations, which
    leave a row out, whatever its weight.
    """
    rows = (case.X, case.outcome)
    table = metrics.evaluate(model, rows, rows)
    return _of_table(table, ("negative_log_likelihood", "mae_pseudo"))


def validate_model(model: Any, case: Case) -> Result:
    """The table of a validation at the median event time.

    Left out is the calibration by a Cox model, in which equal rows are ties, and rows of weight 2 are not.
    """
    report = validate(model, case.X, case.outcome, horizon=float(case.times[1]), n_resamples=0)
    tied = ("calibration_intercept", "calibration_slope", "ici", "e50", "e90", "e_max")
    return _of_table(report.to_frame(), tied if case.weight is not None else ())


def _estimates(table: pd.DataFrame) -> Result:
    """Estimates and predictions of a table of groups, without numbers of rows and limits."""
    kept = [name for name in table.columns if name[1] in ("estimate", "model")]
    assert kept, table
    return _named(table=table[kept])


def group_table(model: Any, case: Case) -> Result:
    """Estimates of the groups: medians, survival or incidences, predicted and observed."""
    weight = case.weight
    return _estimates(
        validation.group_table(model, case.X, case.y, horizons=case.times, sample_weight=weight)
    )


def stability(model: Any, case: Case) -> Result:
    """Agreement of the groups of resamples."""
    found = validation.stability(model, case.X, case.y, n_resamples=3, sample_weight=case.weight)
    return _named(moves=found.moves.mean())


def validate_groups(model: Any, case: Case) -> Result:
    """Concordance, p-value and agreement of the groups of held-out rows."""
    return _groups(validation.validate_groups(model, case.X, case.y, n_folds=2, sample_weight=case.weight))


def split_test(model: Any, case: Case) -> Result:
    """Number of columns tested, of each cause; p values are of random signs of the rows."""
    causes = range(1, max(len(model.causes_), 1) + 1)
    found = [
        validation.split_test(model, case.X, case.y, sample_weight=case.weight, n_draws=19, cause=cause)
        for cause in causes
    ]
    return _named(tested=[len(each.table) for each in found])


def recalibration(model: Any, case: Case) -> Result:
    """Predictions of the model recalibrated on the rows."""
    return predict(recalibrate(model, case.X, case.y, sample_weight=case.weight), case)


def _exported(language: str, model: Any, case: Case) -> Result:
    """Curves of eight rows by exported code, which are those of the model."""
    after = _after(model).get("after")
    with tempfile.TemporaryDirectory() as folder:
        _, survival, incidence = LANGUAGES[language](model, case.new, Path(folder), after)
    asked = ~np.isnan(np.array(survival)[0])  # a query is for one time
    expected = model.predict_survival_function(case.new, TIMES, after=after)
    np.testing.assert_allclose(np.array(survival)[:, asked], expected[:, asked], atol=1e-9)
    if model.causes_:
        expected = model.predict_cumulative_incidence(case.new, TIMES, after=after)
        np.testing.assert_allclose(np.array(incidence)[..., asked], expected[..., asked], atol=1e-9)
    return _named(survival=np.array(survival)[:, asked])


def program(model: Any, case: Case) -> Result:
    """Curves by the program of torch, of rows of zeros and of missing values."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "tree.pt2"
        deploy.export_program(model, path, **_after(model))
        module = torch.export.load(path).module()
    names = model.preprocessor_.feature_names_out
    x = torch.zeros((2, len(names)), dtype=torch.float64)
    x[1] = torch.nan
    found = module(x, torch.as_tensor(case.times))
    parts = found if isinstance(found, tuple) else (found,)
    return _named(curves=torch.cat([part.detach().ravel() for part in parts]))


def calculator(model: Any, case: Case) -> Result:
    """The observed curves of the first group in the calculator's page."""
    with tempfile.TemporaryDirectory() as folder:
        page = Path(folder) / "page.html"
        deploy.export_calculator(model, page, case.X, case.outcome, **_after(model))
        text = page.read_text()
    curves = re.search(r'"curves": ?\[.*?\]\]', text)
    assert curves is not None
    return _named(curve=[float(number) for number in re.findall(r"\d+\.\d+(?:e-?\d+)?", curves[0])])


def workbook(model: Any, case: Case) -> Result:
    """Number of formulas, and ranges of fields; LibreOffice computes the cells in another test."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "tree.xlsx"
        deploy.export_workbook(model, path, case.X, horizons=case.times, **_after(model))
        book = openpyxl.load_workbook(path)
    cells = [str(cell.value) for sheet in book for row in sheet.iter_rows() for cell in row]
    ranges = [cell.split(" to ") for cell in cells if re.fullmatch(r"[\d.]+ to [\d.]+", cell)]
    return _named(formulas=sum(cell.startswith("=") for cell in cells), ranges=np.array(ranges, float))


def saved(model: Any, case: Case) -> Result:
    """Predictions of the saved model, of an exact search its tree, which are those of the model."""
    kind = OptimalSurvivalTree if isinstance(model, OptimalSurvivalTreeCV) else type(model)
    with tempfile.TemporaryDirectory() as folder:
        model.save(folder)
        found = predict(kind.load(folder, getattr(model, "device", "cpu") or "cpu"), case)
    for name, value in predict(model, case).items():
        np.testing.assert_array_equal(found[name], value)
    return found


def cross_validated(model: Any, case: Case) -> Result:
    """Scores of a cross-validation as the command and studies make it."""
    data = SurvivalData(case.X, case.y, sample_weight=case.weight)
    scores = cross_validate(clone(model), data, n_folds=2).scores
    scores = scores[scores["part"] == "test"]
    kept = [name for name in scores if name.startswith(("c_harrell", "c_cause_specific", "ibs_turnbull"))]
    return _named(**{name: scores[name] for name in kept})


@dataclass(frozen=True)
class Operation:
    """One row of the table.

    Attributes:
        title: in the table.
        run: results of a fitted model and rows.
        resamples: whether rows are drawn or split at random, so that their form matters.
    """

    title: str
    run: Callable[[Any, Case], Result]
    resamples: bool = False


OPERATIONS = {
    "fit": Operation("`fit`, `predict`", fit),
    "predict": Operation("`predict_survival_function`, `predict_cumulative_incidence`", predict),
    "quantiles": Operation("`predict_quantile`, `predict_rmst`", quantiles),
    "apply": Operation("`apply`", groups),
    "score": Operation("`score`", score),
    "log_likelihood": Operation("`log_likelihood`", log_likelihood),
    "save": Operation("`save`, `load`", saved),
    "evaluate": Operation("`metrics.evaluate`", evaluate),
    "validate": Operation("`validate`", validate_model),
    "recalibrate": Operation("`recalibrate`", recalibration),
    "texts": Operation("`summary`, `model_card`", texts),
    "explain": Operation("`describe`, `explain`", explain),
    "rules": Operation("`export_text`, `export_graphviz`, tables of gates and coefficients", rules),
    "leaf_table": Operation("`leaf_table`", leaf_table),
    "effects": Operation("`effects`", effects),
    "simpler": Operation("`simplify`, `merge_leaves`", simpler),
    "group_table": Operation("`group_table`", group_table),
    "stability": Operation("`stability`", stability, resamples=True),
    "validate_groups": Operation("`validate_groups`", validate_groups, resamples=True),
    "split_test": Operation("`split_test`", split_test),
    "python": Operation("`export_code` (Python)", functools.partial(_exported, "python")),
    "javascript": Operation("`export_code` (JavaScript)", functools.partial(_exported, "javascript")),
    "sql": Operation("`export_code` (SQL)", functools.partial(_exported, "sql")),
    "onnx": Operation("`export_onnx`", functools.partial(_exported, "onnx")),
    "program": Operation("`export_program`", program),
    "calculator": Operation("`export_calculator`", calculator),
    "workbook": Operation("`export_workbook`", workbook),
    "bench": Operation("folds of the command `sstorch` and of studies", cross_validated, resamples=True),
}

# ---------------------------------------------------------------------- estimators

LINEAR = Columns(numeric="linear")
ESTIMATORS: dict[str, Any] = {
    "SurvivalRegression": SurvivalRegression("weibull", columns=LINEAR),
    "PrognosticTree": PrognosticTree(depth=1, leaf="weibull", columns=LINEAR, gate_features=1),
    # All parameters at once: the decomposition moves a number of rows, in which repeated ones count as two.
    "SoftSurvivalTree": SoftSurvivalTree(depth=1, leaf="weibull", trainer="joint", init="random", n_starts=2),
    "PrognosticTreeCV": PrognosticTreeCV(
        {
            "one": SurvivalRegression("weibull", columns=LINEAR),
            "two": PrognosticTree(depth=1, leaf="weibull", columns=LINEAR),
        },
        cv=2,
    ),
    "OptimalSurvivalTree": OptimalSurvivalTree(max_depth=1, min_leaf=20),
    "OptimalSurvivalTreeCV": OptimalSurvivalTreeCV(max_depth=1, min_leaf=20, n_folds=2),
}
# Estimated penalties depend on the effective number of subjects, which repeated rows raise and weights do
# not: rows are repeated where penalties are given, and weights multiplied where they are estimated.
ESTIMATED = ("SurvivalRegression", "PrognosticTree")
GIVEN = {"penalties__ridge": 1e-3}
# Estimators that split the rows when they are fitted.
SPLITTING = ("PrognosticTreeCV", "OptimalSurvivalTreeCV")
EXACT = ("OptimalSurvivalTree", "OptimalSurvivalTreeCV")
# What only soft trees have.
OF_SOFT_TREES = (
    *("log_likelihood", "explain", "rules", "leaf_table", "effects", "simpler", "split_test"),
    *("program", "bench"),
)
# What a search has; all else its best estimator has.
OF_THE_SEARCH = ("fit", "predict", "score", "evaluate", "validate")
# Below the table of operations.
NOTES = (
    "✓ (1): except for the estimator in reason 1. †: not for exact trees, since their leaves have no "
    "regressions. `PrognosticTreeCV` supports `fit`, `predict`, `score`, `metrics.evaluate` and `validate`; "
    "use its `best_estimator_` for other operations.",
)
CAUSES = ("competing", "competing start-stop")

# ---------------------------------------------------------------------- what cannot be


@dataclass(frozen=True)
class Reason:
    """Why some cells do not work.

    Attributes:
        text: of the documentation.
        message: of the error, a regular expression.
        cells: estimators, kinds of outcome and operations; an empty one stands for all.
    """

    text: str
    message: str
    estimators: tuple[str, ...]
    kinds: tuple[str, ...]
    operations: tuple[str, ...]

    def covers(self, estimator: str, kind: str, operation: str) -> bool:
        """Whether it is the reason of a cell."""
        pairs = ((self.estimators, estimator), (self.kinds, kind), (self.operations, operation))
        return all(not names or name in names for names, name in pairs)


REASONS = [
    Reason(
        "A `SurvivalRegression` has one group.",
        "one group",
        ("SurvivalRegression",),
        (),
        ("validate_groups",),
    ),
    Reason(
        "Gates trained on the outcomes use the likelihood of one event. `PrognosticTree` distils its gates "
        "from the hazards of all causes.",
        "gates that are trained on the outcomes divide by the likelihood of one event",
        ("SoftSurvivalTree",),
        CAUSES,
        (),
    ),
    Reason(
        "An exact search needs sums over rows that determine the loss of a leaf. The likelihood of "
        "interval-censored times has no closed form.",
        "interval-censored",
        ("OptimalSurvivalTree", "OptimalSurvivalTreeCV"),
        ("interval",),
        (),
    ),
    Reason(
        "If the intervals of two subjects overlap, their order is unknown: concordance is not defined. "
        "Use `log_likelihood` or `metrics.evaluate`.",
        "interval-censored",
        (),
        ("interval",),
        ("score", "validate_groups"),
    ),
    Reason(
        "Measures at a horizon need the status of each row at the horizon.",
        "interval-censored",
        (),
        ("interval",),
        ("validate",),
    ),
    Reason(
        "Turnbull's estimate converges at the rate of the cube root of the number of rows and has no "
        "standard error or confidence limits.",
        "interval-censored",
        (),
        ("interval",),
        ("group_table", "calculator"),
    ),
    Reason(
        "The p-value needs simulated outcomes. Simulated times cannot be converted to intervals, since the "
        "visits are unknown.",
        "interval-censored",
        (),
        ("interval",),
        ("split_test",),
    ),
    Reason(
        "The number of events by a given time is unknown. Train a model on the new rows.",
        "interval-censored",
        (),
        ("interval",),
        ("recalibrate",),
    ),
]


def operations_of(estimator: str) -> list[str]:
    """The operations that there are for an estimator."""
    if estimator == "PrognosticTreeCV":
        return list(OF_THE_SEARCH)
    return [name for name in OPERATIONS if estimator not in EXACT or name not in OF_SOFT_TREES]


def reason_of(estimator: str, kind: str, operation: str) -> Reason | None:
    """Why a cell does not work; None if it does."""
    found = (reason for reason in REASONS if reason.covers(estimator, kind, operation))
    return next(found, None)


# ---------------------------------------------------------------------- runs


def _splits(estimator: str, operation: str) -> bool:
    """Whether rows are drawn or split at random, in the operation or in the fit."""
    return OPERATIONS[operation].resamples or estimator in SPLITTING


@functools.cache
def _forms(kind: str, splits: bool) -> tuple[Case, Case]:
    """The two forms of the rows of a kind of outcome."""
    chosen = KINDS[kind]
    return (chosen.resampled or chosen.forms)() if splits else chosen.forms()


def on_device(estimator: str, device: str) -> Any:
    """An estimator of the table that is fitted on a device."""
    model = clone(ESTIMATORS[estimator])
    if estimator in EXACT:
        return model.set_params(search=Search(device=device))
    return model.set_params(device=device)


@functools.cache
def _fitted(estimator: str, kind: str, splits: bool, form: int, given: bool, device: str) -> Any:
    """A model of one form of the rows, which several cells ask; ``given``: its penalties are numbers."""
    case = _forms(kind, splits)[form]
    model = on_device(estimator, device).set_params(**GIVEN if given else {})
    return model.fit(case.X, case.y, sample_weight=case.weight)


def forms(estimator: str, kind: str, operation: str) -> tuple[Case, Case]:
    """The two forms of the rows that a cell is run on."""
    return _forms(kind, _splits(estimator, operation))


def run_once(estimator: str, kind: str, operation: str, device: str) -> Result:
    """Results of a cell on the first form of its rows, with a model fitted on a device."""
    splits = _splits(estimator, operation)
    model = _fitted(estimator, kind, splits, 0, False, device)
    return OPERATIONS[operation].run(model, _forms(kind, splits)[0])


def run(estimator: str, kind: str, operation: str) -> tuple[Result, Result]:
    """Results of a cell on both forms of its rows."""
    variants = [(_splits(estimator, operation), False)]
    if kind == "weights" and estimator in ESTIMATED and variants == [(False, False)]:
        variants = [(False, True), (True, False)]
    found: tuple[Result, Result] = ({}, {})
    for splits, given in variants:
        for form, case in enumerate(_forms(kind, splits)):
            own = OPERATIONS[operation].run(_fitted(estimator, kind, splits, form, given, "cpu"), case)
            found[form].update({f"{name}, given" if given else name: value for name, value in own.items()})
    return found


# ---------------------------------------------------------------------- the page


def page() -> str:
    """``docs/capabilities.md``: estimators by outcome, then operations, those with equal cells in one row."""
    whole = [reason for reason in REASONS if not reason.operations]
    notes: list[Reason] = []

    def cell(estimators: Sequence[str], kind: str, operation: str) -> str:
        reasons = [reason_of(name, kind, operation) for name in estimators]
        found = [reason for reason in REASONS if reason in reasons]
        notes.extend(reason for reason in found if reason not in notes)
        numbers = ", ".join(str(notes.index(reason) + 1) for reason in found)
        return f"✓ ({numbers})" if found and None in reasons else numbers or "✓"

    head = [
        "| operation | " + " | ".join(kind.title for kind in KINDS.values()) + " |",
        "|---" * (len(KINDS) + 1) + "|",
    ]
    lines = [
        "# Outcome types",
        "",
        "`tests/test_capabilities.py` runs every cell and compares it with equivalent data, "
        "such as integer weights with repeated rows. Numbers refer to reasons. "
        "[`Surv`](fitting.md#outcomes) defines the outcomes.",
        "",
        "## Estimators",
        "",
        *head,
    ]
    for estimator in ESTIMATORS:
        cells = " | ".join(cell([estimator], kind, "fit") for kind in KINDS)
        lines.append(f"| `{estimator}` | {cells} |")
    rows: dict[str, list[str]] = {}
    for operation, item in OPERATIONS.items():
        of_operation = [name for name in ESTIMATORS if operation in operations_of(name)]
        cells = [
            cell(
                [name for name in of_operation if reason_of(name, kind, operation) not in whole],
                kind,
                operation,
            )
            for kind in KINDS
        ]
        mark = "" if set(EXACT) & set(of_operation) else "†"
        rows.setdefault(" | ".join(cells), []).append(item.title + mark)
    lines += ["", "## Operations", "", "For each estimator that supports the outcome:", "", *head]
    lines += [f"| {'; '.join(titles)} | {cells} |" for cells, titles in rows.items()]
    lines += ["", *NOTES, "", "## Reasons", ""]
    lines += [f"{number}. {reason.text}" for number, reason in enumerate(notes, 1)]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page())

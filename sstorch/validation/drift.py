"""Monitoring of a model in use: do later rows look like the training rows, and do predictions still hold."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
from matplotlib.figure import Figure
from scipy.stats import chi2, norm

from sstorch._types import BoolArray, FloatArray
from sstorch.checks import check_horizon, check_same_order, check_share
from sstorch.data import Schema, outcome_of
from sstorch.data.causes import cause_number
from sstorch.data.columns import to_pandas
from sstorch.data.time_unit import duration
from sstorch.document import to_html
from sstorch.exceptions import ConfigError, DataError, DataWarning
from sstorch.files import write_whole
from sstorch.metrics import Estimate
from sstorch.metrics.curves import predict_curves
from sstorch.metrics.horizon_rows import HorizonRows
from sstorch.metrics.intervals import concordance_interval
from sstorch.metrics.scored_rows import some_rows
from sstorch.metrics.weak_calibration import observed_expected_hazard, observed_expected_ratio
from sstorch.plots.drift import plot_drift
from sstorch.validation.column_drift import compared_columns
from sstorch.validation.drift_page import document
from sstorch.validation.periods import Every, periods_of
from sstorch.validation.predicting import Cohort, check_model


@dataclass(frozen=True, eq=False, repr=False)
class DriftReport:
    """Result of :func:`drift`: comparison of later periods with the training rows.

    Attributes:
        columns: one row per period and column, indexed by both: n, rows; missing and training_missing, shares
            of missing cells; outside, share of numbers outside the training range; unseen, share of rows with
            a category without training rows; categories, names of these categories; psi, the population
            stability index; limit, exceeded by psi in 5 % of reports without drift (default ``level``);
            finding, a sentence or "".
        periods: one row per period, with competing causes per period and cause: n; risk, mean predicted risk
            at the horizon, with lower and upper limits. With an outcome also: events up to the horizon;
            expected, the sum of predicted cumulative hazards during follow-up (both weighted if the outcome
            has weights); oe_hazard, their ratio, with limits; oe_ratio, observed / expected risk at the
            horizon, with limits; concordance with limits; reason for a NaN; finding, a sentence or "".
        horizon: time of the predicted risks and end of follow-up.
        time_unit: unit of the horizon, or "".
        level: level of all limits.
        model: class of the model.
    """

    columns: pd.DataFrame
    periods: pd.DataFrame
    horizon: float
    time_unit: str
    level: float
    model: str

    @property
    def findings(self) -> list[str]:
        """Findings, one sentence per period and column; empty if there are none."""
        tables = [self.columns["finding"], *([self.periods["finding"]] if "finding" in self.periods else [])]
        return [
            f"{', '.join(map(str, key)) if isinstance(key, tuple) else key}: {text}"
            for texts in tables
            for key, text in texts.items()
            if text
        ]

    @property
    def at_horizon(self) -> str:
        """The horizon with its unit."""
        return duration(self.horizon, self.time_unit)

    def __repr__(self) -> str:
        n = len(self.columns.index.get_level_values("period").unique())
        title = f"{self.model} on {n} period{'s' * (n != 1)}, risks at {self.at_horizon}"
        return "\n".join([title, *(self.findings or ["no drift was found"])])

    def plot(self) -> Figure:
        """Draw the stability index by column and period, mean risk, observed over expected, concordance."""
        return plot_drift(self.columns, self.periods, self.at_horizon)

    def to_html(self, path: str | Path) -> Path:
        """Write one page with findings, figure and tables, which needs no other file.

        Args:
            path: file in an existing folder; an existing file is replaced.

        Returns:
            The path.

        Raises:
            OSError: the file cannot be written.
        """
        target = Path(path).expanduser()
        page = document(
            self.columns,
            self.periods,
            self.findings,
            f"{self.model}, predictions at {self.at_horizon}",
            self.at_horizon,
            self.level,
        )
        write_whole(target, to_html(page).encode())
        return target


def drift(
    model: Any,
    X: Any,
    y: Any = None,
    by: str | npt.ArrayLike | None = None,
    *,
    every: Every = "month",
    horizon: float | None = None,
    cause: int | str | None = None,
    level: float = 0.95,
    time_unit: str | None = None,
) -> DriftReport:
    """Compare later rows with the training rows of a model, period by period.

    Columns: missing cells, categories without training rows, values outside the training range, and the
    population stability index (`population_stability_index`). Bins are tenths of a numeric column in the
    training rows (or its values if there are at most ten), categories, and one bin for missing cells. Bins
    with fewer than two expected rows in a period are merged. A fitted model stores these counts in
    ``training_record_``.

    Predictions: the mean predicted risk at the horizon, with confidence limits. With an outcome also, per
    period:

    * oe_hazard, events up to the horizon / sum of predicted cumulative hazards during follow-up, with exact
      Poisson limits. It uses all follow-up, including the most recent rows.
    * oe_ratio, observed risk (Kaplan-Meier or Aalen-Johansen) / mean predicted risk at the horizon: NaN with
      a reason if the follow-up of a period is shorter.
    * concordance up to the horizon (Harrell; cause-specific with competing causes).

    Limits of findings are adjusted for the number of periods and columns (Bonferroni): without drift, the
    probability of a false finding of one kind in a report is at most 1 - `level`. Small shifts are not
    findings (stability index up to .1; 5 % more or fewer missing cells; 1 % of numbers outside the range). A
    category without training rows always is a finding. Rows are assumed independent.

    Args:
        model: a fitted or loaded survival estimator of this package.
        X: rows to monitor, (n, ...), with the columns of the model; others are ignored.
        y: outcome of the rows, a :class:`~sstorch.Surv` of the kind that the model was trained on, or (time,
            event); None if unknown. Rows of weight 0 are excluded.
        by: period of each row: the name of a column of `X`, or one value for each row, (n,). Dates
            (datetime64, or text such as ``2025-01-31``) are binned by `every`; other values are names of
            periods, sorted, or in the order of a pandas categorical. None for one period.
        every: width of the periods of dates: ``"day"``, ``"week"``, ``"month"``, ``"quarter"``, ``"year"``.
        horizon: time of the risks, in the unit of training; by default ``model.horizon_``, the median of the
            training event times.
        cause: number or name of one competing cause; None for all.
        level: level of all limits, in (0, 1).
        time_unit: unit of times in texts; by default that of the model.

    Returns:
        The report: tables `columns` and `periods`, `findings`, `plot()`, `to_html(path)`.

    Raises:
        DataError: invalid rows, an outcome of another type than in training, a missing period, or a wrong
            number of period values.
        ConfigError: a model without training record, an unknown cause, a horizon or a level out of
            range.

    References:
        Garwood (1936), Biometrika 28, 437-442, for the exact limits; Davis, Greevy, Lasko et al. (2020),
        Journal of Biomedical Informatics 112, 103611, for the monitoring of calibration.

    Examples:
        >>> from sstorch import SurvivalRegression, load_dataset
        >>> data = load_dataset("gbsg2")
        >>> train, later = data.subset(range(400)), data.subset(range(400, 686))
        >>> model = SurvivalRegression("weibull").fit(train.frame, train.y)
        >>> report = drift(model, later.frame.assign(age=lambda frame: frame["age"] + 20), later.y)
        >>> report.findings[0].split(";")[0]
        'all rows, age: 25 % of the numbers are outside the training range 25 to 80'
    """
    check_model(model)
    record = getattr(model, "training_record_", None)
    if record is None:
        what = "give its best_estimator_" if hasattr(model, "best_estimator_") else "fit it anew"
        raise ConfigError(f"{type(model).__name__} has no record of its training rows: {what}")
    check_share(level, "level")
    at = check_horizon(model.horizon_ if horizon is None else horizon, "horizon")
    check_same_order(X=X, y=y)
    X = to_pandas(X)
    if not len(X):
        raise DataError("the data have no rows")
    outcome = None if y is None else outcome_of(model, y)
    if outcome is not None and len(outcome) != len(X):
        raise DataError(f"X has {len(X)} rows but y has {len(outcome)}; give one outcome for every row")
    parts = periods_of(X, by, every)
    if outcome is not None and outcome.weight is not None:
        counted = outcome.weight > 0.0
        parts = [(name, rows & counted) for name, rows in parts if (rows & counted).any()]
    schema: Schema = model._schema
    frame = Schema(schema.inputs, schema.categories).frame_of(X).reset_index(drop=True)
    columns = pd.DataFrame(compared_columns(frame, record, parts, level)).set_index(["period", "column"])
    names = model.causes_ or ("",)
    wanted = range(len(names)) if cause is None else [cause_number(cause, names) - 1]
    found = []
    with warnings.catch_warnings():  # of unknown categories and far values, which the report has
        warnings.filterwarnings("ignore", "column .* (unknown category|far outside)", DataWarning)
        risks = _risks(model, X, at)
        for name, rows in parts:
            scored = None if outcome is None else _scored(model, X, outcome, rows, at)
            for k in wanted:
                row: dict[str, object] = {"period": name, "cause": names[k], "n": int(rows.sum())}
                row |= _mean(risks[rows, k], level)
                if scored is not None:
                    row |= _performance(scored.get(names[k]), at, level, len(parts) * len(wanted))
                found.append(row)
    periods = pd.DataFrame(found).set_index(["period", "cause"])
    if not model.causes_:
        periods = periods.droplevel("cause")
    unit = time_unit or getattr(model, "time_unit_", None) or ""
    return DriftReport(columns, periods, at, unit, level, type(model).__name__)


def _risks(model: Any, X: Any, at: float) -> FloatArray:
    """Predicted risks at the horizon, (n, K), of a single event with K = 1."""
    # A row with time-varying covariates as if it stayed as it is.
    known = {"after": 0.0} if getattr(model, "time_varying_", False) else {}
    if model.causes_:
        return np.asarray(model.predict_cumulative_incidence(X, [at], **known))[..., 0]
    if known:
        return 1.0 - np.asarray(model.predict_survival_function(X, [at], **known))
    return 1.0 - np.asarray(predict_curves(model, X, np.array([at])))


def _scored(model: Any, X: Any, y: Any, rows: BoolArray, at: float) -> dict[str, HorizonRows]:
    """Outcomes and predictions of a period by cause, up to the horizon or the end of its follow-up.

    Empty where every row was followed beyond the horizon, by which nothing had happened then.
    """
    where = np.flatnonzero(rows)
    cohort = Cohort.of(model, some_rows(X, where), y[where], None, "sampling", None)
    time = cohort.y.right_censored("drift")[0]
    return cohort.rows(model, min(at, float(time.max())), None) if time.min() <= at else {}


def _mean(risk: FloatArray, level: float) -> dict[str, object]:
    mean, n = float(risk.mean()), len(risk)
    half = float(norm.isf(0.5 - 0.5 * level)) * risk.std(ddof=1) / np.sqrt(n) if n > 1 else np.nan
    return {"risk": mean, "risk_lower": max(mean - half, 0.0), "risk_upper": min(mean + half, 1.0)}


def _performance(rows: HorizonRows | None, at: float, level: float, n_tests: int) -> dict[str, object]:
    """Measures of a period, with limits; those of findings are adjusted for so many tests."""
    if rows is None:
        measures = dict.fromkeys(("expected", *_with_limits(_MEASURES)), np.nan)
        return {
            "events": 0.0,
            **measures,
            "reason": "no time of the period is as short as the horizon",
            "finding": "",
        }
    rows_of: HorizonRows = rows
    reasons: dict[str, list[str]] = {}

    def estimate(name: str, level: float = level) -> Estimate[float]:
        try:
            if name == "oe_ratio" and rows_of.t != at:
                raise DataError(f"follow-up of the period ends at {rows_of.t:g}, before the horizon")
            found = _MEASURES[name](rows_of, level)
        except DataError as error:
            reasons.setdefault(str(error), []).append(name)
            return Estimate(np.nan, np.nan, np.nan)
        if np.isnan(found.lower):
            reasons.setdefault("the estimated variance is 0", []).append(f"limits of {name}")
        return found

    judged = "oe_ratio" if rows.competing else "oe_hazard"
    found: dict[str, object] = {
        "events": float(rows.weights[rows.interest & (rows.time <= rows.t)].sum()),
        "expected": np.nan if rows.expected is None else float((rows.weights * rows.expected).sum()),
    }
    for name in _MEASURES:
        if rows.competing and name == "oe_hazard":
            found |= dict.fromkeys(_with_limits([name]), np.nan)
            continue
        found |= dict(zip(_with_limits([name]), estimate(name), strict=True))
    reason = "; ".join(f"{', '.join(names)}: {text}" for text, names in reasons.items())
    finding = ""
    strict = estimate(judged, 1.0 - (1.0 - level) / n_tests)
    if strict.lower > 1.0 or strict.upper < 1.0:
        value, lower, upper = (found[name] for name in _with_limits([judged]))
        finding = (
            f"observed over expected {'risk' if rows.competing else 'events'} {value:.2f} "
            f"({100 * level:g} % confidence interval {lower:.2f} to {upper:.2f})"
        )
    return found | {"reason": reason, "finding": finding}


def _with_limits(names: Iterable[str]) -> list[str]:
    return [name + end for name in names for end in ("", "_lower", "_upper")]


def event_ratio(rows: HorizonRows, level: float) -> Estimate[float]:
    """Events over the sum of predicted cumulative hazards while rows were observed, with exact limits.

    The number of events is assumed Poisson (Garwood); with uneven weights or several events of
    a subject the limits are those of :func:`~sstorch.metrics.observed_expected_hazard`.
    """
    if rows.robust or rows.expected is None:
        return observed_expected_hazard(rows, level)
    observed, expected = int((rows.interest & (rows.time <= rows.t)).sum()), float(rows.expected.sum())
    if expected <= 0.0:
        raise DataError("no event is expected: every predicted cumulative hazard is 0")
    tail = 0.5 * (1.0 - level)
    lower = float(chi2.ppf(tail, 2 * observed)) / 2 if observed else 0.0
    upper = float(chi2.isf(tail, 2 * observed + 2)) / 2
    return Estimate(observed / expected, lower / expected, upper / expected)


_MEASURES = {
    "oe_hazard": event_ratio,
    "oe_ratio": observed_expected_ratio,
    "concordance": concordance_interval,
}

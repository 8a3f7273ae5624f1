"""The report of a validation: its table, figures, page and comparisons."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
from matplotlib.axes import Axes

from sstorch._types import FloatArray
from sstorch.checks import (
    check_horizon,
    check_integer,
    check_observed_horizon,
    check_probability,
    check_share,
)
from sstorch.data.columns import check_same_order, target_parts
from sstorch.data.target import parse_target
from sstorch.document import to_html
from sstorch.exceptions import ConfigError, DataError
from sstorch.files import write_whole
from sstorch.metrics import hazard_calibration_curve, net_benefit, paired_bootstrap
from sstorch.metrics.curves import predict_curves
from sstorch.metrics.decision_curve import check_thresholds, net_benefits
from sstorch.metrics.evaluation import PredictsSurvival
from sstorch.plots import plot_calibration, plot_decision_curve
from sstorch.validation.checklist import checklist
from sstorch.validation.facts import Facts
from sstorch.validation.measures import (
    MEASURES,
    Predictions,
    measure_table,
    name_of_net_benefit,
    value_of,
)
from sstorch.validation.page import document

# Of a decision curve as it is drawn.
_GRID = np.arange(0.01, 1.0, 0.01)
_LEAST_RESAMPLES = 20


@dataclass(frozen=True, eq=False, repr=False)
class ValidationReport:
    """How good the predictions of a model are at one horizon, on rows that it was not fitted to.

    Attributes:
        predictions: the rows, and S at the horizon for each.
        facts: of the model and the rows, for the page and the checklist.
        table: of `to_frame`.
    """

    predictions: Predictions
    facts: Facts
    table: pd.DataFrame

    def to_frame(self) -> pd.DataFrame:
        """The measures.

        Returns:
            A row a measure, indexed by its name: c_harrell, c_uno, auc, oe_ratio, calibration_intercept,
            calibration_slope, ici, e50, e90, e_max, brier, scaled_brier, and net_benefit(p) for each
            threshold p.
            Columns: value; lower and upper limit; ideal, the value of perfect predictions, NaN for a net
            benefit; method, of the limits; n_undefined, resamples in which the measure has no value; reason,
            why there is no value or no limits, or "".
        """
        return self.table.copy()

    def __repr__(self) -> str:
        facts = self.facts
        title = f"{facts.model} on {facts.n_rows} rows, {facts.n_by_horizon} events up to {facts.at_horizon}"
        return f"{title}\n{self.table[['value', 'lower', 'upper']].round(3)}"

    def calibration_curve(self) -> pd.DataFrame:
        """Observed against predicted survival, see :func:`sstorch.metrics.hazard_calibration_curve`."""
        rows = self.predictions
        return hazard_calibration_curve(
            (rows.time, rows.event), rows.survival, t=rows.horizon, confidence=self.facts.confidence
        )

    def decision_curve(self, thresholds: npt.ArrayLike | None = None) -> pd.DataFrame:
        """Net benefit at given thresholds, or at each percent; see :func:`sstorch.metrics.net_benefit`."""
        rows, at = self.predictions, _GRID if thresholds is None else thresholds
        return net_benefit((rows.time, rows.event), rows.survival, t=rows.horizon, thresholds=at)

    def plot_calibration(self, ax: Axes | None = None) -> Axes:
        """Draw the calibration curve, with a tick for each row.

        Raises:
            DataError: predictions that have no such curve, see `calibration_curve`.
        """
        return plot_calibration(self.calibration_curve(), self.predictions.survival, ax)

    def plot_decision_curve(self, ax: Axes | None = None) -> Axes:
        """Draw the net benefit at each percent, beside treating all and none."""
        return plot_decision_curve(self.decision_curve(), ax)

    def tripod(self) -> pd.DataFrame:
        """The items of TRIPOD+AI, as far as the rows and the model can tell.

        Returns:
            A row an item, indexed by its number, "1" to "27c": topic; told, what the validation says of
            it, or ""; left, what remains to be written.

        References:
            Collins, Moons, Dhiman et al. (2024), BMJ 385, e078378.
        """
        return checklist(self.facts, self.table)

    def to_html(self, path: str | Path) -> Path:
        """Write one page with the table, both figures and the checklist, which needs no other file.

        Args:
            path: of the page, in an existing folder; a file that is there is replaced.

        Returns:
            The path.

        Raises:
            OSError: it cannot be written.
        """
        target = Path(path).expanduser()
        decisions, items = self.decision_curve(), self.tripod()
        page = document(self.facts, self.table, self.predictions, self.calibration_curve, decisions, items)
        write_whole(target, to_html(page).encode())
        return target

    def compare(
        self, other: ValidationReport, *, n_resamples: int = 200, random_state: int = 0
    ) -> pd.DataFrame:
        """Compare with the report of another model on the same rows, measure by measure.

        Each resample draws the same rows for both models, see :func:`sstorch.metrics.paired_bootstrap`.

        Args:
            other: a report of the same times, events and horizon, in the same order.
            n_resamples: number of resamples, at least 20.
            random_state: seed of the draws; every measure sees the same resamples.

        Returns:
            A row a measure, indexed by its name, for the thresholds that both reports have: first (this
            report), second, difference, lower, upper and p_value of no difference, n_undefined and reason.
            For the measures of calibration a difference is no judgement: look at how far each is from its
            ideal.

        Raises:
            ConfigError: too few resamples, or the reports have different horizons.
            DataError: they have different rows.
        """
        one, two = self.predictions, other.predictions
        if one.horizon != two.horizon:
            raise ConfigError(f"other: expected the horizon {one.horizon:g}; got {two.horizon:g}.")
        if not (np.array_equal(one.time, two.time) and np.array_equal(one.event, two.event)):
            raise DataError(
                "other: expected a report of the same rows in the same order; times or events differ."
            )

        def measure(name: str) -> Any:
            return lambda y, s: value_of(name, Predictions(y.time, y.event, s, one.horizon))

        def benefit(threshold: float) -> Any:
            at = np.array([threshold])
            return lambda y, s: float(net_benefits(y.time, y.event, 1.0 - s, one.horizon, at)[0][0])

        scores = {name: measure(name) for name in MEASURES}
        both = [threshold for threshold in self.facts.thresholds if threshold in other.facts.thresholds]
        scores |= {name_of_net_benefit(threshold): benefit(threshold) for threshold in both}
        table = []
        for name, score in scores.items():
            row = (name, self.table["value"][name], other.table["value"][name])
            try:
                result = paired_bootstrap(
                    score,
                    (one.time, one.event),
                    one.survival,
                    two.survival,
                    n_resamples=n_resamples,
                    confidence=self.facts.confidence,
                    random_state=random_state,
                )
                limits = (result.difference, result.lower, result.upper, result.p_value, result.n_undefined)
                table.append((*row, *limits, ""))
            except DataError as error:
                table.append((*row, np.nan, np.nan, np.nan, np.nan, 0, str(error)))
        columns = ["measure", "first", "second", "difference", "lower", "upper", "p_value"]
        return pd.DataFrame(table, columns=[*columns, "n_undefined", "reason"]).set_index("measure")


def validate(
    model: PredictsSurvival,
    X: Any,
    y: Any,
    *,
    horizon: float,
    thresholds: npt.ArrayLike = (0.1, 0.2, 0.3, 0.4, 0.5),
    n_resamples: int = 500,
    confidence: float = 0.95,
    random_state: int = 0,
    time_unit: str | None = None,
) -> ValidationReport:
    """Validate a fitted model on other rows, at one horizon.

    The measures are those that the STRATOS initiative recommends (McLernon et al.);
    `ValidationReport.to_frame` has them all. Definitions that differ between publications:

    * Concordance, O/E, slope, ICI and net benefit see follow-up up to the horizon only. All censoring weights
      come from the rows of the validation, as in that paper, not from the training rows as in
      :func:`sstorch.metrics.evaluate`.
    * AUC and Brier score are those at the horizon itself. The published example has them at 4.99 of 5 years,
      since its rows were cut at 5 and riskRegression needs somebody beyond: .677 for .681 there.
    * Limits of Uno's concordance count the error of its weights, which R's survival leaves out.
    * The slope is that of a Cox model on log(-log S), with Wald's limits; the intercept that of
      pseudo-observations with a complementary log-log link; ICI, E50, E90 and Emax are measured from a Cox
      model on a restricted cubic spline of log(-log S) with three knots.
    * Net benefit is not known, NaN, where nobody above the threshold was followed up to the horizon; some
      scripts have 0 there.

    Args:
        model: a fitted estimator with ``predict_survival_function(X, times)`` -> (n, n_times), or that of
            lifelines or scikit-survival.
        X: features of the rows, as the model takes them.
        y: their times and events, a pair (time, event), a DataFrame or a structured array.
        horizon: the time that is predicted for, in the unit of y, within the observed times.
        thresholds: risks by the horizon from which on one would act, in [0, 1).
        n_resamples: of the rows, for the limits that no formula gives: ICI, E50, E90, Emax and net benefit,
            which are percentiles; 0 for none, else at least 20.
        confidence: of all limits, in (0, 1).
        random_state: seed of the resamples.
        time_unit: for the page, such as "years"; that of the model if it knows one.

    Returns:
        The report. A measure that is not defined for these predictions, such as the slope of ones that are
        all equal, is NaN with its reason.

    Raises:
        DataError: rows or predictions that cannot be used, or a horizon outside the observed times.
        ConfigError: a horizon that is no time > 0, thresholds outside [0, 1), too few resamples, or a
            confidence out of range.

    References:
        McLernon, Giardiello, Van Calster et al. (2023), Annals of Internal Medicine 176, 105-114.

    Examples:
        >>> from sstorch import SoftSurvivalTree, load_dataset
        >>> data = load_dataset("gbsg2")
        >>> train, test = data.subset(range(400)), data.subset(range(400, 686))
        >>> tree = SoftSurvivalTree(depth=0).fit(train.frame, (train.time, train.event))
        >>> y = (test.time, test.event)
        >>> report = validate(tree, test.frame, y, horizon=1500, thresholds=[0.3], n_resamples=20)
        >>> report.to_frame().loc[["c_harrell", "net_benefit(0.3)"], "value"].round(1).tolist()
        [0.7, 0.3]
    """
    if isinstance(model, type) or not isinstance(model, PredictsSurvival):
        raise DataError(
            "model: expected a fitted estimator with predict_survival_function(X, times); got "
            f"{model if isinstance(model, type) else type(model).__name__}."
        )
    time, event = parse_target(y)
    check_same_order(("X", X), *target_parts(y))
    at = check_horizon(horizon, "horizon")
    check_observed_horizon(at, time, "horizon")
    risks = np.unique(check_thresholds(thresholds))
    if check_integer("n_resamples", n_resamples, 0) and n_resamples < _LEAST_RESAMPLES:
        raise ConfigError(f"n_resamples: expected 0 or at least {_LEAST_RESAMPLES}; got {n_resamples}.")
    check_share(confidence, "confidence", "a number in (0, 1)", closed=False)
    rows = Predictions(time, event, _predicted(model, X, time, at), at)
    table = measure_table(
        rows, risks, n_resamples=n_resamples, confidence=confidence, random_state=random_state
    )
    unit = time_unit or getattr(model, "time_unit_", None)
    facts = Facts.of(model, X, rows, risks, unit, n_resamples, confidence, random_state)
    return ValidationReport(rows, facts, table)


def _predicted(model: PredictsSurvival, X: Any, time: FloatArray, horizon: float) -> FloatArray:
    """S of each row at the horizon, (n,)."""
    curves = np.asarray(predict_curves(model, X, np.array([horizon])))
    if curves.shape != (time.size, 1):
        raise DataError(
            f"model: expected survival at one time for each of {time.size} rows, shape ({time.size}, 1); got "
            f"{curves.shape}."
        )
    return check_probability(curves[:, 0], "survival", time.size)

"""The report of a validation: its table, figures and page."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
from matplotlib.axes import Axes

from sstorch.checks import check_after, check_horizon, check_integer, check_same_order, check_share
from sstorch.data import as_surv
from sstorch.data.causes import cause_number
from sstorch.data.fingerprint import on_training_rows
from sstorch.document import to_html
from sstorch.exceptions import ConfigError, DataError
from sstorch.files import write_whole
from sstorch.metrics.calibration_errors import hazard_calibration_curve
from sstorch.metrics.checks import check_observed_horizon
from sstorch.metrics.decision_curve import benefits_of, check_thresholds
from sstorch.metrics.horizon_rows import HorizonRows
from sstorch.metrics.incidence_evaluation import PredictsIncidence
from sstorch.metrics.scored_rows import PredictsSurvival
from sstorch.metrics.weights import WeightKind
from sstorch.plots import plot_calibration, plot_decision_curve
from sstorch.validation.checklist import checklist
from sstorch.validation.facts import APPARENT, Facts
from sstorch.validation.measures import (
    NEEDS_LANDMARK,
    measure_table,
)
from sstorch.validation.optimism import optimism
from sstorch.validation.page import document
from sstorch.validation.predicting import Cohort, check_model

# Of a decision curve as it is drawn.
_GRID = np.arange(0.01, 1.0, 0.01)
_LEAST_RESAMPLES = 20


@dataclass(frozen=True, eq=False, repr=False)
class ValidationReport:
    """How good the predictions of a model are at one horizon, on rows that it was not fitted to.

    Attributes:
        rows: rows with their predictions at the horizon, by name of the cause; "" where there is one event.
        facts: of the model and the rows, for the page and the checklist.
        table: of `to_frame`.
    """

    rows: Mapping[str, HorizonRows]
    facts: Facts
    table: pd.DataFrame

    def to_frame(self) -> pd.DataFrame:
        """The measures.

        Returns:
            A row a measure, indexed by its name, with competing causes by cause and name.

            Measures of one event: c_harrell_t, c_uno_t, auc, oe_ratio, oe_hazard, calibration_intercept,
            calibration_slope, ici, e50, e90, e_max, brier, scaled_brier, and net_benefit(p) for each
            threshold p. Competing causes: c_cause_specific and c_wolbers in place of c_harrell_t and
            c_uno_t, and no oe_hazard.
            Columns: value; with refits corrected, the value less its optimism; lower and upper limit;
            ideal, the value of perfect predictions, NaN for a net benefit; method, of the limits;
            n_undefined, resamples in which the measure has no value; reason, why there is no value or no
            limits, or "".
        """
        return self.table.copy()

    @property
    def predictions(self) -> HorizonRows:
        """Rows with the predictions of the one event, or of the first cause."""
        return next(iter(self.rows.values()))

    def of_cause(self, cause: int | str | None = None) -> HorizonRows:
        """Rows with the predictions of a cause, by number or name; None for the first.

        Raises:
            ConfigError: there is no such cause in the report.
        """
        if cause is None:
            return self.predictions
        names = list(self.rows)
        return self.rows[names[cause_number(cause, names) - 1]]

    def __repr__(self) -> str:
        facts = self.facts
        title = f"{facts.model} on {facts.n_rows} rows, {facts.n_by_horizon} events up to {facts.at_horizon}"
        title = f"{title}\n{APPARENT}" if facts.apparent else title
        return f"{title}\n{self.table[['value', 'lower', 'upper']].round(3) + 0.0}"

    def calibration_curve(self, cause: int | str | None = None) -> pd.DataFrame:
        """Observed against predicted survival, see :func:`sstorch.metrics.hazard_calibration_curve`.

        With competing causes it is one minus the incidence of a cause, by number or name; None for the first.

        Raises:
            DataError: predictions that have no such curve, or start-stop rows without a landmark.
            ConfigError: there is no such cause.
        """
        rows = self.of_cause(cause)
        if rows.path:
            raise DataError(NEEDS_LANDMARK)
        return hazard_calibration_curve(rows, self.facts.confidence)

    def decision_curve(
        self, thresholds: npt.ArrayLike | None = None, cause: int | str | None = None
    ) -> pd.DataFrame:
        """Net benefit at given thresholds, or at each percent; see :func:`sstorch.metrics.net_benefit`.

        Raises:
            DataError: start-stop rows without a landmark.
            ConfigError: thresholds outside [0, 1), or there is no such cause.
        """
        rows = self.of_cause(cause)
        if rows.path:
            raise DataError(NEEDS_LANDMARK)
        return benefits_of(rows, _GRID if thresholds is None else thresholds)

    def plot_calibration(self, ax: Axes | None = None, cause: int | str | None = None) -> Axes:
        """Draw the calibration curve, with a histogram of the predictions.

        With competing causes it is that of the incidence of a cause.

        Raises:
            DataError: predictions that have no such curve, see `calibration_curve`.
        """
        curve, survival = self.calibration_curve(cause), self.of_cause(cause).survival
        return plot_calibration(
            curve,
            survival,
            ax,
            incidence=self.predictions.competing,
            horizon=self.facts.at_horizon,
        )

    def plot_decision_curve(self, ax: Axes | None = None, cause: int | str | None = None) -> Axes:
        """Draw the net benefit at each percent, compared with treating all and none."""
        return plot_decision_curve(self.decision_curve(cause=cause), ax, horizon=self.facts.at_horizon)

    def tripod(self) -> pd.DataFrame:
        """The items of TRIPOD+AI, as far as the rows and the model show them.

        Returns:
            A row an item, indexed by its number, "1" to "27c": topic; reported, what the validation has of
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
        page = document(
            self.facts, self.table, self.rows, self.calibration_curve, self.decision_curve, self.tripod()
        )
        write_whole(target, to_html(page).encode())
        return target


def validate(
    model: PredictsSurvival | PredictsIncidence,
    X: Any,
    y: Any,
    *,
    horizon: float,
    sample_weight: npt.ArrayLike | None = None,
    weights: WeightKind = "sampling",
    after: float | None = None,
    cause: int | str | None = None,
    thresholds: npt.ArrayLike = (0.1, 0.2, 0.3, 0.4, 0.5),
    n_resamples: int = 500,
    confidence: float = 0.95,
    random_state: int = 0,
    time_unit: str | None = None,
    n_refits: int = 0,
) -> ValidationReport:
    """Validate a fitted model on other rows, at one horizon.

    The measures are those that the STRATOS initiative recommends (McLernon et al.; van Geloven et al. for
    competing causes); `ValidationReport.to_frame` has them all. Definitions that differ between publications:

    * Concordance, O/E, slope, ICI and net benefit see follow-up up to the horizon only. All censoring weights
      come from the rows of the validation, as in that paper, not from the training rows as in
      :func:`sstorch.metrics.evaluate`.
    * AUC and Brier score are those at the horizon itself. The published example has them at 4.99 of 5 years,
      since its rows were cut at 5 and riskRegression needs a row beyond: .677 for .681 there.
    * Limits of Uno's concordance count the error of its weights, which R's survival leaves out.
    * oe_ratio compares risks at the horizon, oe_hazard events with the sum of predicted cumulative hazards
      while rows were observed (Crowson et al.), whose logarithm is the intercept of a Poisson regression.
    * The slope is that of a Cox model on log(-log S), with Wald's limits; the intercept that of
      pseudo-observations with a complementary log-log link; ICI, E50, E90 and Emax are measured from a Cox
      model on a restricted cubic spline of log(-log S) with three knots. With competing causes all of them
      are those of pseudo-values of the incidence with a complementary log-log link.
    * Net benefit is not known, NaN, where no row above the threshold was followed up to the horizon; some
      scripts have 0 there.

    Left truncation: pairs are those at risk together, Cox models, hazards and Kaplan-Meier see rows from
    their entry on. Measures that weight for censoring from time zero, or compare with the mean risk of rows
    that had to survive until entry, are NaN with the reason; with `after` they are those of the rows at risk
    then.

    Start-stop rows of time-varying covariates (`entry` and `id`): a prediction holds for its row.
    c_harrell_t, oe_hazard and the slope are over rows, each with the hazard between its entry and its time.
    All else needs a landmark: with `after` the covariates of then predict what comes, and a subject is
    followed through its later rows to its event, a gap, or the end of its last row. Resamples and errors are
    of subjects.

    Weights: every measure and every censoring weight is weighted; limits do not depend on the scale of the
    weights, and those by a formula are robust, by the squares of weighted influences. A weight of 2 gives the
    value of two equal rows, but where ties of a Cox model enter (slope, ICI and its kin; as in R), and in the
    pseudo-observations of the intercept, to the order of 1 / n.

    Args:
        model: a fitted estimator with ``predict_survival_function(X, times)`` -> (n, n_times), or that of
            lifelines or scikit-survival; for competing causes one with
            ``predict_cumulative_incidence(X, times)`` -> (n, K, n_times).
        X: features of the rows, as the model takes them.
        y: their outcome, a :class:`~sstorch.Surv` of the kind that the model was trained on; (time, event), a
            DataFrame or a structured array for right-censored times.
        horizon: the time that is predicted for, in the unit of y, within the observed times; from the
            landmark on if there is one.
        sample_weight: weights of the rows, shape (n,), >= 0; None for those of `y`, or one each.
        weights: "sampling" (inverse probability or survey weights), or "frequency" (how often each row was
            observed, integers), which is the same as rows that are repeated, with limits.
        after: a landmark: the rows at risk then are validated, from there on.
        cause: number or name of one competing cause; None for all.
        thresholds: risks by the horizon from which on one would act, in [0, 1).
        n_resamples: of the subjects, for the limits that no formula gives: net benefit and Wolbers'
            concordance, which are percentiles; 0 for none, else at least 20.
        confidence: of all limits, in (0, 1).
        random_state: seed of the resamples.
        time_unit: for the page, such as "years"; that of the model if it has one.
        n_refits: of the model to resamples of its training rows, 100 or more to correct an apparent
            validation for optimism (Harrell's bootstrap): the table gets a column ``corrected``. Limits stay
            those of the apparent values. 0 for none.

    Returns:
        The report. A measure that is not defined for these rows or predictions, such as the slope of ones
        that are all equal, is NaN with its reason.

    Raises:
        DataError: rows or predictions that cannot be used, an outcome without the entry, id or causes of
            training, interval-censored times, or a horizon outside the observed times.
        ConfigError: a horizon that is no time > 0, thresholds outside [0, 1), too few resamples, a confidence
            out of range, or an unknown cause.

    References:
        McLernon, Giardiello, Van Calster et al. (2023), Annals of Internal Medicine 176, 105-114; van
        Geloven, Giardiello, Bonneville et al. (2022), BMJ 377, e069249; Crowson, Atkinson and Therneau
        (2016), Statistical Methods in Medical Research 25, 1692-1706; van Houwelingen (2007), Scandinavian
        Journal of Statistics 34, 70-85, for landmarks.

    Examples:
        >>> from sstorch import SurvivalRegression, load_dataset
        >>> data = load_dataset("gbsg2")
        >>> train, test = data.subset(range(400)), data.subset(range(400, 686))
        >>> tree = SurvivalRegression().fit(train.frame, (train.time, train.event))
        >>> y = (test.time, test.event)
        >>> report = validate(tree, test.frame, y, horizon=1500, thresholds=[0.3], n_resamples=20)
        >>> report.to_frame().loc[["c_harrell_t", "net_benefit(0.3)"], "value"].round(1).tolist()
        [0.7, 0.2]
    """
    check_model(model)
    check_same_order(X=X, y=as_surv(y))
    at = check_horizon(horizon, "horizon")
    landmark = None if after is None else float(check_after(after, 1)[0])
    risks = np.unique(check_thresholds(thresholds))
    if check_integer("n_resamples", n_resamples, 0) and n_resamples < _LEAST_RESAMPLES:
        raise ConfigError(f"n_resamples: expected 0 or at least {_LEAST_RESAMPLES}; got {n_resamples}.")
    check_share(confidence, "confidence", "a number in (0, 1)", closed=False)
    check_integer("random_state", random_state, 0)
    cohort = Cohort.of(model, X, y, sample_weight, weights, landmark)
    check_observed_horizon(at, cohort.y.right_censored("validate")[0], "horizon")
    parts = cohort.rows(model, at, cause)
    tables = {
        name: measure_table(
            part, risks, n_resamples=n_resamples, confidence=confidence, random_state=random_state
        )
        for name, part in parts.items()
    }
    table = tables[""] if "" in tables else pd.concat(tables, names=["cause", "measure"])
    apparent = on_training_rows(model, X, y)
    if check_integer("n_refits", n_refits, 0):
        if not apparent:
            raise ConfigError(
                "n_refits corrects for the optimism of training rows, and these are other rows or the model "
                "does not know its own; use n_refits=0"
            )
        lost = optimism(model, cohort, at, cause, n_refits, random_state)
        table.insert(1, "corrected", table["value"] - lost.reindex(table.index))
    unit = time_unit or getattr(model, "time_unit_", None)
    facts = Facts.of(model, cohort, parts, risks, unit, n_resamples, confidence, random_state, apparent)
    return ValidationReport(parts, facts, table)

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

from sstorch._types import FloatArray, IntArray
from sstorch.checks import check_after, check_horizon, check_integer, check_same_order, check_share
from sstorch.data.surv import as_surv
from sstorch.data.survival_data import on_training_rows
from sstorch.data.target import cause_number
from sstorch.document import to_html
from sstorch.exceptions import ConfigError, DataError
from sstorch.files import write_whole
from sstorch.metrics.calibration import calibration_curve
from sstorch.metrics.censoring import NOT_FOLLOWED
from sstorch.metrics.checks import check_observed_horizon
from sstorch.metrics.comparison import bootstrap, percentiles, resampler
from sstorch.metrics.decision_curve import benefits_of, check_thresholds, net_benefits
from sstorch.metrics.horizon import HorizonRows
from sstorch.metrics.measures import BOOTSTRAP, MEASURES, NO_VARIANCE, Measure
from sstorch.plots import plot_calibration, plot_decision_curve
from sstorch.validation.page import APPARENT, Facts, checklist, document, name_of_net_benefit
from sstorch.validation.paired import Cohort, check_model, refitted

# Of a decision curve as it is drawn.
_GRID = np.arange(0.01, 1.0, 0.01)
_LEAST_RESAMPLES = 20


@dataclass(frozen=True, eq=False, repr=False)
class ValidationReport:
    """Result of :func:`validate`: performance of a model at one horizon.

    Attributes:
        rows: rows with predictions at the horizon, by name of the cause; "" for one event.
        facts: facts about the model and the rows, for page and checklist.
        table: result of `to_frame`.
    """

    rows: Mapping[str, HorizonRows]
    facts: Facts
    table: pd.DataFrame

    def to_frame(self) -> pd.DataFrame:
        """The measures.

        Returns:
            A row per measure, indexed by its name, with competing causes by cause and name.

            Measures of one event: c_harrell_t, c_uno_t, auc, oe_ratio, calibration_intercept,
            calibration_slope, ici, e50, e90, e_max, brier, scaled_brier, and net_benefit(p) for each
            threshold p. Competing causes: c_cause_specific and c_wolbers in place of c_harrell_t and c_uno_t.
            Columns: value; with refits corrected, the value minus its optimism; lower and
            upper limit; ideal, the value of perfect predictions, NaN for a net benefit; method of the limits;
            n_undefined, number of resamples without a value; reason for a missing value or missing limits, or
            "".
        """
        return self.table.copy()

    @property
    def predictions(self) -> HorizonRows:
        """Rows with the predictions for the event or the first cause."""
        return next(iter(self.rows.values()))

    def of_cause(self, cause: int | str | None = None) -> HorizonRows:
        """Rows with the predictions for a cause, by number or name; None for the first.

        Raises:
            ConfigError: unknown cause in the report.
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
        """Observed against predicted survival, see :func:`sstorch.metrics.calibration_curve`.

        With competing causes it is one minus the incidence of a cause, by number or name; None for the first.

        Raises:
            DataError: predictions without a calibration curve.
            ConfigError: unknown cause.
        """
        return calibration_curve(self.of_cause(cause), self.facts.level)

    def decision_curve(
        self, thresholds: npt.ArrayLike | None = None, cause: int | str | None = None
    ) -> pd.DataFrame:
        """Net benefit at given thresholds, or at each percent; see :func:`sstorch.metrics.net_benefit`.

        Raises:
            ConfigError: thresholds outside [0, 1), or unknown cause.
        """
        return benefits_of(self.of_cause(cause), _GRID if thresholds is None else thresholds)

    def plot_calibration(self, ax: Axes | None = None, cause: int | str | None = None) -> Axes:
        """Draw the calibration curve, with a histogram of the predictions.

        With competing causes it is the curve of the incidence of a cause.

        Raises:
            DataError: predictions without a calibration curve, see `calibration_curve`.
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
        """Draw the net benefit at each percent, with treating all and treating none."""
        return plot_decision_curve(self.decision_curve(cause=cause), ax, horizon=self.facts.at_horizon)

    def tripod(self) -> pd.DataFrame:
        """List the items of TRIPOD+AI, filled in from the rows and the model.

        Returns:
            One row per item, indexed by its number, "1" to "27c": topic; reported, text from the validation,
            or ""; left, text that remains to be written.

        References:
            Collins, Moons, Dhiman et al. (2024), BMJ 385, e078378.
        """
        return checklist(self)

    def to_html(self, path: str | Path) -> Path:
        """Write one page with the table, both figures and the checklist, which needs no other file.

        Args:
            path: file in an existing folder; an existing file is replaced.

        Returns:
            The path.

        Raises:
            OSError: the file cannot be written.
        """
        target = Path(path).expanduser()
        write_whole(target, to_html(document(self)).encode())
        return target


def validate(
    model: Any,
    X: Any,
    y: Any,
    *,
    horizon: float,
    sample_weight: npt.ArrayLike | None = None,
    after: float | None = None,
    thresholds: npt.ArrayLike = (0.1, 0.2, 0.3, 0.4, 0.5),
    n_resamples: int = 500,
    level: float = 0.95,
    random_state: int = 0,
    time_unit: str | None = None,
    n_refits: int = 0,
) -> ValidationReport:
    """Validate a fitted model on other rows, at one horizon.

    The measures are those recommended by the STRATOS initiative (McLernon et al.; van Geloven et al. for
    competing causes), listed in `ValidationReport.to_frame`. Definitions that differ between publications:

    * Concordance, O/E, slope, ICI and net benefit use follow-up up to the horizon only, AUC and Brier score
      that of the horizon. All censoring weights come from the validation rows, as in McLernon et al., not
      from the training rows as in :func:`sstorch.metrics.evaluate`.
    * Limits of Uno's concordance include the uncertainty of the weights, unlike R's survival.
    * Intercept, slope and calibration curve (ICI, E50, E90, Emax) are regressions of pseudo-values of the
      risk at the horizon with a complementary log-log link, the curve on a restricted cubic spline of
      log(-log S) with three knots. McLernon et al. fit Cox models to follow-up instead, whose slope is the
      mean over follow-up of an effect that may wane.
    * Net benefit is NaN if no row above the threshold was followed up to the horizon; some scripts use 0.

    Left truncation: pairs are at risk at the same time; hazards and Kaplan-Meier include rows from entry on.
    Other measures, which need rows from time zero, are NaN with the reason; with `after` they use the rows at
    risk at this time. Start-stop rows of time-varying covariates (`entry` and `id`) need a landmark: with
    `after` predictions use the covariates at this time, and follow-up continues through later rows of the
    subject to the event, a gap, or the end of the last row. Resamples and standard errors are by subject.

    Weights: every measure and every censoring weight is weighted. Limits do not depend on the scale of the
    weights; limits by formula are robust, from squares of weighted influences. A weight of 2 and two equal
    rows give the same value, except for quantiles of rows (E50, E90).

    Args:
        model: a fitted model with ``predict_survival_function(X, times)`` -> (n, n_times), including models
            of lifelines and scikit-survival; for competing causes ``predict_cumulative_incidence(X, times)``
            -> (n, K, n_times).
        X: features of the rows, in the format of the model.
        y: outcome of the rows, a :class:`~sstorch.Surv` of the type of the training outcome; (time, event), a
            DataFrame or a structured array for right-censored times.
        horizon: time of the predictions, in the unit of y, within the observed times; counted from the
            landmark if there is one.
        sample_weight: weights of the rows, shape (n,), >= 0; None for the weights of `y`, or 1.
        after: a landmark: the rows at risk at this time are validated, with times counted from it.
        thresholds: decision thresholds for the risk at the horizon, in [0, 1).
        n_resamples: number of bootstrap resamples of subjects, for percentile limits of net benefit and
            Wolbers' concordance; 0 for none, else at least 20.
        level: level of all limits, in (0, 1).
        random_state: seed of the resamples.
        time_unit: unit of times on the page, such as "years"; by default that of the model.
        n_refits: number of refits of the model to resamples of its training rows, to correct an apparent
            validation for optimism (Harrell's bootstrap); use 100 or more. 0 for none. The table gets a
            column ``corrected``. Limits are for the apparent values.

    Returns:
        The report. A measure that is not defined for these rows or predictions, such as the slope of equal
        predictions, is NaN with a reason.

    Raises:
        DataError: invalid rows or predictions, an outcome without the entry, id or causes of training,
            interval-censored times, or a horizon outside the observed times.
        ConfigError: a horizon that is not > 0, thresholds outside [0, 1), too few resamples, or a level out
            of range.

    References:
        McLernon, Giardiello, Van Calster et al. (2023), Annals of Internal Medicine 176, 105-114; van
        Geloven, Giardiello, Bonneville et al. (2022), BMJ 377, e069249; van Houwelingen (2007), Scandinavian
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
    check_same_order(X=X, y=as_surv(y), sample_weight=sample_weight)
    at = check_horizon(horizon, "horizon")
    landmark = None if after is None else float(check_after(after, 1)[0])
    risks = np.unique(check_thresholds(thresholds))
    if check_integer("n_resamples", n_resamples, 0) and n_resamples < _LEAST_RESAMPLES:
        raise ConfigError(f"n_resamples must be 0 or at least {_LEAST_RESAMPLES}, got {n_resamples}.")
    check_share(level, "level")
    check_integer("random_state", random_state, 0)
    cohort = Cohort.of(model, X, y, sample_weight, landmark)
    check_observed_horizon(at, cohort.y.right_censored("validate")[0], "horizon")
    parts = cohort.rows(model, at)
    tables = {name: _table(part, risks, n_resamples, level, random_state) for name, part in parts.items()}
    table = tables[""] if "" in tables else pd.concat(tables, names=["cause", "measure"])
    apparent = on_training_rows(model, X, y)
    if check_integer("n_refits", n_refits, 0):
        if not apparent:
            raise ConfigError(
                "n_refits corrects for the optimism of training rows, and these are other rows or the model "
                "does not know its own; use n_refits=0"
            )
        lost = _optimism(model, cohort, at, n_refits, random_state)
        table.insert(1, "corrected", table["value"] - lost.reindex(table.index))
    facts = Facts.of(
        model,
        cohort.X,
        parts,
        landmark,
        time_unit or getattr(model, "time_unit_", None) or "",
        thresholds=tuple(risks.tolist()),
        n_resamples=n_resamples,
        level=level,
        random_state=random_state,
        apparent=apparent,
    )
    return ValidationReport(parts, facts, table)


def _table(
    rows: HorizonRows, thresholds: FloatArray, n_resamples: int, level: float, random_state: int
) -> pd.DataFrame:
    """All measures with their limits, as `ValidationReport.to_frame` describes them."""
    defined = {name: measure for name, measure in MEASURES.items() if measure.defined_for(rows.competing)}
    resampled = [name for name, measure in defined.items() if measure.method == BOOTSTRAP]
    benefits = _benefits(rows, thresholds)

    def statistic(drawn: IntArray) -> FloatArray:
        part = rows.take(drawn)
        return np.append([_value(defined[name], part) for name in resampled], _benefits(part, thresholds))

    names = [*resampled, *map(name_of_net_benefit, thresholds)]
    drawn = np.empty((0, len(names)))
    if n_resamples and names:
        drawn = bootstrap(statistic, len(rows), n_resamples, random_state, rows.y.id)
    of_resamples = {name: percentiles(each, level) for name, each in zip(names, drawn.T, strict=True)}
    table: dict[str, tuple[object, ...]] = {}
    for name, measure in defined.items():
        found: tuple[object, ...] = (np.nan, np.nan, np.nan)
        n_undefined, reason = 0, ""
        try:
            if (limits := measure.interval(rows, level)) is not None:
                found = limits
                reason = NO_VARIANCE if np.isnan(limits[1:]).all() else ""
            else:
                found = (measure.of(rows), *of_resamples[name][:2])
                reason = of_resamples[name].reason
        except DataError as error:
            reason = str(error)
        if name in of_resamples:
            n_undefined = of_resamples[name].n_undefined
        table[name] = (*found, measure.ideal, measure.method, n_undefined, reason)
    unknown = f"of the rows with such a risk {NOT_FOLLOWED.format(rows.t)}"
    for name, value in zip(names[len(resampled) :], benefits, strict=True):
        lower, upper, _, n_undefined, reason = of_resamples[name]
        if np.isnan(value):
            lower, upper, reason = np.nan, np.nan, unknown
        table[name] = (value, lower, upper, np.nan, BOOTSTRAP, n_undefined, reason)
    columns = ["value", "lower", "upper", "ideal", "method", "n_undefined", "reason"]
    return pd.DataFrame.from_dict(table, orient="index", columns=columns).rename_axis("measure")


def _value(measure: Measure, rows: HorizonRows) -> float:
    """A measure, NaN where it is not defined, as in a resample without an event."""
    try:
        return measure.of(rows)
    except DataError:
        return np.nan


def _benefits(rows: HorizonRows, thresholds: FloatArray) -> FloatArray:
    return net_benefits(rows, thresholds)[0] if thresholds.size else thresholds


def _optimism(model: Any, cohort: Cohort, t: float, n_refits: int, seed: int) -> pd.Series:
    """Mean difference of each measure between the training rows of refits to resamples, and all rows."""
    # Harrell, Lee and Mark (1996), Statistics in Medicine 15, 361-387, section 5.
    # ConfigError: no clone of the model; DataError: subjects of several rows, a landmark.
    if cohort.y.id is not None or cohort.after is not None:
        raise DataError("n_refits is for rows that are subjects, without a landmark; use n_refits=0")

    def values(model: Any, cohort: Cohort) -> pd.Series:
        return pd.Series(
            {
                (name, title) if name else title: _value(measure, rows)
                for name, rows in cohort.rows(model, t).items()
                for title, measure in MEASURES.items()
                if measure.defined_for(rows.competing)
            }
        )

    rng, draw, lost = np.random.default_rng(seed), resampler(len(cohort.y)), []
    for _ in range(n_refits):
        own = cohort.take(draw(rng))
        refit = refitted(model, own)
        lost.append(values(refit, own) - values(refit, cohort))
    return pd.concat(lost, axis=1).mean(axis=1)  # NaN such as no finite slope: over the other refits

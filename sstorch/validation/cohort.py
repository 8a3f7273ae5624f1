"""Rows of a validation: features and outcome, with the predictions of a model at one horizon."""

from __future__ import annotations

import warnings
from typing import Any, NamedTuple, Self

import numpy as np
import numpy.typing as npt
from sklearn.base import clone

from sstorch._types import IntArray
from sstorch.checks import check_weight, has_method
from sstorch.data import Surv
from sstorch.data.columns import to_pandas
from sstorch.data.surv import outcome_of
from sstorch.exceptions import ConfigError, DataError, DataWarning
from sstorch.metrics.horizon import HorizonRows
from sstorch.metrics.outcome import subjects_of
from sstorch.metrics.scored import predictor, some_rows


class Cohort(NamedTuple):
    """Features and outcome of the rows of a validation."""

    X: Any  # features, n rows
    y: Surv  # outcome with its weights, n rows
    after: float | None = None  # landmark from which the times of `y` count; None for time zero

    @classmethod
    def of(
        cls,
        model: Any,
        X: Any,
        y: object,
        sample_weight: npt.ArrayLike | None,
        after: float | None,
    ) -> Self:
        """Read the rows, of the kind that the model was trained on.

        Raises DataError for an outcome or weights that cannot be used, and for subjects with several rows
        without a landmark.
        """
        outcome = outcome_of(model, y)
        outcome.right_censored("a measure at a horizon")
        if not len(outcome):
            raise DataError("the data have no rows")
        weight = check_weight(outcome.weight if sample_weight is None else sample_weight, len(outcome))
        cohort = cls(X, outcome.weighted(weight))
        if weight is not None and not weight.all():
            cohort = cohort.take(np.flatnonzero(weight))
        if after is not None:
            rows, later = cohort.y.followed_from(after)
            return cohort.take(rows)._replace(y=later, after=after)
        several = getattr(model, "time_varying_", False)
        subject = subjects_of(cohort.y)
        if subject is not None and cohort.y.entry is not None:
            several = several or int(subject.max()) + 1 < len(subject)
        if several:
            raise DataError(
                "predictions of start-stop rows with time-varying covariates hold for each row only, and "
                "survival from time zero is not defined: give after=, a time from which the rows at risk are "
                "followed"
            )
        return cohort

    def take(self, rows: IntArray) -> Self:
        """Some rows, repetitions allowed."""
        return self._replace(X=some_rows(to_pandas(self.X), rows), y=self.y[rows])

    def rows(self, model: Any, t: float) -> dict[str, HorizonRows]:
        """Rows with their predictions at the horizon, by name of the cause; "" if there is one event."""
        y, names = self.y, self.y.causes or ("",)
        if y.causes is not None and not has_method(model, "predict_cumulative_incidence"):
            raise DataError(
                f"y has competing causes, and {type(model).__name__} predicts the survival of one event, for "
                "which competing events would count as censored: give a model with "
                "predict_cumulative_incidence(X, times), or Surv(time, cause == k) to validate the "
                "hazard of cause k"
            )
        time, after = y.right_censored("validate")[0], self.after or None  # a landmark of 0 is time zero
        if getattr(model, "time_varying_", False):
            after = self.after
        free = predictor(model, self.X, y.causes or (), len(y), after, time)(np.array([t]))[:, :, 0]
        return {
            name: HorizonRows.of(y, free[:, k - 1], t, cause=None if y.causes is None else k)
            for k, name in enumerate(names, 1)
        }


def refitted(model: Any, rows: Cohort) -> Any:
    """A clone of an estimator, fitted to some rows; a ConfigError if it cannot be."""
    if not hasattr(model, "get_params") or not hasattr(model, "fit"):
        raise ConfigError(
            "refits need an estimator of scikit-learn with fit(X, y) and get_params; got "
            f"{type(model).__name__}"
        )
    if type(model).__module__.split(".")[0] != "sksurv":
        with warnings.catch_warnings():  # a resample repeats rows, and a fold has the oddities of all rows
            warnings.simplefilter("ignore", DataWarning)
            return clone(model).fit(rows.X, rows.y)
    if rows.y.type != "right" or rows.y.weight is not None:
        raise ConfigError(
            f"{type(model).__name__} of scikit-survival is refitted to right-censored rows without weights "
            "only; leave it out"
        )
    return clone(model).fit(rows.X, rows.y.to_structured())


def check_model(model: object) -> None:
    """Check that a model is fitted and predicts curves."""
    if not any(
        has_method(model, f"predict_{what}") for what in ("survival_function", "cumulative_incidence")
    ):
        raise DataError(
            "model must be a fitted estimator with predict_survival_function(X, times), or "
            "predict_cumulative_incidence(X, times) for competing causes, got "
            f"{model if isinstance(model, type) else type(model).__name__}."
        )
